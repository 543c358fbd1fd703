//! A request as its client and the device know it.

use std::collections::VecDeque;

use tokenspeed_scheduler::plan::AbortNotice;

use crate::world::{Asked, mix, token};

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Finished,
    /// By its client.
    Aborted,
    /// By the scheduler.
    Ended(AbortNotice),
}

/// A request as its client and the device know it.
#[derive(Debug)]
pub struct Life {
    pub asked: Asked,
    prompt: usize,
    /// Prompt and all that the device has sampled, landed or not.
    pub tokens: Vec<i32>,
    /// Of each token, a hash of all up to it.
    pub hashes: Vec<u64>,
    /// How many tokens the client has.
    pub landed: usize,
    /// Results out, in order.
    pub out: VecDeque<ResultOut>,
    /// How it ended; its late results still arrive.
    pub outcome: Option<Outcome>,
    /// Retractions by the scheduler, each with the output that had landed by then.
    pub retracted_at: Vec<usize>,
    /// Prompt tokens that forwards of it computed, repeats included.
    pub prefilled: usize,
    /// Tokens that it found in the cache, at all its admissions.
    pub hit: usize,
}

/// The result of a forward that was launched.
#[derive(Debug)]
pub struct ResultOut {
    /// The round in which it lands.
    pub due: u64,
    /// What was sampled.
    pub tokens: Vec<i32>,
}

impl Life {
    /// A request just submitted.
    pub fn new(asked: &Asked, prompt: &[i32]) -> Life {
        let mut life = Life {
            asked: asked.clone(),
            prompt: prompt.len(),
            tokens: Vec::new(),
            hashes: Vec::new(),
            landed: prompt.len(),
            out: VecDeque::new(),
            outcome: None,
            retracted_at: Vec::new(),
            prefilled: 0,
            hit: 0,
        };
        prompt.iter().for_each(|&token| life.extend(token));
        life
    }

    /// Output that its client has read.
    pub fn output(&self) -> usize {
        self.landed - self.prompt
    }

    /// The results that are out will count for nothing; their tokens.
    pub fn forfeit(&mut self) -> Vec<Vec<i32>> {
        self.tokens.truncate(self.landed);
        self.hashes.truncate(self.landed);
        self.out.drain(..).map(|result| result.tokens).collect()
    }

    /// Appends a token.
    pub fn extend(&mut self, token: i32) {
        let prior = self.hashes.last().copied().unwrap_or(0);
        self.tokens.push(token);
        self.hashes.push(mix(prior, token as u64));
    }

    /// The token that a greedy sampler draws from all of them.
    pub fn sample(&self) -> i32 {
        token(mix(*self.hashes.last().expect("a prompt has tokens"), 99))
    }
}
