//! What a prefill's admission asks of each group. This is the only place that sets a reserve, and it
//! picks the rule by the group's retention (`scheduler.md` §1, Reserve).

use super::chunk::Chunk;
use super::rules::Rules;
use crate::cache::{Demand, Geometry};
use crate::config::GroupKind;
use crate::request::Request;

/// What holds for all groups of one prefill admission. Token counts.
#[derive(Debug, Clone, Copy)]
pub struct PrefillReserve {
    /// Whether the chunk opens an admission.
    first: bool,
    /// Whether the chunk completes the prompt, so that a decode step follows.
    completes: bool,
    /// What a decode step behind the prompt may write: the step's width, or less near the end of a
    /// declared budget, so that a readmission never holds more than the bound counted for the request.
    decode_slot: i64,
    /// Held by full groups from a first chunk on: the rest of the prompt and the headroom.
    headroom: i64,
}

impl PrefillReserve {
    /// The reserve of a chunk; `first` where it opens an admission.
    pub fn new(rules: &Rules, request: &Request, chunk: Chunk, first: bool) -> PrefillReserve {
        let decodes = rules.config.role.decodes();
        let headroom =
            if first && decodes && !rules.keeps_batch { request.admission_headroom() } else { 0 };
        let rest = request.prompt_tokens - chunk.end();
        let open = match request.max_new_tokens() {
            _ if !decodes => rules.decode_width,
            0 => rules.decode_width,
            budget => rules.limit_of(request.submitted_tokens, budget) - chunk.end(),
        };
        PrefillReserve {
            first,
            completes: rest == 0,
            decode_slot: rules.decode_width.min(open),
            // Without a declared budget there is no headroom to hold, and the rest of the prompt is
            // admitted chunk by chunk.
            headroom: if headroom == 0 { 0 } else { rest + headroom },
        }
    }

    /// The reserve of a first chunk as if it did not complete its prompt.
    pub fn of_incomplete(rules: &Rules, request: &Request, chunk: Chunk) -> PrefillReserve {
        PrefillReserve { completes: false, ..PrefillReserve::new(rules, request, chunk, true) }
    }
}

/// One demand a group.
pub fn prefill_demands(
    rules: &Rules,
    geometries: &[Geometry],
    chunk: Chunk,
    reserve: PrefillReserve,
) -> Vec<Demand> {
    let decode_slot = if reserve.completes { reserve.decode_slot } else { 0 };
    // A prefill worker grows no state; what its hand-over will take is kept free from here on
    // (`liveness.md`, "the role without retraction fills up").
    let behind = if reserve.completes { 1 } else { 0 };
    let (grown, promised) = if rules.config.role.decodes() { (behind, 0) } else { (0, behind) };
    let demand = |(geometry, &growth): (&Geometry, &i64)| match geometry.kind {
        GroupKind::Full => {
            Demand::Dense { tokens: chunk.size, reserve: decode_slot.max(reserve.headroom) }
        }
        // A hit claims nothing of it: the table begins with the window that is re-fed.
        GroupKind::Sliding { .. } if geometry.replayable && reserve.first => Demand::SparseSuffix {
            extent: chunk.end(),
            first_slot: (chunk.input_begin() / geometry.block_granularity) as usize,
            reserve: decode_slot,
            promised: 0,
        },
        // Slid-out pages are used again, so the rest of the prompt costs nothing.
        GroupKind::Sliding { .. } => Demand::Dense { tokens: chunk.size, reserve: decode_slot },
        GroupKind::State => Demand::SparseSuffix {
            extent: chunk.end(),
            first_slot: first_state_slot(rules, geometry, chunk),
            reserve: grown * growth,
            promised: promised * growth,
        },
    };
    geometries.iter().zip(&rules.state_growth).map(demand).collect()
}

/// One demand a group for a prompt that a peer computes and lands whole, behind a hit that ends where
/// `chunk` begins (`scheduler.md` §3.2): all of a full group's rows, the tail that the first decode
/// step reads of a sliding one, the endpoint of a state (`cache.md` §5).
pub fn landing_demands(
    rules: &Rules,
    geometries: &[Geometry],
    chunk: Chunk,
    reserve: PrefillReserve,
) -> Vec<Demand> {
    let extent = chunk.end();
    let demand = |(geometry, &growth): (&Geometry, &i64)| match geometry.kind {
        GroupKind::Full => {
            let reserve = reserve.decode_slot.max(reserve.headroom);
            Demand::Dense { tokens: chunk.size, reserve }
        }
        GroupKind::Sliding { .. } => Demand::SparseSuffix {
            extent,
            first_slot: geometry.first_retained_slot(extent),
            reserve: reserve.decode_slot,
            promised: 0,
        },
        GroupKind::State => Demand::SparseSuffix {
            extent,
            first_slot: geometry.slots_for(extent) - 1,
            reserve: growth,
            promised: 0,
        },
    };
    geometries.iter().zip(&rules.state_growth).map(demand).collect()
}

/// The slot of the chunk's aligned checkpoint, or of its endpoint where it passes no boundary: the
/// earlier ones are never materialized (`scheduler.md` §1.2).
fn first_state_slot(rules: &Rules, geometry: &Geometry, chunk: Chunk) -> usize {
    let from = chunk.last_aligned_boundary(rules.granularity).unwrap_or(chunk.end());
    geometry.slots_for(from) - 1
}
