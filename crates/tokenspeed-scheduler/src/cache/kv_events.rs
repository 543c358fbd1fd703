//! Cache events: what a prompt would find on the Device, told as changes (`api.md`, `KVEvent`).
//!
//! A page is *resident* while some prompt would hit it there: it lies at or below a boundary at which
//! every group could resume (`cache.md` §5). So the parent of a resident page is resident too,
//! whatever the groups are. With full groups alone: the page and all pages before it are cached.
//!
//! ```text
//!   full group      a b c d e    held
//!   sliding group   . . . d .    held, window of one page: a prompt resumes behind d
//!   resident        a b c d
//! ```
//!
//! A block that comes or goes marks its page. A drain looks at the marked pages, and at those whose
//! answer hangs on them, and tells what has flipped since the drain before. Pages are known here
//! while a cached block names them or a page behind them, or until their removal is told: without a
//! drain this grows no further than what is cached.

mod check;

use std::sync::Arc;

use super::geometry::{Geometry, GroupIndex, HOLE};
use super::tier::Tier;
use crate::identity::{PageId, PrefixPages};

/// One change of what is resident. A page is named by [`ContentHash::short`].
///
/// [`ContentHash::short`]: crate::identity::ContentHash::short
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvEvent {
    /// A prompt would now find the page.
    BlockStored {
        /// Names the page, and with it everything before it.
        hash: u64,
        /// Names the page before it, which is resident; `None` for the first of a prompt.
        parent: Option<u64>,
        /// Its P tokens.
        tokens: Arc<[i32]>,
    },
    /// No prompt would find it any more.
    BlockRemoved {
        /// Names the page.
        hash: u64,
    },
}

/// Pages on the way to a cached block, and which of them are resident.
#[derive(Debug)]
pub struct KvEvents {
    /// P, in tokens.
    granularity: usize,
    /// The groups that match left to right.
    closed: Vec<GroupIndex>,
    /// The others that are matched.
    windowed: Vec<Windowed>,
    /// By page; also those of pages that are not known.
    nodes: Vec<Node>,
    /// By page, and in it by `windowed`: blocks behind the page's end without a gap, counted up to
    /// `lookback_blocks`. A run that reaches the start of the prompt counts in full.
    runs: Vec<usize>,
    /// Pages that a block has come to or gone from since the last drain.
    marked: Vec<PageId>,
}

#[derive(Debug)]
struct Windowed {
    group: GroupIndex,
    blocks_per_page: usize,
    lookback_blocks: usize,
}

#[derive(Debug, Clone, Default)]
struct Node {
    known: bool,
    parent: Option<PageId>,
    first_child: Option<PageId>,
    /// The parent's next child, and the one before.
    next: Option<PageId>,
    previous: Option<PageId>,
    /// Pages before it.
    depth: usize,
    tokens: Arc<[i32]>,
    /// Cached Device blocks that name it, of all groups.
    blocks: usize,
    /// Its place in `marked`.
    mark: Option<usize>,
    /// Whether the closed groups hold it and all pages before it.
    covered: bool,
    /// Whether every group could resume at its end, as far as the windowed ones are concerned.
    resumes: bool,
    resident_children: usize,
    /// As of the last drain, and so what the consumer was told.
    resident: bool,
}

impl KvEvents {
    /// Nothing resident, nothing told.
    pub fn new(geometries: &[Geometry], granularity: i64) -> KvEvents {
        let windowed = |(group, geometry): (GroupIndex, &Geometry)| {
            let lookback_blocks = geometry.lookback_blocks.filter(|_| !geometry.replayable)?;
            Some(Windowed { group, blocks_per_page: geometry.blocks_per_page, lookback_blocks })
        };
        let closed = |&group: &GroupIndex| geometries[group].is_prefix_closed();
        KvEvents {
            granularity: granularity as usize,
            closed: (0..geometries.len()).filter(closed).collect(),
            windowed: geometries.iter().enumerate().filter_map(windowed).collect(),
            nodes: Vec::new(),
            runs: Vec::new(),
            marked: Vec::new(),
        }
    }

    /// A Device block of the last page of `chain` is cached; the chain begins with the prompt, and
    /// `tokens` are the chain's, or more.
    pub fn held(&mut self, names: &mut PrefixPages, chain: &[PageId], tokens: &[i32]) {
        let Some(&page) = chain.last() else { return };
        self.know(names, chain, tokens);
        self.nodes[page.index()].blocks += 1;
        self.mark(page);
    }

    /// A Device block of the page is no longer cached.
    pub fn lost(&mut self, names: &mut PrefixPages, page: PageId) {
        self.nodes[page.index()].blocks -= 1;
        self.mark(page);
        self.forget(names, page);
    }

    /// The changes since the last drain: removals leaf first, then stores parent first.
    pub fn drain(&mut self, names: &mut PrefixPages, device: &Tier) -> Vec<KvEvent> {
        let mut marked = std::mem::take(&mut self.marked);
        // From the top, so that what a page hangs on is settled before it is looked at.
        marked.sort_by_key(|page| self.nodes[page.index()].depth);
        let mut flipped = Vec::new();
        let mut open = Vec::new();
        for page in marked {
            self.nodes[page.index()].mark = None;
            open.push(page);
            while let Some(page) = open.pop() {
                if self.look(device, page) {
                    open.extend(self.children(page));
                }
                self.settle(page, &mut flipped);
            }
        }
        flipped.sort_by_key(|page: &PageId| (self.nodes[page.index()].depth, *page));
        let (stored, removed): (Vec<PageId>, Vec<PageId>) = flipped
            .chunk_by(PageId::eq)
            .filter(|flips| flips.len() % 2 == 1) // else it is as it was
            .map(|flips| flips[0])
            .partition(|page| self.nodes[page.index()].resident);
        let mut events = Vec::with_capacity(stored.len() + removed.len());
        events.extend(
            removed
                .iter()
                .rev()
                .map(|&page| KvEvent::BlockRemoved { hash: names.hash(page).short() }),
        );
        removed.into_iter().rev().for_each(|page| self.forget(names, page));
        events.extend(stored.into_iter().map(|page| {
            let node = &self.nodes[page.index()];
            KvEvent::BlockStored {
                hash: names.hash(page).short(),
                parent: node.parent.map(|parent| names.hash(parent).short()),
                tokens: node.tokens.clone(),
            }
        }));
        events
    }

    /// Looks whether the page is covered and could be resumed at; whether that matters to the pages
    /// behind it.
    fn look(&mut self, device: &Tier, page: PageId) -> bool {
        let node = &self.nodes[page.index()];
        let parent = node.parent;
        let covered = parent.is_none_or(|parent| self.nodes[parent.index()].covered)
            && self.closed.iter().all(|&group| device.has_page(group, page));
        let mut changed = covered != node.covered;
        let mut resumes = true;
        for (at, windowed) in self.windowed.iter().enumerate() {
            let Windowed { group, blocks_per_page, lookback_blocks } = *windowed;
            let own = (0..blocks_per_page)
                .rev()
                .take_while(|&ordinal| device.lookup(group, page, ordinal) != HOLE)
                .count();
            let before = || match parent {
                Some(parent) => self.runs[parent.index() * self.windowed.len() + at],
                None => lookback_blocks,
            };
            let run = if own == blocks_per_page { own + before() } else { own };
            let run = run.min(lookback_blocks);
            resumes &= run == lookback_blocks;
            let place = &mut self.runs[page.index() * self.windowed.len() + at];
            changed |= std::mem::replace(place, run) != run;
        }
        let node = &mut self.nodes[page.index()];
        node.covered = covered;
        node.resumes = resumes;
        changed
    }

    /// Carries a changed answer up to the pages before it, which are resident if one behind them is.
    fn settle(&mut self, page: PageId, flipped: &mut Vec<PageId>) {
        let mut next = Some(page);
        while let Some(page) = next {
            let node = &mut self.nodes[page.index()];
            let resident = node.covered && (node.resumes || node.resident_children > 0);
            if resident == node.resident {
                return;
            }
            node.resident = resident;
            flipped.push(page);
            next = node.parent;
            if let Some(parent) = next {
                let children = &mut self.nodes[parent.index()].resident_children;
                *children = if resident { *children + 1 } else { *children - 1 };
            }
        }
    }

    fn mark(&mut self, page: PageId) {
        let node = &mut self.nodes[page.index()];
        if node.mark.is_none() {
            node.mark = Some(self.marked.len());
            self.marked.push(page);
        }
    }

    /// Gets to know the pages of a chain. Those before a known one are known.
    fn know(&mut self, names: &mut PrefixPages, chain: &[PageId], tokens: &[i32]) {
        if self.nodes.len() < names.capacity() {
            self.nodes.resize(names.capacity(), Node::default());
            self.runs.resize(names.capacity() * self.windowed.len(), 0);
        }
        let known = chain.iter().rposition(|page| self.nodes[page.index()].known);
        for depth in known.map_or(0, |at| at + 1)..chain.len() {
            let page = chain[depth];
            names.retain(page);
            let parent = depth.checked_sub(1).map(|before| chain[before]);
            let next = parent.and_then(|p| self.nodes[p.index()].first_child.replace(page));
            if let Some(next) = next {
                self.nodes[next.index()].previous = Some(page);
            }
            let own = &tokens[depth * self.granularity..(depth + 1) * self.granularity];
            self.nodes[page.index()] =
                Node { known: true, parent, next, depth, tokens: own.into(), ..Node::default() };
            let runs = page.index() * self.windowed.len();
            self.runs[runs..runs + self.windowed.len()].fill(0);
            self.mark(page);
        }
    }

    /// Lets a page go that nothing needs any more, and then those before it.
    fn forget(&mut self, names: &mut PrefixPages, page: PageId) {
        let mut at = Some(page);
        while let Some(page) = at {
            let node = &self.nodes[page.index()];
            let needed = node.blocks > 0 || node.resident || node.first_child.is_some();
            if needed || !node.known {
                return;
            }
            let Node { parent, next, previous, mark, .. } = *node;
            match (previous, parent) {
                (Some(previous), _) => self.nodes[previous.index()].next = next,
                (None, Some(parent)) => self.nodes[parent.index()].first_child = next,
                (None, None) => {}
            }
            if let Some(next) = next {
                self.nodes[next.index()].previous = previous;
            }
            if let Some(mark) = mark {
                self.marked.swap_remove(mark);
                if let Some(moved) = self.marked.get(mark) {
                    self.nodes[moved.index()].mark = Some(mark);
                }
            }
            self.nodes[page.index()] = Node::default();
            names.release(page);
            at = parent;
        }
    }

    fn children(&self, page: PageId) -> impl Iterator<Item = PageId> + '_ {
        let first = self.nodes[page.index()].first_child;
        std::iter::successors(first, |child| self.nodes[child.index()].next)
    }
}
