//! The live requests, and the orders in which the phases of a round look at them. Each request stands
//! in exactly the order that its state names, so that no phase walks requests it has no work for.

use std::collections::BTreeSet;
use std::hash::BuildHasher;

use hashbrown::HashTable;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::Request;
use super::backlog::Backlog;
use super::caution::Caution;
use super::handle::Handle;
use super::lifecycle::State;
use super::outputs::OutputLengths;
use super::waiting::{Queued, WaitingLine};
use crate::growth::grow_to;
use crate::identity::PageId;

/// Place of a live request. Used again after it has ended: never keep one across calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestKey(u32);

impl RequestKey {
    /// The least key.
    pub(crate) const FIRST: RequestKey = RequestKey(0);
}

/// All live requests.
#[derive(Debug, Default)]
pub struct RequestSet {
    places: Vec<Option<Request>>,
    free: Vec<u32>,
    /// By the id of the request that stands there.
    by_id: HashTable<RequestKey>,
    /// By the handle under which it was last seated.
    retracted: FxHashMap<Handle, RequestKey>,
    /// By [`PageId::index`]: who was submitted last of those whose prompt has the page. It may have
    /// ended since, and the page may be another one.
    last_with: Vec<RequestKey>,
    submitted: u64,
    /// Waiting for a first admission, in submission order.
    pub waiting: WaitingLine,
    /// Waiting to come back from a snapshot: victims with output first, then the oldest epoch
    /// (`scheduler.md` §4).
    readmissions: BTreeSet<(bool, u64, RequestKey)>,
    /// Prompts under way, in submission order.
    prefilling: BTreeSet<Queued>,
    /// Requests whose prompt is scheduled, in submission order.
    decoding: Vec<Queued>,
    /// How many of `decoding` are `PrefillDone`.
    prefill_done: usize,
    /// Residents whose next word is the peer's, in submission order.
    with_peer: BTreeSet<Queued>,
    /// Requests that wait for the peer's handshake.
    bootstrapping: usize,
    /// Who may have spent its budget since the last [`RequestSet::take_spent`], with repeats.
    spent: Vec<RequestKey>,
    /// How long the outputs of those that are gone were.
    pub outputs: OutputLengths,
    /// What retractions have taught.
    pub caution: Caution,
    /// Whether what waits is all there will be.
    pub backlog: Backlog,
}

impl RequestSet {
    /// Adds a request as the newest.
    pub fn insert(&mut self, mut request: Request) -> RequestKey {
        request.submission = self.submitted;
        self.submitted += 1;
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            (self.places.len() - 1) as u32
        });
        let key = RequestKey(at);
        for page in &request.pages {
            grow_to(&mut self.last_with, page.index() + 1, key);
            self.last_with[page.index()] = key;
        }
        let hash = hash_of(&request.id);
        self.places[at as usize] = Some(request);
        self.by_id.insert_unique(hash, key, |&RequestKey(at)| {
            hash_of(&self.places[at as usize].as_ref().expect("a key names a live request").id)
        });
        self.enqueue(key);
        key
    }

    /// A live request whose page number `at` is this one: it and `page`'s other bearers have the same
    /// tokens up to the page's end. `None` does not say that there is none.
    pub fn with_page(&self, page: PageId, at: usize) -> Option<&Request> {
        let key = self.last_with.get(page.index())?;
        let request = self.places[key.0 as usize].as_ref()?;
        (request.pages.get(at) == Some(&page)).then_some(request)
    }

    /// Takes a request out for good.
    pub fn remove(&mut self, key: RequestKey) -> Request {
        self.dequeue(key);
        self.forget_last_handle(key);
        let hash = hash_of(&self[key].id);
        self.by_id
            .find_entry(hash, |&other| other == key)
            .expect("a live request is found by its id")
            .remove();
        let request = self.places[key.0 as usize].take().expect("a key names a live request");
        self.free.push(key.0);
        request
    }

    /// Moves a request to another state, and to the order that the state stands in.
    pub fn transition(&mut self, key: RequestKey, state: State) {
        let from = self[key].state;
        match (from, state) {
            // The common steps stay where they are in their order.
            (State::Prefilling { .. }, State::Prefilling { .. }) => self[key].state = state,
            (State::Decoding, State::Decoding) => {}
            (State::PrefillDone, State::Decoding) => {
                self.prefill_done -= 1;
                self[key].state = state;
            }
            _ => {
                self.dequeue(key);
                self[key].state = state;
                self.enqueue(key);
            }
        }
    }

    /// Notes that the last token of a budget has come.
    pub fn note_spent(&mut self, key: RequestKey) {
        self.spent.push(key);
    }

    /// Residents that this engine may move, that have spent their budget and that have no result out, of
    /// those noted since the last call: prompts under way first, then in submission order.
    pub fn take_spent(&mut self) -> Vec<RequestKey> {
        let mut spent = std::mem::take(&mut self.spent);
        let order = |key: RequestKey| {
            let request = self.places[key.0 as usize].as_ref()?;
            let under_way = matches!(request.state, State::Prefilling { .. });
            let local = under_way || matches!(request.state, State::PrefillDone | State::Decoding);
            let over = local && request.forwards_out == 0 && request.budget_is_spent();
            over.then_some((!under_way, request.submission))
        };
        spent.retain(|&key| order(key).is_some());
        spent.sort_by_key(|&key| order(key));
        spent.dedup();
        debug_assert!(
            spent.iter().copied().eq(self.local_residents().filter(|&key| order(key).is_some())),
            "a spent budget went unnoticed"
        );
        spent
    }

    /// How many requests were ever submitted.
    pub fn submitted(&self) -> u64 {
        self.submitted
    }

    /// The live request of that id.
    pub fn find(&self, id: &str) -> Option<RequestKey> {
        self.by_id.find(hash_of(id), |&key| *self[key].id == *id).copied()
    }

    /// Whether a request that was found before is still here. To be asked before another is submitted: that
    /// one may be given its place.
    pub fn is_live(&self, key: RequestKey) -> bool {
        self.places[key.0 as usize].is_some()
    }

    /// The retracted request that a handle last named.
    pub fn find_retracted(&self, handle: Handle) -> Option<RequestKey> {
        self.retracted.get(&handle).copied()
    }

    /// Notes the handle under which a request that is being retracted was seated.
    pub fn note_last_handle(&mut self, key: RequestKey, handle: Handle) {
        self[key].last_handle = Some(handle);
        self.retracted.insert(handle, key);
    }

    /// A request is seated anew, or goes: its last handle names it no more.
    pub fn forget_last_handle(&mut self, key: RequestKey) {
        if let Some(handle) = self[key].last_handle.take() {
            self.retracted.remove(&handle);
        }
    }

    /// How many requests are live.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// All live requests, in no order that means anything but the same on every rank.
    pub fn iter(&self) -> impl Iterator<Item = (RequestKey, &Request)> + '_ {
        self.places
            .iter()
            .enumerate()
            .filter_map(|(at, request)| Some((RequestKey(at as u32), request.as_ref()?)))
    }

    /// Readmissions that wait, the next one first.
    pub fn readmissions(&self) -> impl Iterator<Item = RequestKey> + '_ {
        self.readmissions.iter().map(|&(_, _, key)| key)
    }

    /// Whom the phases would admit first into an idle pool: a readmission, else the oldest prompt that waits.
    pub fn first_in_line(&self) -> Option<RequestKey> {
        self.readmissions().next().or_else(|| self.waiting.iter().next())
    }

    /// The first prompt under way at or after a submission number.
    pub fn prefilling_from(&self, submission: u64) -> Option<RequestKey> {
        self.prefilling.range((submission, RequestKey(0))..).next().map(|&(_, key)| key)
    }

    /// The `at`-th request whose prompt is scheduled, in submission order.
    pub fn decoding_at(&self, at: usize) -> Option<RequestKey> {
        self.decoding.get(at).map(|&(_, key)| key)
    }

    /// Every request that holds blocks, in submission order within each kind.
    pub fn residents(&self) -> impl Iterator<Item = RequestKey> + '_ {
        self.local_residents().chain(self.with_peer())
    }

    /// Gives a resident up whose blocks a peer may be using: no result of it counts any more, and its
    /// blocks stay fenced until the peer's word (`liveness.md` 3).
    pub fn give_up(&mut self, key: RequestKey) {
        let request = &mut self[key];
        request.forwards_out = 0;
        request.chunks_out = 0;
        self.transition(key, State::Draining);
    }

    /// Those of them that this engine may move, in submission order within each kind.
    pub fn local_residents(&self) -> impl Iterator<Item = RequestKey> + '_ {
        self.prefilling.iter().chain(&self.decoding).map(|&(_, key)| key)
    }

    /// Tokens that a request is expected to generate yet: by its budget, and by what others generated;
    /// `None` where neither tells.
    pub fn expected_rest(&self, key: RequestKey) -> Option<i64> {
        let request = &self[key];
        let declared = match request.budget_end_tokens {
            i64::MAX => None,
            end => Some(end - request.num_tokens()),
        };
        let learned = self.outputs.expected_rest(request.generated_tokens());
        declared.into_iter().chain(learned).min()
    }

    /// Residents whose next word is the peer's, in submission order.
    pub fn with_peer(&self) -> impl Iterator<Item = RequestKey> + '_ {
        self.with_peer.iter().map(|&(_, key)| key)
    }

    /// Requests that wait for the peer's handshake.
    pub fn num_bootstrapping(&self) -> usize {
        self.bootstrapping
    }

    /// Requests that wait for an admission, first or repeated.
    pub fn num_waiting(&self) -> usize {
        self.waiting.len() + self.readmissions.len()
    }

    /// Requests that prefill, or have and did not yet decode.
    pub fn num_prefilling(&self) -> usize {
        self.prefilling.len() + self.prefill_done
    }

    /// Whether a prompt is under way in part.
    pub fn has_incomplete_prefill(&self) -> bool {
        !self.prefilling.is_empty()
    }

    /// Whether a readmitted prompt is under way in part.
    pub fn has_incomplete_recovery(&self) -> bool {
        self.prefilling.iter().any(|&(_, key)| self[key].recovering)
    }

    /// Requests that decode.
    pub fn num_decoding(&self) -> usize {
        self.decoding.len() - self.prefill_done
    }

    fn enqueue(&mut self, key: RequestKey) {
        let (submission, state) = (self[key].submission, self[key].state);
        match state {
            State::Prefilling { .. } => {
                self.prefilling.insert((submission, key));
            }
            State::PrefillDone | State::Decoding => {
                self.prefill_done += usize::from(state == State::PrefillDone);
                let at = self.decoding.partition_point(|&queued| queued < (submission, key));
                self.decoding.insert(at, (submission, key));
            }
            State::RemotePrefilling | State::RemoteDecoding | State::Draining => {
                self.with_peer.insert((submission, key));
            }
            State::Bootstrapping => self.bootstrapping += 1,
            State::Retracted { epoch, resumes_generation, recovers_in_order: true } => {
                self.readmissions.insert((!resumes_generation, epoch, key));
            }
            State::Submitted | State::Retracted { .. } => {
                self.waiting.insert((submission, key));
            }
        }
    }

    fn dequeue(&mut self, key: RequestKey) {
        let (submission, state) = (self[key].submission, self[key].state);
        match state {
            State::Prefilling { .. } => {
                self.prefilling.remove(&(submission, key));
            }
            State::PrefillDone | State::Decoding => {
                self.prefill_done -= usize::from(state == State::PrefillDone);
                let at = self.decoding.partition_point(|&queued| queued < (submission, key));
                debug_assert_eq!(self.decoding[at], (submission, key));
                self.decoding.remove(at);
            }
            State::RemotePrefilling | State::RemoteDecoding | State::Draining => {
                self.with_peer.remove(&(submission, key));
            }
            State::Bootstrapping => self.bootstrapping -= 1,
            State::Retracted { epoch, resumes_generation, recovers_in_order: true } => {
                self.readmissions.remove(&(!resumes_generation, epoch, key));
            }
            State::Submitted | State::Retracted { .. } => {
                self.waiting.remove((submission, key));
            }
        }
    }
}

fn hash_of(id: &str) -> u64 {
    FxBuildHasher.hash_one(id)
}

impl std::ops::Index<RequestKey> for RequestSet {
    type Output = Request;

    fn index(&self, key: RequestKey) -> &Request {
        self.places[key.0 as usize].as_ref().expect("a key names a live request")
    }
}

impl std::ops::IndexMut<RequestKey> for RequestSet {
    fn index_mut(&mut self, key: RequestKey) -> &mut Request {
        self.places[key.0 as usize].as_mut().expect("a key names a live request")
    }
}
