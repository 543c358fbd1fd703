//! The Host tier (`cache.md` §8).

use tokenspeed_scheduler::cache::tier::BoundaryKind;
use tokenspeed_scheduler::cache::{Demand, StoreGuard};

use crate::bench::{Bench, full, sliding, state, tokens};

/// Found by the slow model: the copies for slots whose keys the Device has already stay apart until
/// their load has ended; the table shows the blocks that were there (`cache.md` §4).
#[test]
fn a_load_converges_on_what_the_device_has() {
    let mut bench = Bench::new(4, &[full(4, 1), state(4, 1)], 9, 8);
    let mut a = bench.guest(&tokens(1, 9));
    bench.admit(&mut a).expect("room");
    bench.publish(&mut a);
    bench.finish(a);
    assert_eq!((bench.cached(0), bench.cached(1)), (vec![1, 2], vec![4]));
    // One that takes all seven other parents: the state goes before the pages of the full group.
    let mut z = bench.guest(&tokens(2, 25));
    let demands = [
        Demand::Dense { tokens: 25, reserve: 0 },
        Demand::SparseSuffix { extent: 25, first_slot: 7, reserve: 0, promised: 0 },
    ];
    bench.admit_with(&mut z, &demands).expect("room for seven");
    bench.leave(z);
    assert_eq!((bench.cached(0), bench.cached(1)), (vec![1, 2], vec![]));
    let mut b = bench.guest(&tokens(1, 9));
    let hit = bench.admit(&mut b).expect("room");
    assert_eq!((hit.device_pages, hit.total_pages), (0, 2));
    let (_, load) = bench.cache.take_copies();
    assert_eq!(load.group_ids, [[0, 0, 1]]);
    let copies: Vec<u32> = load.dst_pages[0].iter().map(|&block| block as u32).collect();
    assert_eq!(b.table(0)[..2], [1, 2]);
    assert_eq!(b.table(1)[..2], [0, copies[2]]);
    let device = bench.cache.device();
    assert_eq!((device.owners(0, copies[0]), device.owners(0, 1)), (1, 1));
    let facts = device.facts(0, 1);
    assert_eq!((facts.epoch, facts.acquired), (b.holdings.epoch, false), "it was no hit");
    let empty = bench.cache.empty_parents();
    bench.cache.complete_transfer(load.op_ids[0], true);
    assert_eq!(bench.cache.empty_parents(), empty + 2, "the copies are let go");
}

/// Found beside the slow model: the Device's entry of a loaded block is a new one. The Host's was an
/// endpoint; this one is probationary, and goes before the endpoint of its own request.
#[test]
fn a_loaded_block_is_probationary() {
    let mut bench = Bench::new(4, &[sliding(4, 1, 5)], 8, 8);
    let mut a = bench.guest(&tokens(1, 8));
    bench.admit(&mut a).expect("room");
    bench.finish(a);
    assert!(bench.cache.clear_device());
    let mut b = bench.guest(&tokens(1, 12));
    let hit = bench.admit(&mut b).expect("room");
    assert_eq!((hit.device_pages, hit.total_pages), (0, 2));
    let (_, load) = bench.cache.take_copies();
    bench.cache.complete_transfer(load.op_ids[0], true);
    let (loaded, fresh) = (b.table(0)[1], b.table(0)[2]);
    assert_eq!(load.dst_pages, [[loaded as i32]]);
    let facts = bench.cache.device().facts(0, loaded);
    assert_eq!((facts.kind, facts.acquired), (BoundaryKind::Chunk, false));
    bench.finish(b);
    assert_eq!(bench.eviction_order(), [(0, loaded), (0, fresh)]);
}

/// Found by the slow model: blocks of two groups that one admission loaded are of equal value, and
/// the parent of the first group is taken, be it the later parent.
#[test]
fn parents_of_equal_value_go_by_group() {
    let groups = [full(2, 3), sliding(2, 3, 8), state(2, 1)];
    let mut bench = Bench::new(2, &groups, 19, 5);
    let mut a = bench.guest(&tokens(1, 7));
    bench.admit(&mut a).expect("room");
    bench.finish(a);
    let mut b = bench.guest(&tokens(1, 7));
    assert!(bench.cache.clear_device());
    assert_eq!(bench.admit(&mut b).expect("room").total_pages, 3);
    let (_, load) = bench.cache.take_copies();
    assert_eq!(load.src_pages, [[4, 5, 6, 1, 2, 3, 3]], "parents 2 and 1, and 3");
    bench.cache.complete_transfer(load.op_ids[0], true);
    let mut c = bench.guest(&tokens(2, 2));
    bench.admit(&mut c).expect("room");
    bench.publish(&mut c);
    bench.cache.start_pending_stores(StoreGuard::PinnedUntilAck);
    let (store, _) = bench.cache.take_copies();
    assert_eq!(store.dst_pages, [[10, 13, 3]], "the state's own least");
    // That one is gone from the Host, and is stored again: nothing of its group is unpinned now.
    let store = bench.flush(&mut b);
    assert_eq!((&store.group_ids, &store.dst_pages), (&vec![vec![2]], &vec![vec![2]]));
}

#[test]
fn a_store_pins_its_sources_or_is_ordered_by_the_stream() {
    for (guard, owners) in [(StoreGuard::PinnedUntilAck, 1), (StoreGuard::StreamOrdered, 0)] {
        let mut bench = Bench::new(4, &[full(4, 1)], 4, 4);
        let mut a = bench.guest(&tokens(1, 4));
        bench.admit(&mut a).expect("room");
        bench.publish(&mut a);
        bench.cache.start_pending_stores(guard);
        bench.leave(a);
        let pinned = owners == 1;
        assert_eq!(bench.cache.device().owners(0, 1), owners);
        assert_eq!(bench.cache.transfers().pinned_stores_in_flight(), usize::from(pinned));
        assert_eq!(bench.cache.can_clear(), !pinned);
        let (store, _) = bench.cache.take_copies();
        assert_eq!(store.source_pinned, [pinned]);
        assert_eq!((&store.src_pages, &store.dst_pages), (&vec![vec![1]], &vec![vec![1]]));
        let host = |bench: &Bench| bench.cache.host().expect("a Host tier").cached_blocks(0);
        assert_eq!(host(&bench), 0, "the acknowledgement publishes");
        bench.cache.complete_transfer(store.op_ids[0], true);
        bench.cache.complete_transfer(store.op_ids[0], true);
        assert_eq!((host(&bench), bench.cache.can_clear()), (1, true));
    }
}

#[test]
fn a_full_host_gives_up_its_own_groups_least_then_a_parent_of_another() {
    let mut bench = Bench::new(4, &[full(4, 1), sliding(4, 2, 9)], 12, 3);
    let mut a = bench.guest(&tokens(1, 8));
    bench.admit_with(&mut a, &[Demand::Dense { tokens: 8, reserve: 0 }; 2]).expect("room");
    bench.finish(a);
    let host = |bench: &Bench, group| {
        let host = bench.cache.host().expect("a Host tier");
        host.block_ids(group).filter(|&b| host.key(group, b).is_some()).collect::<Vec<u32>>()
    };
    // The newly indexed blocks of the sliding group come first and fill parent 1.
    assert_eq!((host(&bench, 0), host(&bench, 1)), (vec![2, 3], vec![1, 2]));
    // A block more of each: every group gives its oldest.
    let mut b = bench.guest(&tokens(2, 4));
    bench.admit_with(&mut b, &[Demand::Dense { tokens: 4, reserve: 0 }; 2]).expect("room");
    bench.publish(&mut b);
    bench.cache.start_pending_stores(StoreGuard::PinnedUntilAck);
    let (store, _) = bench.cache.take_copies();
    assert_eq!((&store.group_ids[0], &store.dst_pages[0]), (&vec![0, 1], &vec![2, 1]));
    assert_eq!((host(&bench, 0), host(&bench, 1)), (vec![3], vec![2]));
}

/// Seen in the published wheel: whatever the order of the groups, a departing request's snapshots are
/// stored behind its pages.
#[test]
fn a_departure_stores_snapshots_last() {
    let mut bench = Bench::new(4, &[state(4, 1), full(4, 1)], 8, 8);
    let mut a = bench.guest(&tokens(1, 9));
    bench.admit(&mut a).expect("room");
    assert_eq!(bench.flush(&mut a).group_ids, [[1, 1, 0]]);
}
