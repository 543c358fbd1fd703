//! The order in which cached blocks are given up (`cache.md` §7 and §8).

use tokenspeed_scheduler::cache::geometry::Geometry;
use tokenspeed_scheduler::cache::tier::BoundaryKind::{self, Chunk, Endpoint, Promoted};
use tokenspeed_scheduler::cache::tier::{BlockKey, EntryFacts, Tier, TierKind};
use tokenspeed_scheduler::identity::{ContentHash, PrefixPages};

use crate::bench::{full, sliding, state, tokens};

const FULL: usize = 0;
const SLIDING: usize = 1;
const STATE: usize = 2;

/// Group and what is remembered, in the order of publication; the places in which they go.
fn order(kind: TierKind, entries: &[(usize, EntryFacts)]) -> Vec<usize> {
    let groups = [full(4, 2), sliding(4, 2, 5), state(4, 2)];
    let geometries: Vec<Geometry> = groups.iter().map(|group| Geometry::new(group, 4)).collect();
    let mut tier = Tier::new(kind, 32, &geometries);
    let mut pages = PrefixPages::default();
    let hashes = ContentHash::pages_of(&tokens(1, 4 * entries.len() as i32), 4);
    let mut blocks = Vec::new();
    for (&(group, facts), hash) in entries.iter().zip(hashes) {
        let key = BlockKey { page: pages.intern(hash), ordinal: 0 };
        let block = tier.acquire(group).expect("the tier is large");
        tier.publish(&mut pages, group, block, key, facts);
        blocks.push((group, block));
    }
    blocks.iter().for_each(|&(group, block)| tier.release(group, block));
    let mut order: Vec<_> = (0..groups.len())
        .flat_map(|group| tier.in_order(group).map(move |(rank, block)| (rank, group, block)))
        .collect();
    order.sort();
    let place = |&(_, group, block): &(_, usize, u32)| {
        blocks.iter().position(|&b| b == (group, block)).expect("it was published")
    };
    order.iter().map(place).collect()
}

fn facts(epoch: u64, slot: u32, kind: BoundaryKind, acquired: bool) -> EntryFacts {
    EntryFacts { epoch, slot, kind, acquired }
}

#[test]
fn oldest_epoch_first() {
    let entries = [
        (FULL, facts(3, 0, Endpoint, true)),
        (SLIDING, facts(2, 0, Endpoint, true)),
        (STATE, facts(1, 0, Promoted, false)),
    ];
    assert_eq!(order(TierKind::Device, &entries), [2, 1, 0]);
}

#[test]
fn within_an_epoch_probationary_then_established_then_closed() {
    let entries = [
        (FULL, facts(1, 0, Chunk, false)),
        (STATE, facts(1, 3, Endpoint, false)),
        (SLIDING, facts(1, 2, Chunk, true)),
        (SLIDING, facts(1, 1, Chunk, false)),
    ];
    assert_eq!(order(TierKind::Device, &entries), [3, 2, 1, 0]);
}

#[test]
fn probationary_ones_go_from_the_lowest_slot_closed_ones_from_the_last() {
    let entries = [
        (FULL, facts(1, 4, Chunk, false)),
        (FULL, facts(1, 6, Chunk, false)),
        (FULL, facts(1, 5, Endpoint, true)),
        (SLIDING, facts(1, 9, Chunk, false)),
        (SLIDING, facts(1, 7, Chunk, false)),
        (STATE, facts(1, 8, Chunk, false)),
    ];
    assert_eq!(order(TierKind::Device, &entries), [4, 5, 3, 1, 2, 0]);
}

#[test]
fn established_ones_of_an_epoch_go_by_group_then_place() {
    let entries = [
        (STATE, facts(1, 0, Endpoint, false)),
        (SLIDING, facts(1, 9, Endpoint, false)),
        (SLIDING, facts(1, 1, Promoted, true)),
    ];
    assert_eq!(order(TierKind::Device, &entries), [1, 2, 0]);
}

#[test]
fn the_host_gives_up_what_no_admission_acquired_then_the_oldest() {
    let entries = [
        (FULL, facts(1, 0, Endpoint, true)),
        (FULL, facts(9, 1, Chunk, false)),
        (FULL, facts(2, 2, Promoted, false)),
        (FULL, facts(2, 3, Endpoint, false)),
    ];
    assert_eq!(order(TierKind::Host, &entries), [2, 3, 1, 0]);
}

#[test]
fn the_order_holds_however_blocks_enter_and_leave_it() {
    const BLOCKS: u32 = 64;
    for kind in [TierKind::Device, TierKind::Host] {
        for group in [full(4, 1), state(4, 1)] {
            let geometry = Geometry::new(&group, 4);
            let mut tier = Tier::new(kind, BLOCKS as usize, &[geometry]);
            let mut pages = PrefixPages::default();
            let hashes = ContentHash::pages_of(&tokens(1, 4 * BLOCKS as i32), 4);
            for (slot, hash) in (0..BLOCKS).zip(hashes) {
                let key = BlockKey { page: pages.intern(hash), ordinal: 0 };
                let block = tier.acquire(0).expect("the tier is large");
                let kind = if slot % 3 == 0 { Endpoint } else { Chunk };
                let epoch = u64::from(slot % 5) + 1;
                tier.publish(&mut pages, 0, block, key, facts(epoch, slot, kind, slot % 7 == 0));
            }
            // All of them in an order of no meaning, then some out, and back in another.
            let shuffled = |step: u32| (0..BLOCKS).map(move |at| at * step % BLOCKS + 1);
            shuffled(29).for_each(|block| tier.release(0, block));
            for round in 0..4 {
                let mut ranked: Vec<_> =
                    tier.block_ids(0).map(|block| (tier.rank(0, block), block)).collect();
                ranked.sort_unstable();
                assert!(tier.in_order(0).eq(ranked.iter().copied()), "{kind:?}, round {round}");
                tier.settle_order();
                assert!(tier.in_order(0).eq(ranked), "{kind:?}, round {round}, settled");
                assert_eq!(tier.evictable_blocks(0), BLOCKS as usize);
                let some = || shuffled(37).skip(round * 8).take(20);
                some().for_each(|block| tier.retain(0, block));
                assert_eq!(tier.in_order(0).count(), BLOCKS as usize - 20);
                some().for_each(|block| tier.release(0, block));
            }
        }
    }
}
