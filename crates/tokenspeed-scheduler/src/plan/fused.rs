//! The grammar of a fused engine: everything local (`scheduler.md` §3.3).

use super::round::Round;

impl Round<'_> {
    /// Mixed: decodes first, since clients are reading them, and prompts take what budget they leave.
    /// Unmixed: prompts first and alone, decodes only in a round without any. Where retractions have
    /// come to nothing, decodes go first in either mode, and leave nothing aside.
    pub fn plan_fused(&mut self) {
        self.end_spent_budgets();
        self.rotate();
        let mixed = self.rules.config.enable_mixed_prefill_decode;
        if mixed || self.is_fruitless() {
            self.schedule_decode_batch(self.prefill_reserve());
            if mixed || self.build.is_empty() {
                self.schedule_local_prefill_work();
            }
        } else {
            self.schedule_local_prefill_work();
            if !self.build.prefill_progressed() {
                self.schedule_decode_batch(0);
            }
        }
        self.maybe_retract_for_capacity();
        // Such a round has sent nothing out: what is owed is owed from before.
        if self.build.is_empty() && self.nothing_is_owed() {
            self.break_standstill();
        }
    }

    /// Budget that decodes leave to a pending prompt of a model whose prompts cannot advance by less.
    fn prefill_reserve(&self) -> i64 {
        let pending = self.requests.num_waiting() > 0 || self.requests.has_incomplete_prefill();
        if pending && !self.is_fruitless() { self.rules.least_prefill_budget } else { 0 }
    }
}
