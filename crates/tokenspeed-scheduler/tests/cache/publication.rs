//! Publication and retention (`cache.md` §6).

use tokenspeed_scheduler::cache::Demand;

use crate::bench::{Bench, full, sliding, tokens};

/// Seen in the published wheel: a group is published and expired before the next one is published, so
/// in that order the blocks come back to the queue.
#[test]
fn blocks_come_back_group_by_group() {
    let mut bench = Bench::new(4, &[sliding(4, 1, 5), full(4, 1)], 12, 0);
    let mut first = bench.guest(&tokens(1, 9));
    bench.admit(&mut first).expect("room");
    let mut second = bench.guest(&tokens(1, 9));
    bench.admit(&mut second).expect("room");
    assert_eq!((second.table(0), second.table(1)), (&[7, 8, 9][..], &[10, 11, 12][..]));
    bench.publish(&mut first);
    bench.publish(&mut second);
    assert_eq!((second.table(0), second.table(1)), (&[0, 2, 9][..], &[4, 5, 12][..]));
    let mut next = bench.guest(&tokens(2, 20));
    let nothing = Demand::Dense { tokens: 0, reserve: 0 };
    bench
        .admit_with(&mut next, &[nothing, Demand::Dense { tokens: 20, reserve: 0 }])
        .expect("five");
    // What the first let go; then of the second, in the sliding group what converged and what
    // expired, and in the full group what converged.
    assert_eq!(next.table(1), [1, 8, 7, 10, 11]);
}
