//! How much of a pool an admission leaves to those who run, as far as retractions tell.

/// A share of the pool: every retraction raises it, every request that its client finishes lowers it.
#[derive(Debug, Clone, Copy)]
pub struct Caution {
    /// Beyond the least share, in parts of [`WHOLE`].
    learned: i64,
}

const WHOLE: i64 = 1 << 20;

/// The share of an engine that has learned nothing yet: one part in so many.
const FIRST_PARTS: i64 = 8;

/// The least share: one part in so many.
const LEAST_PARTS: i64 = 256;

/// A retraction raises the share by one part in so many of the pool; a request that ends without more of
/// them lowers it by as large a part of itself.
const WEIGHT: i64 = 128;

/// What can be learned at most: together with the least share, the first one.
const LEARNED_MOST: i64 = WHOLE / FIRST_PARTS - WHOLE / LEAST_PARTS;

impl Default for Caution {
    fn default() -> Caution {
        Caution { learned: LEARNED_MOST }
    }
}

impl Caution {
    /// Notes a retraction for capacity.
    pub fn note_retraction(&mut self) {
        self.learned = (self.learned + WHOLE / WEIGHT).min(LEARNED_MOST);
    }

    /// Notes that a client has finished a request.
    pub fn note_finish(&mut self) {
        self.learned -= self.learned / WEIGHT;
    }

    /// The share of so many blocks, in blocks.
    pub fn of(self, blocks: i64) -> i64 {
        blocks / LEAST_PARTS + blocks * self.learned / WHOLE
    }
}

#[cfg(test)]
mod tests {
    use super::Caution;

    #[test]
    fn retractions_raise_it_and_finished_requests_lower_it() {
        let mut caution = Caution::default();
        assert_eq!(caution.of(6_400), 800);
        (0..5_000).for_each(|_| caution.note_finish());
        assert!((25..35).contains(&caution.of(6_400)));
        (0..10).for_each(|_| caution.note_retraction());
        assert!((520..535).contains(&caution.of(6_400)));
        (0..100).for_each(|_| caution.note_retraction());
        assert_eq!(caution.of(6_400), 800);
    }
}
