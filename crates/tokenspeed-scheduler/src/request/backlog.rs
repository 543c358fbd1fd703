//! Whether a backlog is whole, and when it is worth a look how much of it is left.

/// Rounds after which it is taken for quiet.
const QUIET_ROUNDS: i64 = 32;

/// Rounds without a submission, and the round of the next look.
#[derive(Debug, Default, Clone, Copy)]
pub struct Backlog {
    submitted: u64,
    quiet_since_round: u64,
    next_look_round: u64,
}

impl Backlog {
    /// Notes in a round how many requests were ever submitted.
    pub fn note_submitted(&mut self, submitted: u64, round: u64) {
        if submitted != self.submitted {
            self.submitted = submitted;
            self.quiet_since_round = round;
        }
    }

    /// Rounds since the one that first knew of the last submission; 0 in that one.
    pub fn quiet_rounds(&self, round: u64) -> i64 {
        (round - self.quiet_since_round) as i64
    }

    /// Whether nobody has come for some rounds.
    pub fn has_been_quiet(&self, round: u64) -> bool {
        self.quiet_rounds(round) >= QUIET_ROUNDS
    }

    /// Whether it is time for a look.
    pub fn is_due(&self, round: u64) -> bool {
        round >= self.next_look_round
    }

    /// Has the next look so many rounds after this one, and one at least.
    pub fn look_after(&mut self, round: u64, rounds: i64) {
        self.next_look_round = round + rounds.max(1) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::Backlog;

    #[test]
    fn a_submission_ends_the_quiet_and_brings_no_look_forward() {
        let mut backlog = Backlog::default();
        backlog.note_submitted(3, 1);
        assert_eq!(backlog.quiet_rounds(1), 0);
        assert!(backlog.is_due(1));
        backlog.look_after(1, 4);
        backlog.note_submitted(3, 4);
        assert_eq!(backlog.quiet_rounds(4), 3);
        assert!(!backlog.is_due(4));
        backlog.note_submitted(4, 5);
        assert_eq!(backlog.quiet_rounds(5), 0);
        assert!(backlog.is_due(5));
        backlog.look_after(5, -7);
        assert!(!backlog.is_due(5) && backlog.is_due(6));
        assert!(!backlog.has_been_quiet(36) && backlog.has_been_quiet(37));
    }
}
