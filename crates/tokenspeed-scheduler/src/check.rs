//! The checkers: every invariant, looked at whole (`liveness.md`; `scheduler.md` §5). Tests and debug
//! builds run them after every call.

use crate::request::{Request, State};
use crate::scheduler::Scheduler;

/// All checkers; the first broken invariant, in words.
pub fn all(scheduler: &Scheduler) -> Result<(), String> {
    let holdings = scheduler.requests.iter().map(|(_, r)| (&r.holdings, r.pages.as_slice()));
    scheduler.cache.check(holdings)?;
    let mut seated = 0;
    for (key, request) in scheduler.requests.iter() {
        check_request(scheduler, request)
            .map_err(|what| format!("request '{}': {what}", request.id))?;
        if request.holdings.is_resident() {
            seated += 1;
            let handle = scheduler.rows.handle(request.holdings.row);
            if scheduler.rows.find(handle) != Some(key) {
                return Err(format!("request '{}' is not in its row", request.id));
            }
        }
        let found = |last| scheduler.requests.find_retracted(last) == Some(key);
        if !request.last_handle.is_none_or(found) {
            return Err(format!("request '{}' is not found by its last handle", request.id));
        }
    }
    if seated != scheduler.rows.in_use() {
        return Err(format!("{seated} requests are seated in {} rows", scheduler.rows.in_use()));
    }
    Ok(())
}

fn check_request(scheduler: &Scheduler, request: &Request) -> Result<(), String> {
    let granularity = scheduler.rules.granularity;
    let resident = request.state().is_resident();
    if resident != request.holdings.is_resident() {
        return Err(format!("{} with row {}", request.state().name(), request.holdings.row));
    }
    if request.pages.len() as i64 != request.num_tokens() / granularity {
        return Err("pages are named that its tokens do not fill, or the reverse".into());
    }
    let settled = request.tokens.settled().len() as i64;
    if settled < request.prompt_tokens.max(request.pages.len() as i64 * granularity) {
        return Err(format!(
            "{settled} tokens are settled, fewer than its prompt or its pages have"
        ));
    }
    // Only computed tokens are published (`scheduler.md` §5); a first hit was computed by others.
    let computed_pages = request.computed_tokens() / granularity;
    let computed_here = !matches!(request.state(), State::RemotePrefilling | State::Draining);
    if resident && computed_here && request.holdings.published_pages as i64 > computed_pages {
        return Err(format!(
            "{} pages are published of {computed_pages} computed",
            request.holdings.published_pages
        ));
    }
    if request.forwards_out > scheduler.rules.overlap_depth + 1 {
        return Err(format!("{} results are out", request.forwards_out));
    }
    if !resident && request.forwards_out > 0 {
        return Err("results are out against no blocks".into());
    }
    if request.chunks_out > request.forwards_out {
        return Err("more chunks than forwards are out".into());
    }
    let sample_out =
        request.num_tokens() == request.prompt_tokens && request.forwards_out > request.chunks_out;
    let prefills_out = request.chunks_out as usize + usize::from(sample_out);
    let found = request.holdings.forwards.len();
    if found != prefills_out {
        return Err(format!(
            "{found} forwards over its prompt are watched, {prefills_out} are out"
        ));
    }
    // Every token whose row a scheduled forward writes has a place in every full group.
    let written = match request.state() {
        State::Prefilling { window_end } => window_end,
        State::PrefillDone | State::Decoding | State::RemotePrefilling | State::RemoteDecoding => {
            request.prompt_tokens
        }
        State::Bootstrapping | State::Submitted | State::Retracted { .. } | State::Draining => 0,
    };
    for group in 0..request.holdings.groups.len() {
        let demanded = request.holdings.demanded_tokens(group);
        if resident && demanded < written {
            return Err(format!(
                "group {group} has room for {demanded} tokens, {written} are written"
            ));
        }
    }
    Ok(())
}
