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
