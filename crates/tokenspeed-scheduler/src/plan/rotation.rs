//! The end of a backlog under [`PressurePolicy::Goodput`](crate::config::PressurePolicy): who would end
//! last goes first (`docs/goodput.md`).
//!
//! A request takes as many rounds as it has tokens to generate, however much room there is. Served first
//! in, first out, a backlog ends with few requests in a pool that is mostly empty. So a request that waits
//! is *urgent* when it will take as long by itself as all that is left to do would take a full pool (zero
//! laxity). It is admitted before all others, and leaves residents none of their next steps but those of who
//! was retracted before. Where an interruption costs little but copies it takes the place of a resident that
//! has less to go, too, of the one that stands nearest behind a page's end.

use std::cmp::Reverse;

use super::admit::Outcome;
use super::prefill::Line;
use super::round::Round;
use crate::cache::Geometry;
use crate::config::GroupKind;
use crate::request::RequestKey;

/// Urgent requests that are made room for at a time. This and the next four were found by playing
/// `benches/goodput.py`.
const ROTATED_MOST: usize = 12;

/// Requests that can be brought in within a round: so much earlier those behind the first are urgent.
const ADMITTED_A_ROUND: i64 = 3;

/// A resident gives way to a request that has more than so many tokens more to generate, and more than
/// outputs differ from what is expected.
const LEAST_LEAD_TOKENS: i64 = 24;

/// Of its last page a resident that gives way has computed one part in so many at most.
const LOST_PAGE_PARTS: i64 = 8;

/// Unless the first that is urgent is late by so many rounds.
const LATE_ROUNDS: i64 = 10;

/// The backlog is looked at every round while it is no longer than this, and more seldom when it is.
const LOOKED_AT_A_ROUND: i64 = 1024;

/// Requests that wait, and that are admitted first so that they do not end last.
#[derive(Debug, Default)]
pub struct Urgent {
    /// Those with most to go first.
    pub(super) line: Vec<RequestKey>,
    /// By how many rounds the first of them would outlast all else.
    pub(super) late_rounds: i64,
}

impl Round<'_> {
    /// Finds who is urgent, and makes room for the first of them where an interruption costs little but
    /// copies.
    pub(super) fn rotate(&mut self) {
        if !self.keeps_batch() {
            return;
        }
        self.feedback.pressure.urgent = self.find_urgent();
        // What defers a retraction defers these (`scheduler.md` §2).
        if self.rules.interrupts_cheaply && self.cache.transfers().owe_nothing() {
            self.make_room_for_urgent();
        }
    }

    /// Who waits and is urgent. Nobody is while requests come in: a backlog is taken to be whole when it
    /// has not grown for as long as it will still take.
    fn find_urgent(&mut self) -> Urgent {
        let round = self.number;
        let submitted = self.requests.submitted();
        self.requests.backlog.note_submitted(submitted, round);
        if self.requests.num_waiting() == 0 || !self.requests.backlog.is_due(round) {
            return Urgent::default();
        }
        let seldom = self.requests.len() as i64 / LOOKED_AT_A_ROUND;
        let Some((left, mut line)) = self.rounds_left() else {
            self.requests.backlog.look_after(round, seldom);
            return Urgent::default();
        };
        line.sort_unstable_by_key(|&(rounds, key)| {
            (Reverse(rounds), self.requests[key].submission)
        });
        let late = |(at, &(rounds, _)): (usize, &(i64, RequestKey))| {
            rounds + at as i64 / ADMITTED_A_ROUND - left
        };
        let latest = line.iter().enumerate().map(late).max().unwrap_or(i64::MIN);
        let early = latest.saturating_neg().max(left - self.requests.backlog.quiet_rounds(round));
        // Halfway there, since what is left may turn out to be less.
        self.requests.backlog.look_after(round, seldom.max(early / 2));
        if early > 0 {
            return Urgent::default();
        }
        let last = line.iter().enumerate().rposition(|entry| late(entry) >= 0);
        line.truncate(last.map_or(0, |last| last + 1));
        Urgent {
            late_rounds: line.first().map_or(0, |&(rounds, _)| rounds - left),
            line: line.into_iter().map(|(_, key)| key).collect(),
        }
    }

    /// Rounds that all requests will take if no block, no row and no budget is idle; and those who wait,
    /// each with the rounds that its output will take by itself. As far as can be expected;
    /// `None` where nothing can.
    fn rounds_left(&self) -> Option<(i64, Vec<(i64, RequestKey)>)> {
        let geometries = self.cache.geometries();
        let config = &self.rules.config;
        let mut waiting = Vec::with_capacity(self.requests.num_waiting());
        let mut block_rounds = vec![0_i128; geometries.len()];
        let (mut steps, mut inputs) = (0_i128, 0_i128);
        for (key, request) in self.requests.iter() {
            let rest = self.requests.expected_rest(key)?;
            let tokens = request.num_tokens();
            for (sum, geometry) in block_rounds.iter_mut().zip(geometries) {
                *sum += block_rounds_of(tokens, rest, geometry);
            }
            steps += i128::from(rest);
            if request.state().waits_for_admission() {
                if !request.state().is_readmission() {
                    inputs += i128::from(tokens);
                }
                waiting.push((rest, key));
            }
        }
        let blocks_in =
            |geometry: &Geometry| i128::from(geometry.blocks_in(config.usable_device_parents()));
        let by_blocks = block_rounds.iter().zip(geometries).map(|(sum, g)| sum / blocks_in(g));
        let by_rows = steps / i128::from(config.max_batch_size);
        let by_budget = (inputs + steps * i128::from(self.rules.decode_cost))
            / i128::from(config.max_scheduled_tokens);
        let rounds = by_blocks.max().unwrap_or(0).max(by_rows).max(by_budget);
        Some((i64::try_from(rounds).unwrap_or(i64::MAX), waiting))
    }

    /// Retracts residents, at most for the first urgent requests to fit beside the others' next steps. Who gave
    /// way before stays, so that the exchange ends.
    fn make_room_for_urgent(&mut self) {
        let Urgent { line, late_rounds, .. } = &self.feedback.pressure.urgent;
        let Some(most) = line.first().and_then(|&key| self.requests.expected_rest(key)) else {
            return;
        };
        let rest_most = most - LEAST_LEAD_TOKENS - self.requests.outputs.spread();
        let lost_most = match *late_rounds >= LATE_ROUNDS {
            true => self.rules.granularity,
            false => self.rules.granularity / LOST_PAGE_PARTS,
        };
        let mut victims = Vec::new();
        for key in self.requests.local_residents() {
            let request = &self.requests[key];
            let rest = self.requests.expected_rest(key).filter(|&rest| rest < rest_most);
            let lost = request.lost_tokens(self.rules.granularity);
            if request.retractions == 0
                && lost <= lost_most
                && let Some(rest) = rest
            {
                // One that stood still to give way comes first.
                victims.push((request.forwards_out > 0, lost, rest, key));
            }
        }
        victims.sort_unstable();
        let needed = self.needed_for_urgent();
        for (result_is_out, _, _, key) in victims {
            let enough = self.cache.room() >= needed && self.rows.next().is_some();
            if enough || self.feedback.pressure.yielding.len() >= ROTATED_MOST {
                return;
            }
            match result_is_out {
                true => self.feedback.pressure.yielding.push(key),
                false => self.retract_or_end(key),
            }
        }
    }

    /// What the first urgent requests need, and residents for their next step, in the measure of
    /// [`Coordinator::room`](crate::cache::Coordinator::room).
    fn needed_for_urgent(&self) -> u64 {
        let width = self.rules.decode_width;
        let urgent = self.feedback.pressure.urgent.line.iter().take(ROTATED_MOST);
        let blocks = |(group, geometry): (usize, &Geometry)| {
            if geometry.kind != GroupKind::Full {
                return 0;
            }
            let whole = |&key: &RequestKey| {
                geometry.slots_for(self.requests[key].num_tokens() + width) as i64
            };
            let step = |key: RequestKey| {
                let request = &self.requests[key];
                let held = request.holdings.groups[group].table.len();
                (geometry.slots_for(request.decode_extent(width)) as i64 - held as i64).max(0)
            };
            let residents = self.requests.local_residents();
            urgent.clone().map(whole).sum::<i64>() + residents.map(step).sum::<i64>()
        };
        let blocks: Vec<i64> = self.cache.geometries().iter().enumerate().map(blocks).collect();
        self.cache.weight_of(&blocks)
    }

    /// Admits urgent requests, those with most to go first. Nobody overtakes one that does not fit.
    pub(super) fn schedule_urgent(&mut self) -> Line {
        let urgent = std::mem::take(&mut self.feedback.pressure.urgent.line);
        if urgent.is_empty() {
            return Line::Free;
        }
        // No new prompt starts behind one under way (`scheduler.md` §1.1).
        let line = self.schedule_resident_chunks();
        if line != Line::Free {
            return line;
        }
        for key in urgent {
            if self.stands_back(key) {
                continue;
            }
            if self.build.budget_left() <= 0 {
                return Line::Held;
            }
            let recovers = self.requests[key].state().is_readmission();
            if !recovers && self.is_held_for_oldest(key) {
                return Line::Free;
            }
            if recovers && self.requests.has_incomplete_recovery() {
                return Line::SealedToNewcomers;
            }
            self.feedback.pressure.admits_urgent = true;
            let outcome = self.schedule_first_chunk(key);
            self.feedback.pressure.admits_urgent = false;
            match outcome {
                Outcome::Completed => {}
                Outcome::Incomplete => return Line::Held,
                Outcome::NotNow => return Line::SealedToNewcomers,
                Outcome::NoCapacity => {
                    // A readmission is never what a retraction is for (`scheduler.md` §4).
                    if !recovers {
                        self.blocked(key);
                    }
                    return Line::SealedToNewcomers;
                }
            }
        }
        Line::Free
    }
}

/// Blocks of a group that a request of so many tokens holds, summed over the rounds in which it generates
/// `rest` more, half a block more than its tokens fill.
fn block_rounds_of(tokens: i64, rest: i64, geometry: &Geometry) -> i128 {
    let [tokens, rest, block] = [tokens, rest, geometry.block_granularity].map(i128::from);
    match geometry.kind {
        GroupKind::Full => rest * (2 * tokens + rest + block) / (2 * block),
        _ => 0,
    }
}
