//! Whether a backlog is being drained, and when it is worth looking how far it is.

/// Rounds without a submission, and the next round in which the whole backlog is looked at.
#[derive(Debug, Default, Clone, Copy)]
pub struct Backlog {
    submitted: u64,
    quiet_since_round: u64,
    next_look_round: u64,
}

impl Backlog {
    /// Notes a round, and how many requests were ever submitted by then. Rounds since the last came; `None`
    /// where it is too early for another look.
    pub fn quiet_rounds(&mut self, submitted: u64, round: u64) -> Option<i64> {
        if submitted != self.submitted {
            self.submitted = submitted;
            self.quiet_since_round = round;
        }
        (round >= self.next_look_round).then_some((round - self.quiet_since_round) as i64)
    }

    /// Has the next look so many rounds after this one, and one at least.
    pub fn look_again_after(&mut self, round: u64, rounds: i64) {
        self.next_look_round = round + rounds.max(1) as u64;
    }
}
