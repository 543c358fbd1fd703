"""The mistakes, in the order of the rules of ``scheduler.md`` §5."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORE = Path("crates/tokenspeed-scheduler/src")

#: The random worlds: the checkers of `check.rs`, and the judge of plans.
WORLDS = "worlds"


@dataclass(frozen=True)
class Mutant:
    """One mistake: `line`, which `file` has exactly once, becomes `mistake`. `test` is the test
    target that has to fail, and `only` a part of the name of the test in it."""

    rule: str
    file: str
    line: str
    mistake: str
    test: str = WORLDS
    only: str = ""

    def path(self) -> Path:
        return CORE / self.file

    def apply(self, source: str) -> str:
        """`source` with the mistake; raises ``ValueError`` unless its line is there once."""
        count = source.count(f"{self.line}\n")
        if count != 1:
            raise ValueError(f"{self.file} has {count} times: {self.line.strip()}")
        return source.replace(f"{self.line}\n", f"{self.mistake}\n")


MUTANTS = (
    Mutant(
        "nothing beyond the chunk: the decode slot is the completing chunk's",
        "plan/demand.rs",
        "    let decode_slot = if reserve.completes { reserve.decode_slot } else { 0 };",
        "    let decode_slot = reserve.decode_slot;",
    ),
    Mutant(
        "nothing beyond the chunk: states grow on the completing chunk",
        "plan/demand.rs",
        "    let behind = if reserve.completes { 1 } else { 0 };",
        "    let behind = 1;",
    ),
    Mutant(
        "nothing beyond the chunk: the first crossing is paid for",
        "plan/demand.rs",
        "    let (grown, promised) = if rules.config.role.decodes() { (behind, 0) }"
        " else { (0, behind) };",
        "    let (grown, promised) = if rules.config.role.decodes() { (0, 0) }"
        " else { (0, behind) };",
        "fused",
        "the_first_crossing_of_a_state_boundary_is_paid_for",
    ),
    Mutant(
        "nothing beyond the chunk: full groups alone hold the headroom",
        "plan/demand.rs",
        "        GroupKind::Sliding { .. } => Demand::Dense { tokens: chunk.size,"
        " reserve: decode_slot },",
        "        GroupKind::Sliding { .. } => Demand::Dense { tokens: chunk.size,"
        " reserve: decode_slot.max(reserve.headroom) },",
    ),
    Mutant(
        "replay: never matched",
        "cache/matcher.rs",
        "    let matched = |geometry: &Geometry| !geometry.replayable;",
        "    let matched = |_: &Geometry| true;",
    ),
    Mutant(
        "replay: never published or streamed",
        "cache/publication.rs",
        "        if to <= from || holdings.uncached || geometry.replayable {",
        "        if to <= from || holdings.uncached {",
    ),
    Mutant(
        "replay: re-fed rows debit the budget",
        "plan/batch.rs",
        "        self.budget_left -= op.chunk.input_size();",
        "        self.budget_left -= op.chunk.size;",
    ),
    Mutant(
        "replay: re-fed rows are no progress",
        "plan/chunk.rs",
        "        self.begin + self.size",
        "        self.begin + self.size - self.replay",
    ),
    Mutant(
        "replay: only a hit's first chunk re-feeds",
        "plan/chunk.rs",
        "    let replay = if cut.first { rules.replay_tokens(cut.begin) } else { 0 };",
        "    let replay = rules.replay_tokens(cut.begin);",
    ),
    Mutant(
        "replay: no final chunk is shorter than the window",
        "plan/chunk.rs",
        "    if 0 < rest && rest < rules.replay_window {",
        "    if 0 < rest && rest < 0 {",
    ),
    Mutant(
        "the reserve is decided by retention: a full group's headroom",
        "plan/demand.rs",
        "            Demand::Dense { tokens: chunk.size,"
        " reserve: decode_slot.max(reserve.headroom) }",
        "            Demand::Dense { tokens: chunk.size, reserve: decode_slot }",
        "fused",
        "a_full_group_reserves_the_rest_and_the_headroom_on_the_first_chunk",
    ),
    Mutant(
        "an incomplete prefill is not overtaken: by a prompt under way",
        "plan/prefill.rs",
        "                Outcome::Incomplete => return Line::Held,",
        "                Outcome::Incomplete => {}",
    ),
    Mutant(
        "an incomplete prefill is not overtaken: by newcomers of its round",
        "plan/newcomers.rs",
        "                Outcome::Incomplete => return,",
        "                Outcome::Incomplete => {}",
    ),
    Mutant(
        "an incomplete prefill is not overtaken: while its result is out",
        "plan/prefill.rs",
        "                Outcome::NotNow => line = Line::SealedToNewcomers,",
        "                Outcome::NotNow => line = Line::Free,",
    ),
    Mutant(
        "decodes are not hostage to a stalled prefill",
        "plan/fused.rs",
        "            if !self.build.prefill_progressed() {",
        "            if self.feedback.capacity_blocker.is_none() {",
        "fused",
        "decodes_are_not_hostage_to_a_stalled_prompt",
    ),
    Mutant(
        "retraction: only when no prefill progressed",
        "plan/retraction.rs",
        "            && !self.build.prefill_progressed()",
        "",
        "fused",
        "it_fires_only_in_a_round_without_a_prompts_progress",
    ),
    Mutant(
        "retraction: loads and pinned stores defer it",
        "plan/retraction.rs",
        "            && self.cache.transfers().owe_nothing()",
        "",
    ),
    Mutant(
        "retraction: the victim is quiescent",
        "plan/retraction.rs",
        "            if self.requests[victim].forwards_out > 0 {",
        "            if self.requests[victim].forwards_out > 9 {",
    ),
    Mutant(
        "retraction: no transfer against its pages",
        "plan/retraction.rs",
        "        let candidates = self.requests.local_residents().filter(|&key| {",
        "        let candidates = self.requests.residents().filter(|&key| {",
    ),
    Mutant(
        "retraction: never on the prefill role",
        "plan/prefill_worker.rs",
        "        self.schedule_local_prefill_work();",
        "        self.schedule_local_prefill_work();\n        self.maybe_retract_for_capacity();",
    ),
    Mutant(
        "freed capacity is granted in the same plan",
        "plan/retraction.rs",
        "                false => self.grant(blocker),",
        "                false => Outcome::NotNow,",
        "fused",
        "freed_blocks_reach_a_blocker_beside_others",
    ),
    Mutant(
        "stores: a live request's is pinned",
        "scheduler/mod.rs",
        "        round.cache.start_pending_stores(StoreGuard::PinnedUntilAck);",
        "        round.cache.start_pending_stores(StoreGuard::StreamOrdered);",
    ),
    Mutant(
        "stores: a retraction's is stream-ordered",
        "plan/retraction.rs",
        "            self.cache.start_pending_stores(StoreGuard::StreamOrdered);",
        "            self.cache.start_pending_stores(StoreGuard::PinnedUntilAck);",
        "fused",
        "only_a_retractions_store_is_stream_ordered",
    ),
    Mutant(
        "stores: never neither",
        "cache/host.rs",
        "            if guard == StoreGuard::PinnedUntilAck {",
        "            if guard != StoreGuard::PinnedUntilAck {",
    ),
    Mutant(
        "only computed tokens are published: while prefilling",
        "request/mod.rs",
        "            State::Prefilling { window_end } => window_end,",
        "            State::Prefilling { .. } => self.prompt_tokens,",
    ),
    Mutant(
        "only computed tokens are published: while decoding",
        "request/mod.rs",
        "                (self.num_tokens() - 1).max(self.prompt_tokens)",
        "                self.num_tokens()",
        "fused",
        "what_was_computed_is_published_and_nothing_more",
    ),
    Mutant(
        "readmissions: one at a time",
        "plan/prefill.rs",
        "        if self.requests.has_incomplete_recovery() {",
        "        if self.requests.is_empty() {",
    ),
    Mutant(
        "readmissions: one that does not fit never triggers retraction",
        "plan/prefill.rs",
        "            Outcome::NoCapacity | Outcome::NotNow => Line::SealedToNewcomers,",
        "            Outcome::NoCapacity | Outcome::NotNow => {\n"
        "                self.blocked(key);\n"
        "                Line::SealedToNewcomers\n"
        "            }",
        "fused",
        "a_readmission_that_does_not_fit_retracts_nobody",
    ),
    Mutant(
        "a prepaid request is never a victim",
        "plan/retraction.rs",
        "            exemption == Exemption::Falls ||"
        " !self.requests[key].reserve_covers_generation()",
        "            exemption != Exemption::Falls ||"
        " !self.requests[key].reserve_covers_generation()",
    ),
    Mutant(
        "prepaid is judged by the budget open at admission",
        "request/mod.rs",
        "        self.secured_window() >= self.budget_end_tokens - self.prompt_tokens",
        "        self.secured_window() >= self.budget_end_tokens - self.num_tokens()",
        "fused",
        "the_exemption_is_judged_at_admission",
    ),
    Mutant(
        "a step that completes a page is taken for one in place (cache.md §3)",
        "cache/holdings.rs",
        "        (self.published_pages as i64 + 1) * granularity",
        "        (self.published_pages as i64 + 2) * granularity",
        "fused",
        "a_page_that_output_completed_is_found_by_the_next_prompt",
    ),
    Mutant(
        "what rests on a load that failed is found by nobody (cache.md §8)",
        "cache/unproven.rs",
        "        for &basis in holdings.rests_on.iter().chain(&holdings.forwards) {",
        "        for &basis in &holdings.forwards {",
        "fused",
        "no_forward_reads_what_a_failed_load_left",
    ),
    Mutant(
        "what a withheld forward was to compute is found by nobody (§4)",
        "cache/unproven.rs",
        "        for &basis in holdings.rests_on.iter().chain(&holdings.forwards) {",
        "        for &basis in &holdings.rests_on {",
        "fused",
        "no_forward_reads_what_a_withheld_one_left",
    ),
    Mutant(
        "a landing over a load that failed starts over (§4)",
        "scheduler/advance.rs",
        "                    true => self.retract_torn(key),",
        "                    true => {}",
        "peers",
        "a_landing_over_a_load_that_fails_starts_over_when_it_has_landed",
    ),
    Mutant(
        "what is cached is given up in order (cache.md §7)",
        "cache/order.rs",
        "            run.sorted = run.sorted && rank_of(run.last) < rank;",
        "",
    ),
    Mutant(
        "goodput: loads and pinned stores defer it",
        "plan/pressure.rs",
        "            || !self.cache.transfers().owe_nothing()",
        "",
        WORLDS,
        "fused_worlds_end_where_the_batch_is_kept",
    ),
    Mutant(
        "a fetch that found no place on the Host is tried each round (cache.md §8)",
        "plan/admit.rs",
        "        let hangs_on_host = hit.lacks_host_place ||"
        " self.cache.fetches(hit, &request.pages);",
        "        let hangs_on_host = self.cache.fetches(hit, &request.pages);",
        "peers",
        "a_fetch_that_found_no_place_on_the_host_is_tried_again",
    ),
    Mutant(
        "who is passed over without a try would be refused (cache.md §9): in a smaller budget",
        "plan/newcomers.rs",
        "        these.extend(waiting.cheaper_below(self.build.budget_left()));",
        "",
    ),
    Mutant(
        "who is passed over without a try would be refused (cache.md §9): for steps it secures",
        "plan/pressure.rs",
        "        most.min(learned).min(class * STEPS_OF_CLASS_TOKENS)",
        "        most.min(class * STEPS_OF_CLASS_TOKENS)",
    ),
    Mutant(
        "goodput: who gave way twice comes back to stay",
        "plan/pressure.rs",
        "            && self.requests[key].retractions + 1 < self.rules.spared_from;",
        "            && self.requests[key].retractions < 99;",
        "fused",
        "nobody_gives_way_more_than_three_times",
    ),
    Mutant(
        "goodput: who gave way three times is spared in a standstill",
        "plan/pressure.rs",
        "            (!self.is_spared(*key), Some(*key) != oldest, Reverse(retractions),"
        " submission(key))",
        "            (Some(*key) != oldest, Reverse(retractions), submission(key))",
        "fused",
        "who_gave_way_three_times_stays_in_a_standstill",
    ),
    Mutant(
        "goodput: who gave way three times stands back from another such",
        "plan/pressure.rs",
        "        if !self.is_spared(key) {",
        "        if true {",
        "fused",
        "who_gave_way_three_times_comes_back_beside_no_other_such",
    ),
    Mutant(
        "goodput: nobody stands back for a result that never comes",
        "plan/pressure.rs",
        "            request.forwards_out == 0"
        " || request.owed_since_round + LATE_RESULT_ROUNDS > self.number",
        "            request.forwards_out < u32::MAX",
        "fused",
        "who_gave_way_three_times_does_not_wait_for_a_result_that_never_comes",
    ),
    Mutant(
        "goodput: an urgent request leaves nothing aside for steps",
        "plan/pressure.rs",
        "            let most = match self.feedback.pressure.admits_urgent {",
        "            let most = match false {",
        "fused",
        "who_would_end_last_leaves_nothing_aside_for_steps",
    ),
    Mutant(
        "an acknowledgement is of a copy that a plan has carried (cache.md §8)",
        "cache/transfer.rs",
        "        let is_carried = self.ordered_stores.first().is_none_or(|&first| op_id < first);",
        "        let is_carried = true;",
        "peers",
        "a_store_ends_no_sooner_than_a_plan_has_carried_it",
    ),
)
