//! How long outputs turn out, as far as the requests that clients have finished tell.

/// A running mean of output lengths, and of how far they lie from it.
#[derive(Debug, Default, Clone, Copy)]
pub struct OutputLengths {
    /// [`WEIGHT`] times the mean, in tokens; 0 before anybody has finished.
    scaled_mean_tokens: i64,
    /// [`WEIGHT`] times the mean distance, in tokens.
    scaled_spread_tokens: i64,
}

/// A finished request moves the mean by one part in so many of its distance.
const WEIGHT: i64 = 16;

impl OutputLengths {
    /// Notes the output of a request that its client has finished.
    pub fn note(&mut self, output_tokens: i64) {
        if self.scaled_mean_tokens > 0 {
            let distance = (output_tokens - self.scaled_mean_tokens / WEIGHT).abs();
            self.scaled_spread_tokens += distance - self.scaled_spread_tokens / WEIGHT;
        }
        self.scaled_mean_tokens = match self.scaled_mean_tokens {
            0 => output_tokens * WEIGHT,
            scaled => scaled + output_tokens - scaled / WEIGHT,
        };
    }

    /// How far an output is from what is expected, on average, in tokens.
    pub fn spread(&self) -> i64 {
        self.scaled_spread_tokens / WEIGHT
    }

    /// Tokens that a request may be expected to generate yet, after so many; `None` before anybody has
    /// finished. One that is past the mean is taken for one that begins: of those, nothing is known.
    pub fn expected_rest(&self, generated_tokens: i64) -> Option<i64> {
        match self.scaled_mean_tokens / WEIGHT {
            0 => None,
            mean if generated_tokens < mean => Some(mean - generated_tokens),
            mean => Some(mean),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::OutputLengths;

    #[test]
    fn the_mean_follows_however_near() {
        let mut outputs = OutputLengths::default();
        assert_eq!(outputs.expected_rest(0), None);
        outputs.note(1);
        (0..200).for_each(|_| outputs.note(16));
        assert!((15..=16).contains(&outputs.expected_rest(0).expect("somebody has finished")));
        assert!(outputs.spread() <= 1);
        (0..200).for_each(|at| outputs.note([6, 26][at % 2]));
        assert!((9..=11).contains(&outputs.spread()));
    }
}
