//! A plan's digest: what it covers, and that its value is for good.

use std::sync::Arc;

use tokenspeed_scheduler::identity::ContentHash;
use tokenspeed_scheduler::plan::{
    AbortNotice, AbortReason, Batch, BlockTable, ChangedCell, CopyOp, ExecutionPlan,
};
use tokenspeed_scheduler::request::Handle;

fn copies(op: u64) -> CopyOp {
    CopyOp {
        op_ids: vec![op],
        group_ids: vec![vec![0, 1]],
        src_pages: vec![vec![3, 4]],
        dst_pages: vec![vec![5, 6]],
        content_hashes: vec![vec![ContentHash([7; 32]), ContentHash([8; 32])]],
        page_offsets: vec![vec![0, 1]],
        source_pinned: vec![true],
        prefetch_from_storage: vec![vec![0, 1]],
    }
}

fn batch(id: &str) -> Batch {
    Batch {
        request_ids: Arc::new(vec![id.into(), "b".into()]),
        handles: vec![Handle::new(1, 2), Handle::new(2, 1)],
        request_pool_indices: vec![1, 2],
        input_lengths: vec![2, 1],
        prefill_lengths: vec![2, 9],
        num_extends: 1,
        input_ids: vec![11, 12],
        shifted_input_ids: vec![12, -1],
        extend_prefix_lens: vec![0],
        extend_replay_lens: vec![0],
        device_hit_tokens: vec![0],
        host_hit_tokens: vec![4],
        decode_input_ids: vec![-1],
        spec_candidate_ids: vec![vec![21, 22]],
        block_tables: vec![BlockTable { cells: vec![1, 2].into(), columns: 1 }],
    }
}

fn plan() -> ExecutionPlan {
    ExecutionPlan {
        batch: batch("a"),
        write_back: copies(1),
        load_back: copies(2),
        remote_prefill: Some(batch("c")),
        remote_decode: Some(batch("d")),
        pages_to_zero: vec![vec![1], vec![2, 3]],
        changed_cells: vec![vec![ChangedCell { row: 1, slot: 0, block: 3 }], Vec::new()],
        retracted: vec![Handle::new(4, 1)],
        aborts: vec![AbortNotice {
            request_id: "e".into(),
            reason: AbortReason::OutgrewPool,
            text: "it outgrew the pool".into(),
        }],
    }
}

/// The value is that of XXH3 over the documented bytes, on every platform and from now on: another
/// one makes recordings differ, and takes a new `tokenspeed_recording::FORMAT`.
#[test]
fn the_value_is_for_good() {
    assert_eq!(ExecutionPlan::default().digest(0), 0x53a2_a430_cb2f_1045);
    assert_eq!(plan().digest(0), 0x3687_b451_3073_fcf7);
    assert_eq!(plan().digest(1), 0x77af_5daa_b17b_d74a);
}

#[test]
fn everything_that_an_executor_acts_upon_is_covered() {
    type Change = fn(&mut ExecutionPlan);
    const IN_A_BATCH: [fn(&mut Batch); 14] = [
        |batch| Arc::make_mut(&mut batch.request_ids)[1] = "bb".into(),
        |batch| batch.handles[1] = Handle::new(2, 2),
        |batch| batch.request_pool_indices[1] = 3,
        |batch| batch.input_lengths[0] = 1,
        |batch| batch.prefill_lengths[1] = 8,
        |batch| batch.num_extends = 2,
        |batch| batch.input_ids[0] = 12,
        |batch| batch.shifted_input_ids[1] = 13,
        |batch| batch.extend_prefix_lens[0] = 4,
        |batch| batch.extend_replay_lens[0] = 4,
        |batch| batch.device_hit_tokens[0] = 4,
        |batch| batch.host_hit_tokens[0] = 0,
        |batch| batch.decode_input_ids[0] = 7,
        |batch| batch.spec_candidate_ids[0].swap(0, 1),
    ];
    const IN_A_COPY: [fn(&mut CopyOp); 8] = [
        |copies| copies.op_ids[0] = 9,
        |copies| copies.group_ids[0].swap(0, 1),
        |copies| copies.src_pages[0].swap(0, 1),
        |copies| copies.dst_pages[0].swap(0, 1),
        |copies| copies.content_hashes[0][1].0[31] = 0,
        |copies| copies.page_offsets[0].swap(0, 1),
        |copies| copies.source_pinned[0] = false,
        |copies| copies.prefetch_from_storage[0].swap(0, 1),
    ];
    const IN_A_PLAN: [Change; 10] = [
        |plan| plan.remote_prefill = None,
        |plan| plan.remote_decode = None,
        |plan| plan.pages_to_zero[1].swap(0, 1),
        // The same pages, otherwise spread over the groups.
        |plan| plan.pages_to_zero = vec![vec![1, 2], vec![3]],
        |plan| plan.changed_cells[0][0].row = 2,
        |plan| plan.changed_cells[0][0].slot = 1,
        |plan| plan.changed_cells[0][0].block = 0,
        |plan| plan.retracted[0] = Handle::new(4, 2),
        |plan| plan.aborts[0].request_id = "f".into(),
        |plan| plan.aborts[0].reason = AbortReason::BudgetSpent,
    ];
    let mut digests = vec![plan().digest(0)];
    let mut changed = |change: &dyn Fn(&mut ExecutionPlan)| {
        let mut plan = plan();
        change(&mut plan);
        digests.push(plan.digest(0));
    };
    for change in IN_A_BATCH {
        changed(&|plan| change(&mut plan.batch));
        changed(&|plan| change(plan.remote_prefill.as_mut().expect("there is one")));
        changed(&|plan| change(plan.remote_decode.as_mut().expect("there is one")));
    }
    for change in IN_A_COPY {
        changed(&|plan| change(&mut plan.write_back));
        changed(&|plan| change(&mut plan.load_back));
    }
    for change in IN_A_PLAN {
        changed(&change);
    }
    let all = digests.len();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), all);
}

#[test]
fn block_tables_and_sentences_are_left_out() {
    let mut other = plan();
    other.batch.block_tables.clear();
    other.aborts[0].text = "in other words".into();
    assert_eq!(other.digest(0), plan().digest(0));
}
