//! Copies in flight between the tiers, and the plan's orders for them (`cache.md` §8;
//! `scheduler.md` §2).

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use super::geometry::{BlockId, GroupIndex};
use super::tier::{BlockKey, EntryFacts};
use crate::identity::{ContentHash, PageId};

/// Number of a copy; counted up from 0 over both directions.
pub type OpId = u64;

/// What keeps a store's Device sources from being overwritten before it has read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreGuard {
    /// They stay owned until the acknowledgement.
    PinnedUntilAck,
    /// The runtime orders the copy before anything else that the plan does to them: a retraction's
    /// store, and that of a request which the plan ends.
    StreamOrdered,
}

/// Orders to copy blocks, as parallel lists: outer one an operation, inner one a block.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct CopyOp {
    /// One an operation; an acknowledgement names it.
    pub op_ids: Vec<OpId>,
    /// One a block: index of its group.
    pub group_ids: Vec<Vec<i32>>,
    /// One a block: Device ids on a write-back, Host ids on a load-back.
    pub src_pages: Vec<Vec<i32>>,
    /// One a block: Host ids on a write-back, Device ids on a load-back.
    pub dst_pages: Vec<Vec<i32>>,
    /// One a block: content hash of the prefix page that it belongs to.
    pub content_hashes: Vec<Vec<ContentHash>>,
    /// One a block: its ordinal in that page.
    pub page_offsets: Vec<Vec<i32>>,
    /// One an operation, write-backs only: true where the sources stay pinned until the
    /// acknowledgement, false where the copy is stream-ordered (`scheduler.md` §2).
    pub source_pinned: Vec<bool>,
    /// One a block, load-backs only: 1 where the block must first be fetched from L3.
    pub prefetch_from_storage: Vec<Vec<i32>>,
}

impl CopyOp {
    /// Whether there is nothing to copy.
    pub fn is_empty(&self) -> bool {
        self.op_ids.is_empty()
    }

    /// Blocks to copy.
    pub fn num_blocks(&self) -> usize {
        self.src_pages.iter().map(Vec::len).sum()
    }

    pub(super) fn start(&mut self, op_id: OpId) {
        self.op_ids.push(op_id);
        for lists in
            [&mut self.group_ids, &mut self.src_pages, &mut self.dst_pages, &mut self.page_offsets]
        {
            lists.push(Vec::new());
        }
        self.content_hashes.push(Vec::new());
    }

    pub(super) fn add(
        &mut self,
        group: GroupIndex,
        src: BlockId,
        dst: BlockId,
        hash: ContentHash,
        ordinal: u16,
    ) {
        fn push<T>(lists: &mut [Vec<T>], value: T) {
            lists.last_mut().expect("an operation was started").push(value);
        }
        push(&mut self.group_ids, group as i32);
        push(&mut self.src_pages, src as i32);
        push(&mut self.dst_pages, dst as i32);
        push(&mut self.page_offsets, i32::from(ordinal));
        push(&mut self.content_hashes, hash);
    }
}

/// One block's copy.
#[derive(Debug, Clone, Copy)]
pub struct BlockCopy {
    /// Group of both ends.
    pub group: GroupIndex,
    /// Its Device end.
    pub device: BlockId,
    /// Its Host end, pinned until the acknowledgement.
    pub host: BlockId,
    /// What it is.
    pub key: BlockKey,
    /// What the index at its destination is to remember of it; a load's Device end remembers less.
    pub facts: EntryFacts,
    /// A load's: whether the Host's end must first be fetched from the external store. Until that has
    /// succeeded neither index names either end.
    pub fetched: bool,
    /// Whether what it brings is not to be named: its source turned out not to hold what its key says, or
    /// was cleared since. Of a load, fetched blocks alone.
    pub disowned: bool,
}

impl BlockCopy {
    /// A copy between the two ends; nothing has to be fetched for it.
    pub(super) fn new(
        group: GroupIndex,
        device: BlockId,
        host: BlockId,
        key: BlockKey,
        facts: EntryFacts,
    ) -> BlockCopy {
        BlockCopy { group, device, host, key, facts, fetched: false, disowned: false }
    }
}

/// A copy that was ordered and not yet acknowledged.
#[derive(Debug)]
pub enum Transfer {
    /// Device to Host.
    Store {
        /// How the sources are guarded.
        guard: StoreGuard,
        /// The blocks.
        blocks: Vec<BlockCopy>,
    },
    /// Host to Device: both ends are pinned.
    Load {
        /// The blocks.
        blocks: Vec<BlockCopy>,
        /// The hit's pages, named, and its tokens, where any block is fetched: what its index entry
        /// will be about.
        chain: Vec<PageId>,
        /// See `chain`.
        tokens: Vec<i32>,
    },
}

/// All copies in flight, the stores that wait for their plan, and the orders of the plan in the making.
#[derive(Debug, Default)]
pub struct Transfers {
    next_op: OpId,
    in_flight: BTreeMap<OpId, Transfer>,
    /// Keys on their way to the Host.
    storing: FxHashSet<(GroupIndex, BlockKey)>,
    /// Those of `storing` whose store turned out not to bring what they say.
    void_stores: FxHashSet<(GroupIndex, BlockKey)>,
    /// Published blocks that the plan in the making is to store, in order of publication.
    pub(super) pending: Vec<(GroupIndex, BlockKey)>,
    pinned_stores: usize,
    loads: usize,
    /// Stores that the next plan carries, in the order of their numbers.
    pub(super) ordered_stores: Vec<OpId>,
    /// Loads that the next plan carries.
    pub(super) load_back: CopyOp,
}

impl Transfers {
    /// Registers an ordered copy and numbers it.
    pub(super) fn start(&mut self, transfer: Transfer) -> OpId {
        let op_id = self.next_op;
        self.next_op += 1;
        self.insert(op_id, transfer);
        op_id
    }

    pub(super) fn insert(&mut self, op_id: OpId, transfer: Transfer) {
        match &transfer {
            Transfer::Store { guard, blocks } => {
                self.pinned_stores += usize::from(*guard == StoreGuard::PinnedUntilAck);
                self.storing.extend(blocks.iter().map(|copy| (copy.group, copy.key)));
            }
            Transfer::Load { .. } => self.loads += 1,
        }
        self.in_flight.insert(op_id, transfer);
    }

    /// Takes an acknowledged copy out; `None` for a number that is not in flight.
    pub(super) fn complete(&mut self, op_id: OpId) -> Option<Transfer> {
        let transfer = self.in_flight.remove(&op_id)?;
        match &transfer {
            Transfer::Store { guard, blocks } => {
                self.pinned_stores -= usize::from(*guard == StoreGuard::PinnedUntilAck);
                for copy in blocks {
                    self.storing.remove(&(copy.group, copy.key));
                    self.void_stores.remove(&(copy.group, copy.key));
                }
            }
            Transfer::Load { .. } => self.loads -= 1,
        }
        Some(transfer)
    }

    /// Whether a store on its way brings what this key does not name.
    pub(super) fn is_storing_void(&self, group: GroupIndex, key: BlockKey) -> bool {
        self.void_stores.contains(&(group, key))
    }

    /// What a copy in flight brings of these blocks is not to be named.
    pub(super) fn disown_where(&mut self, void: impl Fn(&BlockCopy) -> bool) {
        for transfer in self.in_flight.values_mut() {
            let is_store = matches!(transfer, Transfer::Store { .. });
            let (Transfer::Store { blocks, .. } | Transfer::Load { blocks, .. }) = transfer;
            for copy in blocks.iter_mut().filter(|copy| void(copy)) {
                copy.disowned = true;
                if is_store {
                    self.void_stores.insert((copy.group, copy.key));
                }
            }
        }
    }

    /// The copy of that number, if it is in flight and known to an engine: not a store that waits for its plan.
    pub fn get(&self, op_id: OpId) -> Option<&Transfer> {
        // Numbers rise, so whatever is below the first that waits has been carried.
        let is_carried = self.ordered_stores.first().is_none_or(|&first| op_id < first);
        self.in_flight.get(&op_id).filter(|_| is_carried)
    }

    /// Whether the key is on its way to the Host.
    pub(super) fn is_storing(&self, group: GroupIndex, key: BlockKey) -> bool {
        self.storing.contains(&(group, key))
    }

    /// Pinned stores in flight: the acknowledgement returns capacity by itself (`scheduler.md` §2).
    pub fn pinned_stores_in_flight(&self) -> usize {
        self.pinned_stores
    }

    /// Load-backs in flight.
    pub fn loads_in_flight(&self) -> usize {
        self.loads
    }

    /// Whether no copy owns a Device block: no load, no pinned store. Their acknowledgements alone
    /// return capacity.
    pub fn owe_nothing(&self) -> bool {
        self.loads == 0 && self.pinned_stores == 0
    }

    /// Every copy in flight.
    pub fn in_flight(&self) -> impl Iterator<Item = (OpId, &Transfer)> + '_ {
        self.in_flight.iter().map(|(&op_id, transfer)| (op_id, transfer))
    }
}
