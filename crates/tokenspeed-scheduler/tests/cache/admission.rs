//! Admission with the least eviction (`cache.md` §7).

use tokenspeed_scheduler::cache::Demand;
use tokenspeed_scheduler::cache::admission::NoCapacity;

use crate::bench::{Bench, full, sliding, state, tokens};

fn dense(tokens: i64) -> Demand {
    Demand::Dense { tokens, reserve: 0 }
}

#[test]
fn closed_prefixes_are_given_up_from_their_end() {
    let mut bench = Bench::new(4, &[full(4, 1)], 4, 0);
    let mut a = bench.guest(&tokens(1, 12));
    bench.admit(&mut a).expect("room");
    bench.finish(a);
    assert_eq!(bench.cached(0), [1, 2, 3]);
    let mut b = bench.guest(&tokens(2, 12));
    bench.admit(&mut b).expect("two are given up");
    assert_eq!(b.table(0), [4, 3, 2]);
    assert_eq!(bench.cached(0), [1]);
}

#[test]
fn hits_are_protected_and_a_refusal_changes_nothing() {
    let mut bench = Bench::new(4, &[full(4, 1)], 4, 0);
    let mut a = bench.guest(&tokens(1, 12));
    bench.admit(&mut a).expect("room");
    bench.finish(a);
    // The hit covers all three cached blocks; one parent is empty, two more blocks are asked for.
    let mut b = bench.guest(&tokens(1, 13));
    assert_eq!(bench.admit_with(&mut b, &[dense(8)]).err(), Some(NoCapacity::Device));
    assert!(!b.holdings.is_resident());
    assert_eq!(b.table(0), [0u32; 0]);
    assert_eq!(bench.cached(0), [1, 2, 3]);
    assert_eq!(bench.eviction_order(), [(0, 3), (0, 2), (0, 1)]);
    assert_eq!((bench.cache.empty_parents(), bench.cache.available_parents()), (1, 4));
    let hit = bench.admit_with(&mut b, &[dense(4)]).expect("one is free");
    assert_eq!(hit.device_pages, 3);
    assert_eq!(b.table(0), [1, 2, 3, 4]);
    assert_eq!(bench.fresh[0], [4], "hits are not zeroed");
}

/// Block 1 is the oldest, but its parent holds a pinned block: to give it up empties nothing. What is
/// given up in vain on the way is kept in the end.
#[test]
fn what_did_not_help_is_kept() {
    let mut bench = Bench::new(4, &[full(4, 2), sliding(4, 1, 1)], 4, 0);
    let mut old = bench.guest(&tokens(1, 4));
    bench.admit_with(&mut old, &[dense(4), dense(0)]).expect("room");
    let mut neighbour = bench.guest(&tokens(2, 4));
    bench.admit_with(&mut neighbour, &[dense(4), dense(0)]).expect("room");
    let mut young = bench.guest(&tokens(3, 8));
    bench.admit_with(&mut young, &[dense(8), dense(0)]).expect("room");
    assert_eq!(
        (old.table(0), neighbour.table(0), young.table(0)),
        (&[1][..], &[2][..], &[3, 4][..])
    );
    bench.finish(old);
    bench.finish(young);
    assert_eq!(bench.eviction_order(), [(0, 1), (0, 4), (0, 3)]);
    // Two empty parents and one more.
    let mut wide = bench.guest(&tokens(4, 12));
    bench.admit_with(&mut wide, &[dense(0), dense(12)]).expect("parent 2 can be emptied");
    assert_eq!(bench.cached(0), [1]);
    assert_eq!(wide.table(1), [3, 4, 2]);
}

/// The trim goes from the newest back: the last one given up is always needed, an older one may not be.
#[test]
fn what_is_needed_in_one_parent_need_not_empty_another() {
    let mut bench = Bench::new(4, &[full(4, 2), sliding(4, 1, 1)], 2, 0);
    for name in [1, 2] {
        let mut guest = bench.guest(&tokens(name, 8));
        bench.admit_with(&mut guest, &[dense(8), dense(0)]).expect("room");
        bench.finish(guest);
    }
    assert_eq!(bench.cached(0), [1, 2, 3, 4]);
    let mut guest = bench.guest(&tokens(3, 4));
    bench.admit_with(&mut guest, &[dense(4), dense(0)]).expect("a slot can be had");
    assert_eq!(guest.table(0), [2], "one block, not the parent");
    assert_eq!(bench.cached(0), [1, 3, 4]);
}

#[test]
fn expired_slots_of_its_own_count() {
    // W = 5: after 12 tokens the first floor((12 - 5 + 1) / 4) = 2 slots are out of reach.
    let mut bench = Bench::new(4, &[sliding(4, 1, 5)], 3, 0);
    let mut guest = bench.guest(&tokens(1, 12));
    bench.admit(&mut guest).expect("room");
    assert_eq!((guest.table(0), bench.cache.empty_parents()), (&[1, 2, 3][..], 0));
    assert_eq!(bench.step(&mut guest, &[dense(12)]), Err(NoCapacity::Device));
    assert_eq!(guest.table(0), [1, 2, 3]);
    bench.step(&mut guest, &[dense(8)]).expect("its own two will do");
    assert_eq!(guest.table(0), [0, 0, 3, 1, 2]);
    assert_eq!(bench.cached(0), [3], "published: the run behind 12");
}

#[test]
fn equal_prefixes_converge_on_the_block_that_was_first() {
    let mut bench = Bench::new(4, &[full(4, 1)], 6, 0);
    let (mut a, mut b) = (bench.guest(&tokens(1, 9)), bench.guest(&tokens(1, 9)));
    bench.admit(&mut a).expect("room");
    bench.admit(&mut b).expect("room");
    assert_eq!((a.table(0), b.table(0)), (&[1, 2, 3][..], &[4, 5, 6][..]));
    bench.publish(&mut a);
    bench.publish(&mut b);
    assert_eq!((a.table(0), b.table(0)), (&[1, 2, 3][..], &[1, 2, 6][..]));
    assert_eq!(bench.cache.device().owners(0, 1), 2);
    assert_eq!(bench.cache.empty_parents(), 2);
}

/// Found beside the slow model: "its last access epoch" is the epoch of the last access, be it an older
/// request's.
#[test]
fn the_last_access_sets_the_epoch() {
    let mut bench = Bench::new(4, &[full(4, 1)], 8, 0);
    let [mut old, mut other, mut young] = [1, 2, 1].map(|name| bench.guest(&tokens(name, 4)));
    for guest in [&mut old, &mut other, &mut young] {
        bench.admit_with(guest, &[dense(4)]).expect("room");
    }
    bench.finish(young);
    bench.finish(other);
    bench.publish(&mut old);
    assert_eq!(old.table(0), [3], "converged on the young one's block");
    bench.leave(old);
    assert_eq!(bench.eviction_order(), [(0, 3), (0, 2)]);
}

#[test]
fn a_cleared_device_hands_its_blocks_back_by_id() {
    let mut bench = Bench::new(4, &[full(4, 1)], 4, 0);
    let mut a = bench.guest(&tokens(1, 12));
    bench.admit(&mut a).expect("room");
    bench.publish(&mut a);
    assert!(!bench.cache.clear_device(), "a request holds what is cached");
    assert_eq!(bench.cached(0), [1, 2, 3]);
    bench.leave(a);
    assert!(bench.cache.clear_device());
    assert_eq!(bench.cached(0), [0u32; 0]);
    let mut b = bench.guest(&tokens(2, 16));
    bench.admit(&mut b).expect("room");
    assert_eq!(b.table(0), [4, 1, 2, 3]);
}

#[test]
fn a_state_group_holds_its_checkpoint_and_what_follows() {
    let mut bench = Bench::new(4, &[full(4, 1), state(4, 1)], 8, 0);
    let mut a = bench.guest(&tokens(1, 9));
    bench.admit(&mut a).expect("room");
    assert_eq!(a.table(1), [0, 4, 5]);
    bench.publish(&mut a);
    // The checkpoint at 8 is an endpoint though a tail of one token follows; then it is out of reach.
    assert_eq!(a.table(1), [0, 0, 5]);
    assert_eq!(bench.cached(1), [4]);
    bench.leave(a);
    let mut b = bench.guest(&tokens(1, 9));
    assert_eq!(bench.admit(&mut b).expect("room").device_pages, 2);
    assert_eq!((b.table(0), b.table(1)), (&[1, 2, 6][..], &[0, 4, 7][..]));
}
