//! The grammar of a decode worker (`scheduler.md` §3.2).

use super::prefill::Line;
use super::round::Round;

impl Round<'_> {
    /// A local recovery alone in its round; else the decode batch, and beside it at most one admission
    /// whose prompt the peer computes. Where retractions have come to nothing, decodes go first.
    pub fn plan_decode_worker(&mut self) {
        self.end_spent_budgets();
        if self.is_fruitless() {
            self.schedule_decode_batch(0);
        }
        if self.build.is_empty() {
            self.schedule_recovery_and_newcomers();
        }
        self.maybe_retract_for_capacity();
        if self.build.is_empty() && self.nothing_is_owed() {
            self.break_standstill();
        }
    }

    pub(super) fn schedule_recovery_and_newcomers(&mut self) {
        let line = self.schedule_local_recovery();
        if self.build.prefill_progressed() {
            return;
        }
        self.schedule_decode_batch(0);
        // A newcomer could take the very blocks that a recovery waits for (`scheduler.md` §4, §5).
        if line == Line::Free && !self.is_sealed_by_stalled() {
            self.schedule_new_prompts();
        }
    }
}
