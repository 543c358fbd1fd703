//! The grammar of a prefill worker (`scheduler.md` §3.1).

use super::round::Round;

impl Round<'_> {
    /// Completed prompts go out first; then prompts, under way and new. Nothing is ever retracted: a
    /// peer reads the blocks from the first chunk on, and its word alone frees them.
    pub fn plan_prefill_worker(&mut self) {
        self.hand_over_completed();
        self.schedule_local_prefill_work();
        if self.build.is_empty() && self.nothing_is_owed() {
            self.end_stranded();
        }
    }
}
