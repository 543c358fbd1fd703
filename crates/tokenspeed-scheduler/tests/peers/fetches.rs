//! Prompts that wait for what an external store would bring through the Host (`cache.md` §8).

use tokenspeed_scheduler::{Role, SchedulerConfig, StorageKeys};

use crate::engine::{Engine, config, tokens};
use crate::groups::{full, sliding};

/// A prompt that was refused while the Host had no place for what it would fetch needs less once it has:
/// it is looked at again, although none of its pages was cached (`liveness.md` 1: nobody waits for ever).
#[test]
fn a_fetch_that_found_no_place_on_the_host_is_tried_again() {
    let config = SchedulerConfig {
        prefix_granularity: 2,
        num_device_pages: 15,
        num_host_pages: 4,
        enable_l3_storage: true,
        ..config(Role::Fused, vec![full("full", 2), sliding("window", 2, 2)])
    };
    let mut engine = Engine::new(&config);
    engine.submit("stored", tokens(1, 4), 1).expect("the pool can run it");
    assert_eq!(engine.round(), "P stored");
    engine.result("stored", &[7]);
    engine.finish("stored");
    engine.submit("resident", tokens(2, 2), 6).expect("the pool can run it");
    // The stores take the whole Host until they have ended.
    assert_eq!(engine.round(), "P resident");
    engine.result("resident", &[7]);

    let prompt = tokens(3, 12);
    engine.register(keys_of(&engine, &prompt, &[5, 2]));
    engine.submit("fetcher", prompt, 0).expect("the pool can run it");
    for _ in 0..2 {
        assert_eq!(engine.round(), "D resident");
        engine.result("resident", &[7]);
    }
    engine.end_stores();
    // Up to where the full group's pages end, it fits.
    assert_eq!(engine.round(), "P fetcher");
    assert_eq!(engine.plan.batch.extend_prefix_lens, [4]);
    assert_eq!(engine.plan.batch.input_lengths, [6]);
}

/// Keys of the first pages of a prompt, so many of each group.
fn keys_of(engine: &Engine, prompt: &[i32], pages: &[usize]) -> StorageKeys {
    let scheduler = engine.scheduler();
    let hashes = scheduler.prefix_hashes_for_tokens(prompt);
    let mut keys = StorageKeys::default();
    for (group, &pages) in pages.iter().enumerate() {
        keys.group_ids.extend(std::iter::repeat_n(group as i64, pages));
        keys.content_hashes.extend_from_slice(&hashes[..pages]);
        keys.page_offsets.extend(std::iter::repeat_n(0, pages));
    }
    keys
}
