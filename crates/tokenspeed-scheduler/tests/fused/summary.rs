//! A plan in short.

use std::collections::BTreeMap;

use tokenspeed_scheduler::{ExecutionPlan, Handle};

/// `P a[0+8/24] b[4+4/8]; D c d; R e; X f`, each part where there is any: chunks as begin + size / prompt,
/// decodes, whom the round retracted, whom it ended; `-` for an empty one. `ids` names handles.
pub fn of(plan: &ExecutionPlan, ids: &BTreeMap<Handle, String>) -> String {
    let batch = &plan.batch;
    let chunk = |at: usize| {
        let (begin, size) = (batch.extend_prefix_lens[at], batch.input_lengths[at]);
        format!("{}[{begin}+{size}/{}]", batch.request_ids[at], batch.prefill_lengths[at])
    };
    let decodes = &batch.request_ids[batch.num_extends..];
    let parts: [(&str, Vec<String>); 4] = [
        ("P", (0..batch.num_extends).map(chunk).collect()),
        ("D", decodes.iter().map(|id| id.to_string()).collect()),
        ("R", plan.retracted.iter().map(|handle| ids[handle].clone()).collect()),
        ("X", plan.aborts.iter().map(|notice| notice.request_id.to_string()).collect()),
    ];
    let told = parts.iter().filter(|(_, ids)| !ids.is_empty());
    let told: Vec<String> =
        told.map(|(letter, ids)| format!("{letter} {}", ids.join(" "))).collect();
    if told.is_empty() { "-".into() } else { told.join("; ") }
}
