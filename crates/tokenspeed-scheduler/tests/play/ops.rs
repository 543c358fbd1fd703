//! Random operations over random geometries.

use std::ops::RangeInclusive;

use proptest::prelude::*;
use tokenspeed_scheduler::config::{
    CacheGroupConfig, CacheGroupFamily, CacheRetention, SchedulerConfig,
};

use crate::model::{Group, Model, Shape};

/// Which cache is played on.
#[derive(Debug, Clone)]
pub struct World {
    /// P, in tokens.
    pub p: i64,
    pub groups: Vec<Group>,
    /// Usable parents.
    pub device: u32,
    /// Usable parents; 0 for no Host tier.
    pub host: u32,
}

/// One operation. `who` and `which` count through what there is; token counts otherwise.
#[derive(Debug, Clone)]
pub enum Op {
    /// A new request's first chunk; without `probe` nothing is matched.
    Admit {
        family: usize,
        tokens: i64,
        chunk: i64,
        reserve: i64,
        probe: bool,
    },
    /// The first chunk of the request that was retracted first.
    Readmit {
        chunk: i64,
        reserve: i64,
    },
    /// A next chunk, or a decode step.
    Step {
        who: usize,
        size: i64,
        reserve: i64,
    },
    Finish {
        who: usize,
    },
    Retract {
        who: usize,
    },
    Abort {
        who: usize,
    },
    /// What was published is stored.
    EndPlan,
    /// Of a copy in flight, or of none.
    Acknowledge {
        which: usize,
    },
    ClearDevice,
    ClearAll,
    /// The consumer of cache events is told.
    DrainEvents,
}

/// Token `at` of a family: families share their beginnings, each another length of it.
pub fn token(family: usize, at: usize) -> i32 {
    if at < family * 5 { at as i32 } else { (1000 * (family + 1) + at) as i32 }
}

impl World {
    pub fn config(&self) -> SchedulerConfig {
        SchedulerConfig {
            prefix_granularity: self.p,
            num_device_pages: i64::from(self.device) + 1,
            num_host_pages: i64::from(self.host) + 1,
            max_scheduled_tokens: 1024,
            max_batch_size: 6,
            enable_kv_cache_events: true,
            cache_groups: self
                .groups
                .iter()
                .enumerate()
                .map(|(at, group)| self.group(at, group))
                .collect(),
            ..SchedulerConfig::default()
        }
    }

    fn group(&self, at: usize, group: &Group) -> CacheGroupConfig {
        let mut config = CacheGroupConfig {
            group_id: format!("g{at}"),
            block_granularity: group.g,
            total_pages: i64::from(self.device * group.k) + 1,
            cache_blocks_per_lcm_block: i64::from(group.k),
            ..CacheGroupConfig::default()
        };
        match group.shape {
            Shape::Full => {}
            Shape::State => config.family = CacheGroupFamily::State,
            Shape::Sliding(window) => {
                config.retention = CacheRetention::SlidingWindow;
                config.sliding_window_tokens = Some(window);
            }
        }
        config
    }

    pub fn model(&self) -> Model {
        Model::new(self.groups.clone(), self.p, self.device, self.host)
    }
}

/// Worlds with so many groups and usable Host parents.
pub fn worlds(
    groups: RangeInclusive<usize>,
    host: RangeInclusive<u32>,
) -> impl Strategy<Value = World> {
    let shape = prop_oneof![
        3 => Just(Shape::Full),
        3 => (1i64..=12).prop_map(Shape::Sliding),
        2 => Just(Shape::State),
    ];
    let groups = prop::collection::vec((shape, 0usize..4, 1u32..=3), groups);
    (prop::sample::select(vec![1i64, 2, 4, 6]), groups, 2u32..=16, host).prop_map(
        |(p, groups, device, host)| {
            let divisors: Vec<i64> = (1..=p).filter(|g| p % g == 0).collect();
            let group = |(shape, g, k): (Shape, usize, u32)| Group {
                shape,
                g: divisors[g % divisors.len()],
                k,
            };
            World { p, groups: groups.into_iter().map(group).collect(), device, host }
        },
    )
}

/// How often each operation comes, as weights.
#[derive(Debug, Clone, Copy)]
pub struct Mix {
    admit: u32,
    readmit: u32,
    step: u32,
    finish: u32,
    retract: u32,
    abort: u32,
    end_plan: u32,
    acknowledge: u32,
    clear: u32,
    drain_events: u32,
}

impl Mix {
    /// An engine at work.
    pub const ENGINE: Mix = Mix {
        admit: 8,
        readmit: 3,
        step: 12,
        finish: 4,
        retract: 2,
        abort: 1,
        end_plan: 4,
        acknowledge: 6,
        clear: 1,
        drain_events: 6,
    };
    /// Copies come and go, and the Device forgets.
    pub const COPIES: Mix = Mix {
        admit: 8,
        readmit: 4,
        step: 3,
        finish: 5,
        retract: 3,
        abort: 1,
        end_plan: 2,
        acknowledge: 12,
        clear: 3,
        drain_events: 6,
    };
}

/// Operations in that mix, prompts of up to some thirty tokens.
pub fn ops(length: usize, mix: Mix) -> impl Strategy<Value = Vec<Op>> {
    let tokens = 1i64..=30;
    let chunk = prop_oneof![2 => Just(64i64), 1 => 1i64..=12];
    let reserve = 0i64..=3;
    let who = || 0usize..6;
    let first = (0usize..5, tokens, chunk.clone(), reserve.clone(), prop::bool::weighted(0.9));
    let op = prop_oneof![
        mix.admit => first.prop_map(|(family, tokens, chunk, reserve, probe)| {
            Op::Admit { family, tokens, chunk, reserve, probe }
        }),
        mix.readmit => (chunk, reserve.clone())
            .prop_map(|(chunk, reserve)| Op::Readmit { chunk, reserve }),
        mix.step => (who(), 1i64..=10, reserve)
            .prop_map(|(who, size, reserve)| Op::Step { who, size, reserve }),
        mix.finish => who().prop_map(|who| Op::Finish { who }),
        mix.retract => who().prop_map(|who| Op::Retract { who }),
        mix.abort => who().prop_map(|who| Op::Abort { who }),
        mix.end_plan => Just(Op::EndPlan),
        mix.acknowledge => who().prop_map(|which| Op::Acknowledge { which }),
        mix.clear => Just(Op::ClearDevice),
        1 => Just(Op::ClearAll),
        mix.drain_events => Just(Op::DrainEvents),
    ];
    prop::collection::vec(op, 1..=length)
}
