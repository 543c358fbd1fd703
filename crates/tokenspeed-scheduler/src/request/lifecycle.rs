//! The state machine of a request. A state says which phase of a round may move it; what it holds
//! lies in its [`Holdings`](crate::cache::Holdings) and moves with it whole.
//!
//! ```text
//!   Submitted --> Prefilling --> PrefillDone --> Decoding --> (finished, gone)
//!       |             ^  \____________|_____________|
//!       '-------------+------- Retracted <----------'
//! ```

/// Where a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Waits for its first admission.
    Submitted,
    /// Some of its prompt is scheduled.
    Prefilling {
        /// End of the last scheduled chunk, in tokens.
        window_end: i64,
    },
    /// All of its prompt is scheduled; no decode step is.
    PrefillDone,
    /// A decode step was scheduled.
    Decoding,
    /// Gave its blocks up and waits to come back.
    Retracted {
        /// Number of the retraction: the oldest comes back first.
        epoch: u64,
        /// A client is reading its output: it comes back before those without.
        resumes_generation: bool,
        /// The Host holds its blocks as far as there was room; without, it competes as a new prompt.
        has_recoverable_snapshot: bool,
    },
}

impl State {
    /// The state's name, for errors and reports.
    pub fn name(self) -> &'static str {
        match self {
            State::Submitted => "Submitted",
            State::Prefilling { .. } => "Prefilling",
            State::PrefillDone => "PrefillDone",
            State::Decoding => "Decoding",
            State::Retracted { .. } => "Retracted",
        }
    }

    /// Waits in submission order for a first admission (`scheduler.md` §4, admitsLikeNewPrompt).
    pub fn admits_like_new_prompt(self) -> bool {
        matches!(self, State::Submitted | State::Retracted { has_recoverable_snapshot: false, .. })
    }

    /// Holds blocks.
    pub fn is_resident(self) -> bool {
        !matches!(self, State::Submitted | State::Retracted { .. })
    }
}
