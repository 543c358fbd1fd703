//! The ledger of an admission: what would fit if these blocks were given up.

use tokenspeed_scheduler::cache::ledger::{Ledger, Obstacle};
use tokenspeed_scheduler::cache::pool::Pool;

/// Three parents; group 0 has two blocks in one, group 1 three.
fn pool() -> Pool {
    Pool::new(3, &[2, 3])
}

#[test]
fn own_slots_come_first_and_whole_parents_for_the_rest() {
    let mut pool = pool();
    pool.acquire(0);
    let ledger = Ledger::new(&pool, 2, Obstacle::Used);
    // One free slot of group 0, and two empty parents.
    assert!(ledger.fits(&[1, 6]));
    assert!(!ledger.fits(&[2, 6]));
    assert!(ledger.fits(&[5, 0]));
    assert!(!ledger.fits(&[6, 0]));
    assert!(ledger.fits(&[3, 3]));
    assert!(!ledger.fits(&[3, 4]));
}

#[test]
fn a_parent_is_empty_once_its_last_block_is_given_up() {
    let mut pool = pool();
    let blocks: Vec<u32> = (0..6).map(|_| pool.acquire(0).expect("a block")).collect();
    assert_eq!(blocks, [1, 2, 3, 4, 5, 6]);
    let mut ledger = Ledger::new(&pool, 2, Obstacle::Used);
    assert!(ledger.fits(&[0, 0]));
    assert!(!ledger.fits(&[0, 1]));
    ledger.give_up(0, 1);
    ledger.give_up(0, 3);
    assert!(ledger.fits(&[2, 0]), "a slot each in two parents");
    assert!(!ledger.fits(&[0, 1]), "but no parent");
    ledger.give_up(0, 2);
    assert!(ledger.fits(&[1, 3]), "parent 1 is empty");
    assert!(ledger.fits(&[3, 0]));
    assert!(!ledger.fits(&[2, 3]));
    ledger.keep(0, 1);
    assert!(ledger.fits(&[2, 0]));
    assert!(!ledger.fits(&[0, 1]), "and bound again");
    assert!(!ledger.fits(&[3, 0]));
}

#[test]
fn with_only_pinned_blocks_in_the_way_the_cached_ones_are_gone() {
    let mut pool = pool();
    for _ in 0..4 {
        pool.acquire(0);
    }
    // Parent 1: one pinned, one cached. Parent 2: two cached.
    pool.unpin(0, 2);
    pool.unpin(0, 3);
    pool.unpin(0, 4);
    let ledger = Ledger::new(&pool, 2, Obstacle::Pinned);
    assert!(ledger.fits(&[1, 6]), "slot 2, and parents 2 and 3");
    assert!(!ledger.fits(&[2, 6]));
    let ledger = Ledger::new(&pool, 2, Obstacle::Used);
    assert!(ledger.fits(&[0, 3]), "parent 3 alone");
    assert!(!ledger.fits(&[1, 3]));
}
