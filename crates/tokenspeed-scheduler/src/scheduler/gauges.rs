//! What one may look at: sizes, capacities, identities.

use rustc_hash::FxHashSet;

use super::Scheduler;
use crate::cache::PersistentTable;
use crate::error::{Error, Result};
use crate::identity::ContentHash;
use crate::request::{Request, RequestKey, State};

/// Results that a request is owed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwedResult {
    /// Whose.
    pub request_id: String,
    /// How many.
    pub results: u32,
    /// The round since which nothing of it has landed.
    pub since_round: u64,
}

impl Scheduler {
    /// Requests that wait for the peer's handshake; none on a fused engine.
    pub fn bootstrapping_size(&self) -> usize {
        self.requests.num_bootstrapping()
    }

    /// Requests that wait for an admission: submitted and retracted.
    pub fn waiting_size(&self) -> usize {
        self.requests.num_waiting()
    }

    /// Requests whose prompt is under way, here or at the peer, or complete without a decode step yet.
    pub fn prefilling_size(&self) -> usize {
        self.requests.num_prefilling() + self.remote_prefilling_size()
    }

    /// Requests whose prompt the peer computes; none but on the decode role.
    pub fn remote_prefilling_size(&self) -> usize {
        self.with_peer_in(State::RemotePrefilling)
    }

    /// Requests that decode, here or at the peer.
    pub fn decoding_size(&self) -> usize {
        self.requests.num_decoding() + self.with_peer_in(State::RemoteDecoding)
    }

    fn with_peer_in(&self, state: State) -> usize {
        self.requests.with_peer().filter(|&key| self.requests[key].state() == state).count()
    }

    /// Requests whose blocks a peer reads or writes, given up ones included; none on a fused engine.
    pub fn pd_transfer_size(&self) -> usize {
        self.requests.residents().filter(|&key| self.is_pinned_by_peer(key)).count()
    }

    /// Whether a peer reads or writes the request's blocks.
    pub fn pd_transfer_pinned(&self, request_id: &str) -> bool {
        self.requests.find(request_id).is_some_and(|key| self.is_pinned_by_peer(key))
    }

    pub(super) fn is_pinned_by_peer(&self, key: RequestKey) -> bool {
        self.rules.is_pinned_by_peer(self.requests[key].state())
    }

    /// Parents in which a request holds a block.
    pub fn active_lcm_blocks(&self) -> usize {
        self.cache.held_parents()
    }

    /// Parents that are empty or hold only what could be evicted.
    pub fn available_lcm_blocks(&self) -> usize {
        self.cache.available_parents()
    }

    /// Parents without a used slot.
    pub fn empty_lcm_blocks(&self) -> usize {
        self.cache.empty_parents()
    }

    /// Blocks of a group, the null block included.
    ///
    /// # Errors
    /// [`Error::UnknownGroup`].
    pub fn cache_group_total_pages(&self, group_id: &str) -> Result<i64> {
        Ok(self.rules.config.cache_groups[self.group_index(group_id)?].total_pages)
    }

    /// Blocks that a group could take without evicting anything.
    ///
    /// # Errors
    /// [`Error::UnknownGroup`].
    pub fn cache_group_available_pages(&self, group_id: &str) -> Result<usize> {
        Ok(self.cache.free_blocks(self.group_index(group_id)?))
    }

    /// Index of a group in the configuration.
    ///
    /// # Errors
    /// [`Error::UnknownGroup`].
    pub fn group_index(&self, group_id: &str) -> Result<usize> {
        let groups = &self.rules.config.cache_groups;
        groups
            .iter()
            .position(|group| group.group_id == group_id)
            .ok_or_else(|| Error::UnknownGroup { group_id: group_id.into() })
    }

    /// A group's persistent block table `[max_batch_size + 1, columns]`, by request-pool row.
    pub fn persistent_table(&self, group: usize) -> &PersistentTable {
        self.cache.persistent_table(group)
    }

    /// Tokens of a request, prompt and output; -1 if there is no such request, or its client gave it up.
    pub fn request_token_size(&self, request_id: &str) -> i64 {
        let live = self.requests.find(request_id).map(|key| &self.requests[key]);
        let live = live.filter(|request| request.state() != State::Draining);
        live.map_or(-1, Request::num_tokens)
    }

    /// The most that a request's prompt and output may add up to (`scheduler.md` §1.4).
    pub fn max_single_request_tokens(&self) -> i64 {
        self.rules.token_limit
    }

    /// The requests that are owed results, oldest debt first.
    pub fn owed_results(&self) -> Vec<OwedResult> {
        let mut owed: Vec<(u64, u64, OwedResult)> = self
            .requests
            .iter()
            .filter(|(_, request)| request.forwards_out > 0)
            .map(|(_, request)| {
                let entry = OwedResult {
                    request_id: request.id.to_string(),
                    results: request.forwards_out,
                    since_round: request.owed_since_round,
                };
                (request.owed_since_round, request.submission, entry)
            })
            .collect();
        owed.sort_unstable_by_key(|&(round, submission, _)| (round, submission));
        owed.into_iter().map(|(_, _, entry)| entry).collect()
    }

    /// Plans made so far.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Whether the Device index could be emptied: nothing else owns what it holds, and no peer is at
    /// work on any block.
    pub fn can_clear_cache(&self) -> bool {
        self.pd_transfer_size() == 0 && self.cache.can_clear()
    }

    /// Empties the Device index; `false`, and nothing changed, where something else owns a part.
    pub fn clear_l1_cache(&mut self) -> bool {
        self.pd_transfer_size() == 0 && self.cache.clear_device()
    }

    /// Empties both indices, or neither.
    pub fn clear_cache(&mut self) -> bool {
        self.pd_transfer_size() == 0 && self.cache.clear_all()
    }

    /// Content hashes, in hex, of the prefix pages that a prompt of these tokens could match: its
    /// complete pages without that of its last token, which is computed anyway (`cache.md` §5).
    pub fn prefix_hashes_for_tokens(&self, tokens: &[i32]) -> Vec<String> {
        let matchable = &tokens[..tokens.len().saturating_sub(1)];
        let hashes = ContentHash::pages_of(matchable, self.rules.granularity as usize);
        hashes.iter().map(ContentHash::to_hex).collect()
    }

    /// Content hashes, in hex, of the prefix pages that the next admissions may match, each once: what
    /// to ask an external store for. That is the next readmission alone, if one waits; otherwise
    /// as many waiting prompts as there are free rows, in submission order, but none while a prompt is under way or
    /// no block is left. The page of a prompt's last token is left out: that token is computed anyway.
    pub fn waiting_prefix_hashes(&self) -> Vec<String> {
        let candidates = match self.requests.readmissions().next() {
            Some(key) => vec![key],
            None => self.admissible_prompts(),
        };
        let mut seen = FxHashSet::default();
        let pages = candidates.into_iter().flat_map(|key| {
            let request = &self.requests[key];
            let bound = (request.prompt_tokens - 1) / self.rules.granularity;
            &request.pages[..bound as usize]
        });
        let fresh = pages.filter(|&&page| seen.insert(page));
        fresh.map(|&page| self.cache.hash_of(page).to_hex()).collect()
    }

    fn admissible_prompts(&self) -> Vec<RequestKey> {
        if self.cache.available_parents() == 0 || self.requests.has_incomplete_prefill() {
            return Vec::new();
        }
        self.requests.waiting.iter().take(self.rows.free()).collect()
    }
}
