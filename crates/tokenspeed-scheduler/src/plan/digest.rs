//! A plan as one number, for mirrored schedulers to compare (`liveness.md` 5; scenario 31).

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::output::{AbortNotice, Batch, ChangedCell, CopyOp, ExecutionPlan};
use crate::identity::ContentHash;
use crate::request::Handle;

impl ExecutionPlan {
    /// XXH3 (64 bits, seeded with `previous`) over everything that an executor acts upon: the same for
    /// the same plan in every process, on every machine. Give 0, or the digest of the plan before, so
    /// that one number stands for all plans so far.
    ///
    /// Instead of the batch's own block tables it covers the cells that the round changed: schedulers
    /// whose digests have agreed from the first round on have the same tables, at a cost that follows
    /// the change and not the context, whether or not an engine reads the persistent tables.
    ///
    /// The bytes are the fields in the order in which they are declared; integers are little-endian,
    /// truth is a byte, a reason its name; a list or a text follows its length (8 bytes), an absent batch
    /// is the length 0. Left out are the block tables and the sentence of an abort.
    pub fn digest(&self, previous: u64) -> u64 {
        let mut bytes = Bytes::default();
        bytes.plan(self);
        xxh3_64_with_seed(&bytes.0, previous)
    }
}

/// What the digest covers. Each field is named, so that a new one does not compile until it is here.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn plan(&mut self, plan: &ExecutionPlan) {
        let ExecutionPlan {
            batch,
            write_back,
            load_back,
            remote_prefill,
            remote_decode,
            pages_to_zero,
            changed_cells,
            retracted,
            aborts,
        } = plan;
        self.batch(batch);
        self.copies(write_back);
        self.copies(load_back);
        self.each(remote_prefill.as_slice(), Bytes::batch);
        self.each(remote_decode.as_slice(), Bytes::batch);
        self.each(pages_to_zero, |bytes, pages| bytes.integers(pages));
        self.each(changed_cells, |bytes, cells| bytes.each(cells, Bytes::cell));
        self.each(retracted, |bytes, handle| bytes.handle(handle));
        self.each(aborts, Bytes::abort);
    }

    fn batch(&mut self, batch: &Batch) {
        let Batch {
            request_ids,
            handles,
            request_pool_indices,
            input_lengths,
            prefill_lengths,
            num_extends,
            input_ids,
            shifted_input_ids,
            extend_prefix_lens,
            extend_replay_lens,
            device_hit_tokens,
            host_hit_tokens,
            decode_input_ids,
            spec_candidate_ids: _, // read decode by decode
            block_tables: _,
        } = batch;
        self.each(request_ids, |bytes, id| bytes.text(id));
        self.each(handles, Bytes::handle);
        self.integers(request_pool_indices);
        self.integers(input_lengths);
        self.integers(prefill_lengths);
        self.length(*num_extends);
        self.integers(input_ids);
        self.integers(shifted_input_ids);
        self.integers(extend_prefix_lens);
        self.integers(extend_replay_lens);
        self.integers(device_hit_tokens);
        self.integers(host_hit_tokens);
        self.integers(decode_input_ids);
        self.length(decode_input_ids.len());
        (0..decode_input_ids.len()).for_each(|decode| self.integers(batch.candidates(decode)));
    }

    fn copies(&mut self, copies: &CopyOp) {
        let CopyOp {
            op_ids,
            group_ids,
            src_pages,
            dst_pages,
            content_hashes,
            page_offsets,
            source_pinned,
            prefetch_from_storage,
        } = copies;
        self.each(op_ids, |bytes, op| bytes.0.extend(op.to_le_bytes()));
        for lists in [group_ids, src_pages, dst_pages] {
            self.each(lists, |bytes, list| bytes.integers(list));
        }
        self.each(content_hashes, |bytes, hashes| bytes.each(hashes, Bytes::hash));
        self.each(page_offsets, |bytes, offsets| bytes.integers(offsets));
        self.each(source_pinned, |bytes, &pinned| bytes.0.push(pinned.into()));
        self.each(prefetch_from_storage, |bytes, flags| bytes.integers(flags));
    }

    fn abort(&mut self, AbortNotice { request_id, reason, text: _ }: &AbortNotice) {
        self.text(request_id);
        self.text(reason.name());
    }

    fn cell(&mut self, &ChangedCell { row, slot, block }: &ChangedCell) {
        for part in [row, slot, block] {
            self.0.extend(part.to_le_bytes());
        }
    }

    fn hash(&mut self, hash: &ContentHash) {
        self.0.extend(hash.0);
    }

    fn handle(&mut self, handle: &Handle) {
        self.0.extend(handle.0.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.length(text.len());
        self.0.extend(text.as_bytes());
    }

    fn integers(&mut self, integers: &[i32]) {
        self.length(integers.len());
        let from = self.0.len();
        self.0.resize(from + 4 * integers.len(), 0);
        for (slot, integer) in self.0[from..].chunks_exact_mut(4).zip(integers) {
            slot.copy_from_slice(&integer.to_le_bytes());
        }
    }

    fn each<T>(&mut self, list: &[T], write: impl Fn(&mut Bytes, &T)) {
        self.length(list.len());
        for item in list {
            write(self, item);
        }
    }

    fn length(&mut self, length: usize) {
        self.0.extend((length as u64).to_le_bytes());
    }
}
