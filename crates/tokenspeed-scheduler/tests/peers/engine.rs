//! Two mirrored schedulers of a role with a peer, and an engine that does what a test tells it.

use tokenspeed_scheduler::{
    CacheGroupConfig, Event, ExecutionPlan, Handle, RequestSpec, Result, Role, Scheduler,
    SchedulerConfig, StorageKeys,
};

/// P = g = 4, a budget of 64 tokens, 8 usable blocks.
pub fn config(role: Role, groups: Vec<CacheGroupConfig>) -> SchedulerConfig {
    SchedulerConfig {
        role,
        prefix_granularity: 4,
        num_device_pages: 9,
        max_scheduled_tokens: 64,
        max_batch_size: 8,
        cache_groups: groups,
        enable_kv_cache_events: true,
        ..SchedulerConfig::default()
    }
}

/// Tokens of a stream: the same stream gives the same prefix.
pub fn tokens(stream: i32, count: i32) -> Vec<i32> {
    (0..count).map(|at| 1000 * stream + at).collect()
}

pub struct Engine {
    ranks: [Scheduler; 2],
    pub plan: ExecutionPlan,
    /// The ends of the copies that plans have ordered.
    copies: Vec<Event>,
    /// The last plan in short: `P a; D b; land c; hand over d; R 1`.
    pub short: String,
}

impl Engine {
    pub fn new(config: &SchedulerConfig) -> Engine {
        let rank = || Scheduler::new(config.clone()).expect("the configuration is valid");
        Engine {
            ranks: [rank(), rank()],
            plan: ExecutionPlan::default(),
            copies: Vec::new(),
            short: String::new(),
        }
    }

    pub fn finish_by_handle(&mut self, handle: Handle) -> Result<()> {
        self.ranks.iter_mut().try_for_each(|rank| rank.finish(&[handle]))
    }

    pub fn scheduler(&self) -> &Scheduler {
        &self.ranks[0]
    }

    fn both<T: PartialEq + std::fmt::Debug>(&mut self, call: impl Fn(&mut Scheduler) -> T) -> T {
        let [one, two] = self.ranks.each_mut().map(call);
        assert_eq!(one, two, "mirrored schedulers do the same");
        one
    }

    /// Submits a prompt; its peer is not known yet.
    pub fn submit(&mut self, id: &str, tokens: Vec<i32>, max_new_tokens: i64) -> Result<()> {
        let spec = RequestSpec { request_id: id.into(), tokens, max_new_tokens };
        self.both(|rank| rank.submit_requests(vec![spec.clone()]))
    }

    /// Submits a prompt whose peer is there at once.
    pub fn arrive(&mut self, id: &str, tokens: Vec<i32>, max_new_tokens: i64) {
        self.submit(id, tokens, max_new_tokens).expect("the pool can run it");
        self.tell(Event::Bootstrapped { request_id: id.into() });
    }

    pub fn try_tell(&mut self, event: Event) -> Result<()> {
        self.try_tell_all(vec![event])
    }

    /// Several events in one list.
    pub fn try_tell_all(&mut self, events: Vec<Event>) -> Result<()> {
        self.both(|rank| rank.advance(events.clone()))
    }

    pub fn tell(&mut self, event: Event) {
        self.try_tell(event).expect("the event may happen");
    }

    pub fn result(&mut self, id: &str, tokens: &[i32]) {
        self.tell(Event::ExtendResult {
            request_id: id.into(),
            tokens: tokens.into(),
            spec_candidate_ids: Default::default(),
        });
    }

    pub fn landed(&mut self, id: &str) {
        self.tell(Event::RemotePrefillDone { request_id: id.into(), bootstrap_token: 7 });
    }

    pub fn abort(&mut self, id: &str) {
        self.tell(Event::Abort { request_id: id.into() });
    }

    pub fn finish(&mut self, id: &str) {
        self.tell(Event::Finish { request_id: id.into() });
    }

    pub fn succeeded(&mut self, id: &str) {
        self.tell(Event::TransferSucceeded { request_id: id.into() });
    }

    pub fn failed(&mut self, id: &str) {
        self.tell(Event::TransferFailed { request_id: id.into() });
    }

    /// The next plan, in short.
    pub fn round(&mut self) -> &str {
        // A router may ask one rank what is cached: their plans agree all the same.
        self.ranks[0].drain_kv_events().expect("the checkers find nothing");
        self.plan = self.both(|rank| rank.next_execution_plan()).expect("there is always a plan");
        let plan = &self.plan;
        let stores = plan.write_back.op_ids.iter().map(|&op_id| Event::WriteBackDone { op_id });
        let loads = plan.load_back.op_ids.iter();
        let loads = loads.map(|&op_id| Event::LoadBackDone { op_id, success: true });
        self.copies.extend(stores.chain(loads));
        let batch = &plan.batch;
        let ids = |ids: &[std::sync::Arc<str>]| ids.join(" ");
        let (prefills, decodes) = batch.request_ids.split_at(batch.num_extends);
        let landing = plan.remote_prefill.as_ref().map(|batch| ids(&batch.request_ids));
        let handed = plan.remote_decode.as_ref().map(|batch| ids(&batch.request_ids));
        let ended: Vec<_> = plan.aborts.iter().map(|notice| notice.request_id.clone()).collect();
        let retracted = plan.retracted.len();
        let parts = [
            ("P", ids(prefills)),
            ("D", ids(decodes)),
            ("land", landing.unwrap_or_default()),
            ("hand over", handed.unwrap_or_default()),
            ("R", if retracted > 0 { retracted.to_string() } else { String::new() }),
            ("X", ids(&ended)),
        ];
        let parts = parts.iter().filter(|(_, ids)| !ids.is_empty());
        let parts: Vec<String> = parts.map(|(what, ids)| format!("{what} {ids}")).collect();
        self.short = if parts.is_empty() { "-".into() } else { parts.join("; ") };
        &self.short
    }

    /// Ends the copies that are in flight.
    pub fn end_copies(&mut self) {
        for event in std::mem::take(&mut self.copies) {
            self.tell(event);
        }
    }

    /// Ends the stores that are in flight, and leaves the loads.
    pub fn end_stores(&mut self) {
        let is_store = |event: &Event| matches!(event, Event::WriteBackDone { .. });
        let (stores, loads) = std::mem::take(&mut self.copies).into_iter().partition(is_store);
        self.copies = stores;
        self.end_copies();
        self.copies = loads;
    }

    /// An external store holds these.
    pub fn register(&mut self, keys: StorageKeys) {
        self.both(|rank| rank.register_storage_keys(keys.clone())).expect("they are keys");
    }

    pub fn clear_cache(&mut self) -> bool {
        self.both(Scheduler::clear_cache)
    }

    pub fn clear_l1_cache(&mut self) -> bool {
        self.both(Scheduler::clear_l1_cache)
    }

    /// Blocks of the first group that a request of the last landing or batch holds.
    pub fn blocks(&self, id: &str) -> Vec<i32> {
        let batches = [Some(&self.plan.batch), self.plan.remote_prefill.as_ref()];
        let batch =
            batches.into_iter().flatten().find(|b| b.request_ids.iter().any(|o| **o == *id));
        let batch = batch.expect("it is in the plan");
        let at = batch.request_ids.iter().position(|other| **other == *id).expect("it is there");
        let table = &batch.block_tables[0];
        let row = &table.cells[at * table.columns..(at + 1) * table.columns];
        row.iter().copied().filter(|&block| block > 0).collect()
    }

    /// Nothing is owned any more, and all that is cached could go.
    pub fn settle(&mut self) {
        self.round();
        self.end_copies();
        assert_eq!(self.scheduler().active_lcm_blocks(), 0, "blocks are still owned");
        assert_eq!(self.scheduler().pd_transfer_size(), 0);
        assert_eq!(self.scheduler().owed_results(), []);
        assert!(self.both(|rank| rank.clear_cache()), "the cache is wholly evictable");
    }
}
