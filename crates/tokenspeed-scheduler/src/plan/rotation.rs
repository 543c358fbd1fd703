//! The end of a backlog under [`PressurePolicy::Goodput`](crate::config::PressurePolicy): who would end
//! last goes first (`docs/goodput.md`).
//!
//! A request takes as many rounds as it has tokens to generate, however much room there is. Served first
//! in, first out, a backlog ends with few requests in a pool that is mostly empty. So a request that waits
//! is *urgent* when its own steps take as long as all that is left to do would take a full pool: it is
//! admitted first, and with a Host tier, where an interruption costs copies, it takes the place of
//! residents that have less to go.

use std::cmp::Reverse;

use super::admit::Outcome;
use super::prefill::Line;
use super::pressure::expected_rest;
use super::round::Round;
use crate::config::GroupKind;
use crate::request::{RequestKey, State};

/// Requests that are made room for at a time.
const ROTATED_MOST: usize = 8;

/// Rounds that it takes to bring so many requests in is one.
const ADMITTED_A_ROUND: i64 = 5;

/// A resident gives way to a request that has so many more tokens to generate.
const LEAST_LEAD_TOKENS: i64 = 32;

/// Retractions after which a resident does not give way to an urgent request any more.
const ROTATIONS_MOST: i64 = 2;

/// Requests for each of which the backlog is looked at a round later again.
const LOOKED_AT_A_ROUND: i64 = 1024;

pub fn knob(name: &str, default: i64) -> i64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

impl Round<'_> {
    /// Finds who is urgent, and makes room for the first of them.
    pub(super) fn rotate(&mut self) {
        if !self.keeps_batch() || self.requests.num_waiting() == 0 || knob("OFF", 0) == 1 {
            return;
        }
        self.feedback.pressure.urgent = self.find_urgent();
        if self.may_rotate() {
            self.make_room_for_urgent();
        }
    }

    /// Who waits and is urgent, those with most to go first; nobody while requests still come in: a
    /// backlog is taken to grow for as long as it has not.
    fn find_urgent(&mut self) -> Vec<RequestKey> {
        let submitted = self.requests.submitted();
        let Some(quiet) = self.requests.backlog.quiet_rounds(submitted, self.number) else {
            return Vec::new();
        };
        let mut waiting = Vec::with_capacity(self.requests.num_waiting());
        let looked_at = self.requests.len() as i64 / knob("LK", LOOKED_AT_A_ROUND);
        let Some(left) = self.rounds_left(&mut waiting) else {
            self.requests.backlog.look_again_after(self.number, looked_at);
            return Vec::new();
        };
        waiting.sort_unstable_by_key(|&(rest, key)| (Reverse(rest), self.requests[key].submission));
        let late = |(at, (rest, _)): (usize, &(i64, RequestKey))| rest + at as i64 / knob("RATE", ADMITTED_A_ROUND) - left + knob("S", 0);
        let latest = waiting.iter().enumerate().map(late).max().unwrap_or(i64::MIN);
        let early = (-latest).max(left - quiet);
        self.requests.backlog.look_again_after(self.number, looked_at.max(early / 2));
        if early > 0 {
            return Vec::new();
        }
        let last = waiting.iter().enumerate().rposition(|entry| late(entry) >= 0);
        self.feedback.pressure.late = waiting[0].0 - left;
        waiting.truncate(last.map_or(0, |last| last + 1));
        waiting.into_iter().map(|(_, key)| key).collect()
    }

    /// Rounds that all requests will take yet if nothing stands idle, as far as can be expected; `None`
    /// where nothing can. Those who wait are listed with the rounds that each will take by itself.
    fn rounds_left(&self, waiting: &mut Vec<(i64, RequestKey)>) -> Option<i64> {
        let geometries = self.cache.geometries();
        let config = &self.rules.config;
        let mut block_rounds = vec![0; geometries.len()];
        let (mut steps, mut inputs) = (0, 0);
        for (key, request) in self.requests.iter() {
            let rest = expected_rest(self.requests, key);
            if rest == i64::MAX {
                return None;
            }
            let tokens = request.num_tokens();
            for (sum, geometry) in block_rounds.iter_mut().zip(geometries) {
                if geometry.kind == GroupKind::Full {
                    let g = geometry.block_granularity;
                    *sum += rest * (2 * tokens + rest + g) / (2 * g);
                }
            }
            steps += rest;
            if !request.state().is_resident() {
                let returns = matches!(request.state(), State::Retracted { recovers_in_order: true, .. });
                let prompt = if returns { 1 } else { tokens };
                inputs += prompt;
                waiting.push((rest + prompt / config.max_scheduled_tokens, key));
            }
        }
        let pools = block_rounds.iter().zip(geometries).map(|(sum, geometry)| {
            sum / geometry.blocks_in(config.usable_device_parents()).max(1)
        });
        let by_rows = steps / config.max_batch_size;
        let by_budget = (inputs + steps * self.rules.decode_cost) / config.max_scheduled_tokens;
        Some(pools.max().unwrap_or(0).max(by_rows).max(by_budget))
    }

    /// Whether residents may give way to urgent requests: where a Host tier takes as much as the Device, and
    /// nothing is on its way that defers retractions (`scheduler.md` §2).
    fn may_rotate(&self) -> bool {
        self.swaps() && self.cache.transfers().owe_nothing()
    }

    pub(super) fn swaps(&self) -> bool {
        let config = &self.rules.config;
        config.usable_host_parents() >= config.usable_device_parents()
    }

    fn make_room_for_urgent(&mut self) {
        let Some(&first) = self.feedback.pressure.urgent.first() else {
            return;
        };
        let most = expected_rest(self.requests, first);
        let mut victims = Vec::new();
        for key in self.requests.local_residents() {
            let request = &self.requests[key];
            let rest = expected_rest(self.requests, key);
            if rest + knob("D", LEAST_LEAD_TOKENS) < most && request.retractions < knob("ROT", ROTATIONS_MOST) && self.lost_tokens(key) <= if self.feedback.pressure.late >= knob("LATE", 0) { knob("LIM2", 64) } else { knob("LIM", 64) } {
                victims.push((request.forwards_out > 0, self.lost_tokens(key), rest, key));
            }
        }
        victims.sort_unstable();
        let needed = self.needed_for_urgent();
        for (is_out, _, _, key) in victims {
            if self.cache.room() >= needed && self.rows.next().is_some() {
                return;
            }
            if is_out {
                self.feedback.pressure.yielding.push(key);
                if self.feedback.pressure.yielding.len() >= ROTATED_MOST { return; }
                continue;
            }
            self.retract_or_end(key);
        }
    }

    /// What the first urgent requests need, and the residents for their next steps, in the measure of
    /// [`Coordinator::room`](crate::cache::Coordinator::room).
    fn needed_for_urgent(&self) -> u64 {
        let width = self.rules.decode_width;
        let urgent = self.feedback.pressure.urgent.iter().take(knob("MOST", ROTATED_MOST as i64) as usize);
        let blocks = |(group, geometry): (usize, &crate::cache::Geometry)| {
            let slots = |&key: &RequestKey| geometry.slots_for(self.requests[key].num_tokens() + width) as i64;
            let grows = |key: RequestKey| {
                let request = &self.requests[key];
                let held = request.holdings.groups[group].table.len();
                (geometry.slots_for(request.decode_extent(width)) as i64 - held as i64).max(0)
            };
            match geometry.kind {
                GroupKind::Full => {
                    urgent.clone().map(slots).sum::<i64>()
                        + self.requests.local_residents().map(grows).sum::<i64>()
                }
                _ => 0,
            }
        };
        let blocks: Vec<i64> = self.cache.geometries().iter().enumerate().map(blocks).collect();
        self.cache.weight_of(&blocks)
    }

    /// Tokens of a resident that an interruption loses where its pages come back from the Host: those behind
    /// its last whole page.
    pub(super) fn lost_tokens(&self, key: RequestKey) -> i64 {
        let request = &self.requests[key];
        let computed = match request.state() {
            State::PrefillDone | State::Decoding => request.decode_extent(1) - 1,
            _ => request.computed_tokens(),
        };
        computed % self.rules.granularity
    }

    /// Admits urgent requests, those with most to go first. Nobody overtakes one that does not fit.
    pub(super) fn schedule_urgent(&mut self) -> Line {
        for key in std::mem::take(&mut self.feedback.pressure.urgent) {
            if self.build.budget_left() <= 0 {
                return Line::Held;
            }
            let recovers =
                matches!(self.requests[key].state(), State::Retracted { recovers_in_order: true, .. });
            if recovers && self.requests.has_incomplete_recovery() {
                return Line::SealedToNewcomers;
            }
            self.feedback.pressure.admitting_urgent = self.swaps();
            let outcome = self.schedule_first_chunk(key);
            self.feedback.pressure.admitting_urgent = false;
            match outcome {
                Outcome::Completed => {}
                Outcome::Incomplete => return Line::Held,
                Outcome::NoCapacity | Outcome::NotNow => return Line::SealedToNewcomers,
            }
        }
        Line::Free
    }
}
