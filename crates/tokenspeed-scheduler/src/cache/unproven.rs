//! What rests on bytes that are still to come. A load's destinations are indexed when it is ordered
//! (`cache.md` §8), and a plan made ahead publishes what the forward before it is to compute; others hit
//! both before the word comes. Should it be bad, all that was named over it holds nothing
//! (`liveness.md` 3).

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use super::admission::FirstAdmission;
use super::coordinator::Coordinator;
use super::geometry::{GroupIndex, HOLE};
use super::holdings::Holdings;
use super::tier::BlockKey;
use super::transfer::OpId;

/// What has to come about for a block to hold what its key says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Basis {
    /// A load lands.
    Load(OpId),
    /// The forward of a round is run.
    Forward(u64),
}

/// What a tier names of a group.
pub(super) type NamedBlock = (GroupIndex, BlockKey);

/// By basis that is not proven yet, what rests on it.
#[derive(Debug, Default)]
pub struct Unproven(BTreeMap<Basis, Resting>);

#[derive(Debug, Default)]
struct Resting {
    /// What is named over it: a load's own destinations, and what was computed over it and published. Each
    /// has a hold on its page's name.
    named: FxHashSet<NamedBlock>,
    /// A forward's prompts that still wait for its result: each could say what became of it.
    witnesses: u32,
}

impl Unproven {
    /// Whether the word has not come.
    pub fn has(&self, basis: Basis) -> bool {
        self.0.contains_key(&basis)
    }

    /// What the block rests on.
    pub(super) fn bases_of(&self, block: NamedBlock) -> impl Iterator<Item = Basis> + '_ {
        let rests = move |resting: &Resting| resting.named.contains(&block);
        self.0.iter().filter(move |(_, resting)| rests(resting)).map(|(&basis, _)| basis)
    }

    /// Each basis, with all that is named over it and with its witnesses.
    pub(super) fn all(&self) -> impl Iterator<Item = (Basis, &FxHashSet<NamedBlock>, u32)> + '_ {
        self.0.iter().map(|(&basis, resting)| (basis, &resting.named, resting.witnesses))
    }
}

impl Coordinator {
    /// A load has been ordered, into these destinations among others, which the index names.
    pub(super) fn expect_load(&mut self, load: OpId, named: Vec<NamedBlock>) -> Basis {
        let basis = Basis::Load(load);
        self.unproven.0.insert(basis, Resting::default());
        named.into_iter().for_each(|block| self.name_over(basis, block));
        basis
    }

    /// A prompt has a part in the forward of a round. What it computes may be published before its result:
    /// by a plan made ahead, or where its client finishes it.
    pub fn expect_forward(&mut self, round: u64) -> Basis {
        let basis = Basis::Forward(round);
        self.unproven.0.entry(basis).or_default().witnesses += 1;
        basis
    }

    /// A request leaves the forwards whose results it has not seen. With the last of its prompts nobody
    /// could say any more that one was withheld (an engine says so before it aborts): it counts as run.
    /// Until then what the request holds rests on it as before.
    pub fn leave_forwards(&mut self, holdings: &mut Holdings) {
        for forward in holdings.forwards.drain(..) {
            let Some(resting) = self.unproven.0.get_mut(&forward) else { continue };
            resting.witnesses -= 1;
            match resting.witnesses {
                0 => self.prove(forward),
                _ => holdings.rests_on.push(forward),
            }
        }
    }

    /// What a hit rests on.
    pub(super) fn bases_of_hit(&self, first: FirstAdmission<'_>) -> Vec<Basis> {
        let mut bases = Vec::new();
        if self.unproven.0.is_empty() {
            return bases;
        }
        for (group, span) in first.hit.groups.iter().enumerate() {
            let per_page = self.geometries[group].blocks_per_page;
            for slot in span.device.clone().chain(span.host.clone()) {
                let key = BlockKey::of(first.pages, slot, per_page);
                bases.extend(self.unproven.bases_of((group, key)));
            }
        }
        bases.sort_unstable();
        bases.dedup();
        bases
    }

    /// A request publishes a block that the Device did not name. Of what it rests on only that is kept
    /// which is not proven. A name that was given over a basis before, and lost, counts as given over it
    /// again: the Host may have a copy.
    pub(super) fn publish_over(&mut self, holdings: &mut Holdings, block: NamedBlock) {
        if self.unproven.0.is_empty() {
            return holdings.rests_on.clear();
        }
        self.rest_on(holdings, block);
        holdings.rests_on.retain(|&basis| self.unproven.has(basis));
        for &basis in holdings.rests_on.iter().chain(&holdings.forwards) {
            self.name_over(basis, block);
        }
    }

    /// A request goes on over a block that somebody else has published.
    pub(super) fn rest_on(&self, holdings: &mut Holdings, block: NamedBlock) {
        let bases = self.unproven.bases_of(block);
        let more: Vec<Basis> = bases.filter(|basis| !holdings.rests_on.contains(basis)).collect();
        holdings.rests_on.extend(more);
    }

    fn name_over(&mut self, basis: Basis, block: NamedBlock) {
        if let Some(resting) = self.unproven.0.get_mut(&basis)
            && resting.named.insert(block)
        {
            self.pages.retain(block.1.page);
        }
    }

    /// The bytes are there: what rests on them holds what its key says, as far as they go. A forward is
    /// proven by the first of its results.
    pub fn prove(&mut self, basis: Basis) {
        if let Some(resting) = self.unproven.0.remove(&basis) {
            resting.named.iter().for_each(|(_, key)| self.pages.release(key.page));
        }
    }

    /// The bytes will not come: all that was named over them leaves both indices, the external store as far
    /// as a load would look there, and the copies on their way. A forward may be said to be withheld prompt
    /// by prompt: for those that are left it stays unproven.
    pub fn disprove(&mut self, basis: Basis) {
        let Some(resting) = self.unproven.0.get_mut(&basis) else {
            return;
        };
        let named = std::mem::take(&mut resting.named);
        if resting.witnesses == 0 {
            self.unproven.0.remove(&basis);
        }
        self.transfers.disown_where(|copy| named.contains(&(copy.group, copy.key)));
        // In an order that ranks share: what is given up first is granted first.
        let mut named: Vec<NamedBlock> = named.into_iter().collect();
        let place = |&(group, key): &NamedBlock| (group, *self.pages.hash(key.page), key.ordinal);
        named.sort_by_cached_key(place);
        for &(group, key) in &named {
            self.stored.remove(&(group, *self.pages.hash(key.page), key.ordinal));
            let ordinal = usize::from(key.ordinal);
            let block = self.device.lookup(group, key.page, ordinal);
            if block != HOLE {
                self.evict_from_device(group, block);
            }
            if let Some(host) = &mut self.host {
                let block = host.lookup(group, key.page, ordinal);
                if block != HOLE {
                    host.evict(&mut self.pages, group, block);
                }
            }
        }
        named.iter().for_each(|(_, key)| self.pages.release(key.page));
    }
}
