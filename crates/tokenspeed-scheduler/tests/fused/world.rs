//! The letters of the scenarios: a pool, and what is asked of it.

use tokenspeed_scheduler::{CacheGroupConfig, PressurePolicy, RequestSpec, SchedulerConfig};

use crate::groups::full;

/// A pool and its grammar, in the letters of the scenarios. Tokens and blocks as each field says.
#[allow(non_snake_case)]
#[derive(Debug, Clone)]
pub struct World {
    /// Tokens a block of the one full group; groups of one's own name their grain themselves.
    pub B: i64,
    /// Usable Device blocks.
    pub P: i64,
    /// Host blocks.
    pub H: i64,
    /// Token budget of a round.
    pub C: i64,
    /// Tokens a prefix page; 0 stands for `B`.
    pub page: i64,
    /// Rounds in flight: 1 plans after the result of the round before, 2 ahead of it.
    pub depth: i64,
    /// Tokens of a decode step.
    pub width: i64,
    /// Tokens that a decode step accepts; 0 stands for all.
    pub accepted: i64,
    /// Request-pool rows.
    pub rows: i64,
    /// Whether prompts and decodes share rounds.
    pub mixed: bool,
    /// Whether prompts are not matched.
    pub unmatched: bool,
    /// Who gives way when memory is short.
    pub policy: PressurePolicy,
    /// Cache groups; one full group of `B` where none is named.
    pub groups: Vec<CacheGroupConfig>,
}

impl Default for World {
    fn default() -> World {
        World {
            B: 4,
            P: 8,
            H: 0,
            C: 64,
            page: 0,
            depth: 1,
            width: 1,
            accepted: 0,
            rows: 16,
            mixed: false,
            unmatched: false,
            policy: PressurePolicy::Document,
            groups: Vec::new(),
        }
    }
}

impl World {
    /// The scheduler's configuration.
    pub fn config(&self) -> SchedulerConfig {
        let mut cache_groups = self.groups.clone();
        if cache_groups.is_empty() {
            cache_groups.push(full("full", self.B));
        }
        for group in &mut cache_groups {
            group.total_pages = self.P * group.cache_blocks_per_lcm_block + 1;
        }
        SchedulerConfig {
            prefix_granularity: if self.page == 0 { self.B } else { self.page },
            num_device_pages: self.P + 1,
            num_host_pages: if self.H == 0 { 0 } else { self.H + 1 },
            max_scheduled_tokens: self.C,
            max_batch_size: self.rows,
            decode_input_tokens: self.width,
            overlap_schedule_depth: self.depth - 1,
            cache_groups,
            enable_kv_cache_events: true,
            enable_mixed_prefill_decode: self.mixed,
            disable_prefix_cache: self.unmatched,
            pressure_policy: self.policy,
            ..SchedulerConfig::default()
        }
    }
}

/// What a client asks for. Counts are tokens.
#[derive(Debug, Clone)]
pub struct Asked {
    prompt: i64,
    /// Output after which the client finishes the request.
    pub output: i64,
    budget: i64,
    /// Streams of tokens that the prompt starts with, and how many of each; its own tokens follow.
    shared: Vec<(u64, i64)>,
    /// Tokens that the prompt repeats, ahead of all else.
    head: Vec<i32>,
}

/// R(prompt, output) of the scenarios: the budget is declared, the tokens are its own.
#[allow(non_snake_case)]
pub fn R(prompt: i64, output: i64) -> Asked {
    Asked { prompt, output, budget: output, shared: Vec::new(), head: Vec::new() }
}

impl Asked {
    /// With another declared budget than the output that the client will read.
    pub fn budget(self, budget: i64) -> Asked {
        Asked { budget, ..self }
    }

    /// Without a declared budget: nothing beyond the prompt's own blocks is prepaid.
    pub fn undeclared(self) -> Asked {
        self.budget(0)
    }

    /// With `tokens` tokens of a common stream next in the prompt.
    pub fn sharing(mut self, stream: u64, tokens: i64) -> Asked {
        self.shared.push((stream, tokens));
        self
    }

    /// With these tokens at the head of the prompt.
    pub fn repeating(self, head: &[i32]) -> Asked {
        Asked { head: head.to_vec(), ..self }
    }

    /// As it is submitted.
    pub fn spec(&self, id: &str) -> RequestSpec {
        let mut tokens = self.head.clone();
        let own = id.bytes().fold(7, |sum, byte| mix(sum, u64::from(byte)));
        for &(stream, count) in self.shared.iter().chain(&[(own, self.prompt)]) {
            let from = tokens.len() as i64;
            let count = count.min(self.prompt - from);
            tokens.extend((from..from + count).map(|at| token(mix(stream, at as u64))));
        }
        RequestSpec { request_id: id.into(), tokens, max_new_tokens: self.budget }
    }
}

/// A token drawn from a hash.
pub fn token(hash: u64) -> i32 {
    (hash >> 40) as i32
}

/// SplitMix64 over two words: the same on every machine.
pub fn mix(a: u64, b: u64) -> u64 {
    let mut z = (a ^ b.wrapping_mul(0xd6e8_feb8_6659_fd93)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
