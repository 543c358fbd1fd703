//! Random operations over random geometries.

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
    Admit { family: usize, tokens: i64, chunk: i64, reserve: i64, probe: bool },
    /// The first chunk of the request that was retracted first.
    Readmit { chunk: i64, reserve: i64 },
    /// A next chunk, or a decode step.
    Step { who: usize, size: i64, reserve: i64 },
    Finish { who: usize },
    Retract { who: usize },
    Abort { who: usize },
    /// What was published is stored.
    EndPlan,
    /// Of a copy in flight, or of none.
    Acknowledge { which: usize },
    ClearDevice,
    ClearAll,
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
            cache_groups: self.groups.iter().enumerate().map(|(at, group)| self.group(at, group)).collect(),
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

/// Worlds of one to three groups.
pub fn worlds() -> impl Strategy<Value = World> {
    let shape = prop_oneof![
        3 => Just(Shape::Full),
        3 => (1i64..=12).prop_map(Shape::Sliding),
        2 => Just(Shape::State),
    ];
    let group = (shape, 0usize..4, 1u32..=3);
    let groups = prop::collection::vec(group, 1..=3);
    (prop::sample::select(vec![1i64, 2, 4, 6]), groups, 2u32..=16, 0u32..=8).prop_map(
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

/// Operations of an engine's life, prompts of up to some thirty tokens.
pub fn ops(length: usize) -> impl Strategy<Value = Vec<Op>> {
    let chunk = prop_oneof![2 => Just(64i64), 1 => 1i64..=12];
    let reserve = 0i64..=3;
    let who = 0usize..6;
    let op = prop_oneof![
        8 => (0usize..5, 1i64..=30, chunk.clone(), reserve.clone(), prop::bool::weighted(0.9)).prop_map(
            |(family, tokens, chunk, reserve, probe)| Op::Admit { family, tokens, chunk, reserve, probe }
        ),
        3 => (chunk, reserve.clone()).prop_map(|(chunk, reserve)| Op::Readmit { chunk, reserve }),
        12 => (who.clone(), 1i64..=10, reserve)
            .prop_map(|(who, size, reserve)| Op::Step { who, size, reserve }),
        4 => who.clone().prop_map(|who| Op::Finish { who }),
        2 => who.clone().prop_map(|who| Op::Retract { who }),
        1 => who.clone().prop_map(|who| Op::Abort { who }),
        4 => Just(Op::EndPlan),
        6 => who.prop_map(|which| Op::Acknowledge { which }),
        1 => Just(Op::ClearDevice),
        1 => Just(Op::ClearAll),
    ];
    prop::collection::vec(op, 1..=length)
}
