//! The state machine of a request. A state says which phase of a round may move it; what it holds
//! lies in its [`Holdings`](crate::cache::Holdings) and moves with it whole.
//!
//! ```text
//!   Bootstrapping (P, D)
//!        v
//!   Submitted --> Prefilling --> PrefillDone --> Decoding --> (finished, gone)
//!     |   |          ^  \____________|___^_________|
//!     |   '----------+------- Retracted <-|--------'
//!     |                                   |
//!     '--> RemotePrefilling (D) ----------'      PrefillDone --> RemoteDecoding (P) --> (gone)
//! ```

/// Where a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Prefill and decode role: waits for the peer's handshake.
    Bootstrapping,
    /// Waits for its first admission.
    Submitted,
    /// Some of its prompt is scheduled.
    Prefilling {
        /// End of the last scheduled chunk, in tokens.
        window_end: i64,
    },
    /// Decode role: its blocks are granted, and the peer writes its prompt into them.
    RemotePrefilling,
    /// All of its prompt is scheduled, here or by the peer; no decode step is.
    PrefillDone,
    /// A decode step was scheduled.
    Decoding,
    /// Prefill role: handed to the peer, which reads its blocks.
    RemoteDecoding,
    /// Its client has given it up while a peer may still use its blocks: they wait for the peer's word.
    Draining,
    /// Gave its blocks up and waits to come back.
    Retracted {
        /// Its place among those that recover: the number of the retraction, or of the submission where
        /// the engine keeps its batch. The lowest comes back first.
        epoch: u64,
        /// A client is reading its output: it comes back before those without.
        resumes_generation: bool,
        /// It comes back by readmission: from what the Host holds of it, and on the decode role in any
        /// case, which has no other way. Otherwise it competes as a new prompt.
        recovers_in_order: bool,
    },
}

impl State {
    /// The state's name, for errors and reports.
    pub fn name(self) -> &'static str {
        match self {
            State::Bootstrapping => "Bootstrapping",
            State::Submitted => "Submitted",
            State::Prefilling { .. } => "Prefilling",
            State::RemotePrefilling => "RemotePrefilling",
            State::PrefillDone => "PrefillDone",
            State::Decoding => "Decoding",
            State::RemoteDecoding => "RemoteDecoding",
            State::Draining => "Draining",
            State::Retracted { .. } => "Retracted",
        }
    }

    /// Waits in submission order for a first admission (`scheduler.md` §4, admitsLikeNewPrompt).
    pub fn admits_like_new_prompt(self) -> bool {
        matches!(self, State::Submitted | State::Retracted { recovers_in_order: false, .. })
    }

    /// Waits to come back from what is held of it (`scheduler.md` §4).
    pub fn is_readmission(self) -> bool {
        matches!(self, State::Retracted { recovers_in_order: true, .. })
    }

    /// Waits for an admission, first or repeated.
    pub fn waits_for_admission(self) -> bool {
        self.admits_like_new_prompt() || self.is_readmission()
    }

    /// Holds blocks, and its next word is the peer's.
    pub fn is_with_peer(self) -> bool {
        matches!(self, State::RemotePrefilling | State::RemoteDecoding | State::Draining)
    }

    /// Holds blocks.
    pub fn is_resident(self) -> bool {
        !matches!(self, State::Bootstrapping | State::Submitted | State::Retracted { .. })
    }
}
