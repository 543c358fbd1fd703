//! How long outputs turn out, as far as the requests that clients have finished tell.

/// A running mean of output lengths.
#[derive(Debug, Default, Clone, Copy)]
pub struct OutputLengths {
    /// In tokens; 0 before anybody has finished.
    mean_tokens: i64,
}

/// A finished request moves the mean by one part in so many of its distance.
const WEIGHT: i64 = 16;

impl OutputLengths {
    /// Notes the output of a request that its client has finished.
    pub fn note(&mut self, output_tokens: i64) {
        self.mean_tokens = match self.mean_tokens {
            0 => output_tokens,
            mean => mean + (output_tokens - mean) / WEIGHT,
        };
    }

    /// Tokens that a request may be expected to generate yet, after so many; `None` before anybody has
    /// finished. One that is past the mean is taken for one that begins: of those, nothing is known.
    pub fn expected_rest(&self, generated_tokens: i64) -> Option<i64> {
        match self.mean_tokens {
            0 => None,
            mean if generated_tokens < mean => Some(mean - generated_tokens),
            mean => Some(mean),
        }
    }
}
