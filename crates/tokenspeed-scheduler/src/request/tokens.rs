//! A request's tokens, prompt and output.

use arrayvec::ArrayVec;

/// Tokens, the newest of which may lie in the request itself. The ends of thousands of lists lie on as many
/// pages of memory: to add one token to each costs as much as all else of a round. So they are moved there
/// several at a time.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Tokens {
    settled: Vec<i32>,
    recent: ArrayVec<i32, RECENT_MOST>,
}

/// As many as leave a request at six cache lines.
const RECENT_MOST: usize = 11;

/// Room for output that a request takes at least when it has none left, in tokens.
const STEP: usize = 64;

impl Tokens {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.settled.len() + self.recent.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The newest.
    pub fn last(&self) -> Option<i32> {
        self.recent.last().or(self.settled.last()).copied()
    }

    /// All up to the last [`Tokens::settle`], and perhaps some behind it.
    pub fn settled(&self) -> &[i32] {
        &self.settled
    }

    /// Appends tokens.
    pub fn append(&mut self, tokens: &[i32]) {
        if self.recent.try_extend_from_slice(tokens).is_err() {
            self.settle();
            self.make_room(tokens.len());
            self.settled.extend_from_slice(tokens);
        }
    }

    /// Makes all of them readable as one slice.
    pub fn settle(&mut self) -> &[i32] {
        self.make_room(self.recent.len());
        self.settled.extend(self.recent.drain(..));
        &self.settled
    }

    /// Keeps the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.settle();
        self.settled.truncate(len);
    }

    /// Memory grows by an eighth at a time: to move it costs as much as many steps, and less would be moved
    /// more often.
    fn make_room(&mut self, more: usize) {
        if self.settled.capacity() - self.settled.len() < more {
            self.settled.reserve_exact(more.max(step(self.settled.len())));
        }
    }
}

/// Tokens by which a list of so many grows.
fn step(len: usize) -> usize {
    STEP.max(len / 8)
}

/// A prompt's tokens, with the room for output that a request would otherwise move them for.
pub fn with_room(tokens: &[i32]) -> Vec<i32> {
    let mut roomy = Vec::with_capacity(tokens.len() + step(tokens.len()));
    roomy.extend_from_slice(tokens);
    roomy
}

impl From<Vec<i32>> for Tokens {
    /// A prompt, with room for its first output: prompts that are moved then make one round of decoding long.
    fn from(settled: Vec<i32>) -> Tokens {
        let mut tokens = Tokens { settled, ..Tokens::default() };
        tokens.make_room(1);
        tokens
    }
}

#[cfg(test)]
mod tests {
    use super::Tokens;

    #[test]
    fn a_prompt_has_room_for_its_first_output() {
        let mut tokens = Tokens::from(vec![0; 32_768]);
        let room = tokens.settled.capacity();
        (0..4_096).for_each(|token| tokens.append(&[token]));
        tokens.settle();
        assert_eq!(tokens.settled.capacity(), room);
    }

    #[test]
    fn they_are_one_list_however_they_came() {
        let mut tokens = Tokens::from(vec![0, 1]);
        let mut all = vec![0, 1];
        for (step, many) in [1, 1, 14, 0, 16, 3, 40, 2].into_iter().enumerate() {
            let more: Vec<i32> = (0..many).map(|at| (step * 100 + at) as i32).collect();
            tokens.append(&more);
            all.extend(&more);
            assert_eq!((tokens.len(), tokens.last()), (all.len(), all.last().copied()));
            assert!(all.starts_with(tokens.settled()));
        }
        assert!(tokens.settled().len() < all.len());
        assert_eq!(tokens.settle(), all);
        tokens.append(&[7]);
        tokens.truncate(5);
        assert_eq!((tokens.settled(), tokens.last()), (&all[..5], Some(all[4])));
    }
}
