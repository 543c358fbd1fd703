//! A simulated device. A cell holds the hash of all tokens up to the one whose row it is, so that a
//! block which was given away, zeroed or never written reads as something else than what it should.
//! Copies move as late as their guard allows: a pinned store reads its source when it is acknowledged,
//! a stream-ordered one ahead of everything else that the plan does (`runtime.md`). A load that will fail
//! brings rot, a withheld forward leaves rot, and whoever reads rot writes rot; once it has been told
//! nobody may read any.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use tokenspeed_scheduler::config::GroupKind;
use tokenspeed_scheduler::{CacheGroupConfig, Event, ExecutionPlan};

use crate::world::mix;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Tier {
    Device,
    Host,
}

/// Tier, group, block.
type Place = (Tier, usize, i32);

#[derive(Debug)]
struct Copy {
    from: Place,
    to: Place,
    /// What the source held when the copy was ordered.
    bytes: Vec<u64>,
}

#[derive(Debug)]
struct InFlight {
    is_load: bool,
    pinned: bool,
    copies: Vec<Copy>,
}

/// Both tiers' memory and the copies between them.
#[derive(Debug)]
pub struct Device {
    groups: Vec<CacheGroupConfig>,
    memory: HashMap<Place, Vec<u64>>,
    in_flight: BTreeMap<u64, InFlight>,
    /// A fault: stream-ordered stores read their source late as well.
    pub unfenced: bool,
    /// A fault: of so many loads one fails; 0 where none does.
    pub one_load_fails_of: u64,
    /// Forwards that were withheld, and nobody has been told yet.
    pub withheld: usize,
}

/// One request's part of a forward.
#[derive(Debug)]
pub struct Forward<'a> {
    /// Whose, for reports.
    pub id: &'a str,
    /// Prefix hash of each token up to the last one computed.
    pub hashes: &'a [u64],
    /// Tokens computed and kept.
    pub computed: Range<usize>,
    /// End of the rows written, the rejected ones of a verify window included.
    pub written_end: usize,
    /// One table row a group.
    pub tables: Vec<&'a [i32]>,
    /// P, in tokens, of a prefill; a decode step materializes no checkpoint.
    pub checkpoint_page: Option<usize>,
    /// It is not run, and what it should have written is rot.
    pub withheld: bool,
}

impl Device {
    pub fn new(groups: &[CacheGroupConfig]) -> Device {
        let (memory, in_flight) = (HashMap::new(), BTreeMap::new());
        Device {
            groups: groups.to_vec(),
            memory,
            in_flight,
            unfenced: false,
            one_load_fails_of: 0,
            withheld: 0,
        }
    }

    /// Carries out everything of a plan that comes before its forward: copies out, zeroing, copies in.
    pub fn before_forward(&mut self, plan: &ExecutionPlan) {
        let write_back = &plan.write_back;
        for (at, &op_id) in write_back.op_ids.iter().enumerate() {
            let pinned = write_back.source_pinned[at];
            let mut copies = Vec::new();
            for (i, &group) in write_back.group_ids[at].iter().enumerate() {
                let from = (Tier::Device, group as usize, write_back.src_pages[at][i]);
                let to = (Tier::Host, group as usize, write_back.dst_pages[at][i]);
                let bytes = self.read(from).expect("a store reads what was written");
                self.overwrite(to, if pinned { Vec::new() } else { bytes.clone() });
                copies.push(Copy { from, to, bytes });
            }
            self.in_flight.insert(op_id, InFlight { is_load: false, pinned, copies });
        }
        for (group, pages) in plan.pages_to_zero.iter().enumerate() {
            for &page in pages {
                let cells = self.cells(group);
                self.overwrite((Tier::Device, group, page), vec![0; cells]);
            }
        }
        let load_back = &plan.load_back;
        for (at, &op_id) in load_back.op_ids.iter().enumerate() {
            let mut copies = Vec::new();
            for (i, &group) in load_back.group_ids[at].iter().enumerate() {
                let from = (Tier::Host, group as usize, load_back.src_pages[at][i]);
                let to = (Tier::Device, group as usize, load_back.dst_pages[at][i]);
                let bytes = self.read(from).expect("a load reads what a store has brought");
                let brought = if self.fails(op_id) { rotten(&bytes) } else { bytes.clone() };
                self.overwrite(to, brought);
                copies.push(Copy { from, to, bytes });
            }
            self.in_flight.insert(op_id, InFlight { is_load: true, pinned: true, copies });
        }
    }

    /// The copy ends here; the event that says so.
    pub fn acknowledge(&mut self, op_id: u64) -> Event {
        let ended = self.in_flight.remove(&op_id).expect("an operation ends once");
        for copy in &ended.copies {
            if ended.pinned {
                let now = self.read(copy.from).expect("a source is there until the copy has ended");
                assert_eq!(now, copy.bytes, "op {op_id}: {:?} changed under a copy", copy.from);
            }
            if !ended.is_load {
                let late = self.read(copy.from).unwrap_or_default();
                let bytes = if self.unfenced { late } else { copy.bytes.clone() };
                self.memory.insert(copy.to, bytes);
            }
        }
        match ended.is_load {
            true => Event::LoadBackDone { op_id, success: !self.fails(op_id) },
            false => Event::WriteBackDone { op_id },
        }
    }

    fn fails(&self, op_id: u64) -> bool {
        self.one_load_fails_of > 0 && mix(op_id, 5).is_multiple_of(self.one_load_fails_of)
    }

    /// Whether something that did not come has not been told: then rot may be read.
    fn may_rot(&self) -> bool {
        let mut loads = self.in_flight.iter();
        self.withheld > 0 || loads.any(|(&op_id, flight)| flight.is_load && self.fails(op_id))
    }

    /// Copies not yet acknowledged.
    pub fn copies_in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Runs one request's forward: it reads what its positions attend to, then writes its rows.
    pub fn forward(&mut self, f: &Forward<'_>) {
        let groups = 0..self.groups.len();
        let rots = groups.clone().filter(|&group| self.reads_rot(f, group)).count() > 0;
        let rots = rots || f.withheld;
        let hashes = if rots { rotten(f.hashes) } else { f.hashes.to_vec() };
        for group in groups {
            match self.groups[group].kind() {
                GroupKind::State => self.write_state(f, group, &hashes),
                _ => self.write_rows(f, group, &hashes),
            }
        }
    }

    /// Reads what the forward's positions attend to in a group: the rows behind them, or the state block
    /// that holds the state behind the last of them. Whether any of it is rotten; nothing else may be
    /// wrong with it.
    fn reads_rot(&self, f: &Forward<'_>, group: usize) -> bool {
        let Range { start, .. } = f.computed;
        let mut at = match self.groups[group].kind() {
            GroupKind::State => {
                let g = self.groups[group].block_granularity as usize;
                let read = start.checked_sub(1);
                let found = read.map(|at| self.read(self.slot(f, group, at / g)));
                return found.is_some_and(|found| {
                    self.is_rotten(f, group, start - 1..start, found.as_deref())
                });
            }
            GroupKind::Full => 0,
            GroupKind::Sliding { window } => start.saturating_sub(window as usize - 1),
        };
        let g = self.cells(group);
        let mut rots = false;
        while at < start {
            let end = ((at / g + 1) * g).min(start);
            let cells = self.memory.get(&self.slot(f, group, at / g));
            let found = cells.and_then(|cells| cells.get(at % g..at % g + end - at));
            rots |= self.is_rotten(f, group, at..end, found);
            at = end;
        }
        rots
    }

    fn is_rotten(
        &self,
        f: &Forward<'_>,
        group: usize,
        read: Range<usize>,
        found: Option<&[u64]>,
    ) -> bool {
        let expected = &f.hashes[read.clone()];
        let is_rot = |(found, expected): (&u64, &u64)| found == expected || *found == !expected;
        if self.may_rot() && found.is_some_and(|f| f.iter().zip(expected).all(is_rot)) {
            return found != Some(expected);
        }
        assert_eq!(found, Some(expected), "'{}' reads {read:?} of group {group}", f.id);
        false
    }

    fn write_rows(&mut self, f: &Forward<'_>, group: usize, hashes: &[u64]) {
        let g = self.cells(group);
        for at in f.computed.start..f.written_end {
            let kept = hashes.get(at).filter(|_| at < f.computed.end);
            let hash = kept.copied().unwrap_or(1);
            let place = self.slot(f, group, at / g);
            self.memory.get_mut(&place).expect("a granted block was zeroed")[at % g] = hash;
        }
    }

    /// The forward leaves the state at its end, and the one at the last page boundary that it passes
    /// (`scheduler.md` §1.2).
    fn write_state(&mut self, f: &Forward<'_>, group: usize, hashes: &[u64]) {
        let g = self.groups[group].block_granularity as usize;
        let Range { start, end } = f.computed;
        let boundary = f.checkpoint_page.map_or(end, |page| end / page * page);
        for at in [boundary, end].into_iter().filter(|&at| at > start) {
            self.memory.insert(self.slot(f, group, (at - 1) / g), vec![hashes[at - 1]]);
        }
    }

    fn slot(&self, f: &Forward<'_>, group: usize, slot: usize) -> Place {
        let block = f.tables[group].get(slot).copied().unwrap_or(-1);
        assert!(block > 0, "'{}' has no block in slot {slot} of group {group}", f.id);
        (Tier::Device, group, block)
    }

    fn cells(&self, group: usize) -> usize {
        match self.groups[group].kind() {
            GroupKind::State => 1,
            _ => self.groups[group].block_granularity as usize,
        }
    }

    fn read(&self, place: Place) -> Option<Vec<u64>> {
        self.memory.get(&place).filter(|cells| !cells.is_empty()).cloned()
    }

    /// Gives a place new content. What other groups kept in the same LCM block is gone with it, and
    /// nothing in flight may still need any of it.
    fn overwrite(&mut self, place: Place, cells: Vec<u64>) {
        let (tier, group, _) = place;
        let parent = self.parent(place);
        let clash = |other: Place| {
            other == place || other.0 == tier && other.1 != group && self.parent(other) == parent
        };
        for (op_id, flight) in &self.in_flight {
            for copy in &flight.copies {
                let source = flight.pinned && clash(copy.from);
                assert!(!source, "op {op_id} still reads {place:?}, which is given away");
                let target = (tier == Tier::Host || flight.is_load) && clash(copy.to);
                assert!(!target, "op {op_id} still writes {place:?}, which is given away");
            }
        }
        let gone: Vec<Place> = self.memory.keys().copied().filter(|&other| clash(other)).collect();
        gone.iter().for_each(|other| {
            self.memory.remove(other);
        });
        self.memory.insert(place, cells);
    }

    fn parent(&self, (_, group, block): Place) -> i64 {
        (i64::from(block) - 1) / self.groups[group].cache_blocks_per_lcm_block
    }
}

fn rotten(hashes: &[u64]) -> Vec<u64> {
    hashes.iter().map(|hash| !hash).collect()
}
