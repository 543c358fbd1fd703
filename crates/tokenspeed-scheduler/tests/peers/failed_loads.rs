//! Loads that fail (`cache.md` §8, `scheduler.md` §4): nobody ever finds what was computed over one,
//! whoever holds it when the word comes (`liveness.md` 3).

use tokenspeed_scheduler::{Event, Role, SchedulerConfig};

use crate::engine::{Engine, config, tokens};
use crate::groups::full;

fn with_host(role: Role) -> SchedulerConfig {
    let pages = 33;
    SchedulerConfig {
        num_device_pages: pages,
        num_host_pages: pages,
        ..config(role, vec![full("full", 4)])
    }
}

/// How `b` leaves, and when its load fails.
type Departure = fn(&mut Engine, u64);

/// What a peer says of `b`.
type Word = fn(&mut Engine);

fn failure(load: u64) -> Event {
    Event::LoadBackDone { op_id: load, success: false }
}

/// Two pages of a prompt on the Host alone, and `b`, which loads them and computes a third; its result is
/// in. The load.
fn computed_over_a_load(engine: &mut Engine) -> u64 {
    let role = engine.scheduler().config().role;
    let begin = |engine: &mut Engine, id: &str, count: i32| {
        engine.submit(id, tokens(1, count), 8).expect("the pool can run it");
        if role == Role::P {
            engine.tell(Event::Bootstrapped { request_id: id.into() });
        }
        engine.round();
        engine.plan.load_back.op_ids.first().copied()
    };
    assert_eq!(begin(engine, "z", 9), None);
    engine.result("z", &[7]);
    match role {
        Role::P => {
            assert_eq!(engine.round(), "hand over z");
            engine.succeeded("z");
        }
        _ => engine.finish("z"),
    }
    engine.round();
    engine.end_copies();
    assert!(engine.clear_l1_cache());
    let load = begin(engine, "b", 14).expect("two pages lie on the Host");
    assert_eq!(engine.plan.batch.extend_prefix_lens, [8]);
    engine.result("b", &[7]);
    load
}

/// Runs a prompt to its first token and stores what it computed. The load that it began with, if any, is
/// left in flight.
fn run(engine: &mut Engine, id: &str, tokens: Vec<i32>) -> Option<u64> {
    engine.submit(id, tokens, 0).expect("the pool can run it");
    engine.round();
    let load = engine.plan.load_back.op_ids.first().copied();
    engine.result(id, &[7]);
    engine.finish(id);
    engine.round();
    engine.end_stores();
    load
}

/// The hit of a request that the last plan prefills, in tokens.
fn prefix_of(engine: &Engine, id: &str) -> i32 {
    let at = engine.plan.batch.request_ids.iter().position(|other| **other == *id);
    engine.plan.batch.extend_prefix_lens[at.expect("it runs")]
}

/// `c` with the prompt of `b` finds nothing.
fn nothing_is_found(engine: &mut Engine, after: &str) {
    engine.round();
    engine.end_stores();
    engine.submit("c", tokens(1, 14), 8).expect("the pool can run it");
    if engine.scheduler().config().role == Role::P {
        engine.tell(Event::Bootstrapped { request_id: "c".into() });
    }
    engine.round();
    let batch = &engine.plan.batch;
    let at = batch.request_ids.iter().position(|id| **id == *"c").expect("c has its place");
    assert_eq!(batch.extend_prefix_lens[at], 0, "after: {after}");
}

#[test]
fn nothing_computed_over_a_failed_load_is_found() {
    let departures: [(&str, Departure); 7] = [
        ("it stays", |engine, load| engine.tell(failure(load))),
        ("finish, failure", |engine, load| {
            engine.finish("b");
            engine.tell(failure(load));
        }),
        ("finish, stored, failure", |engine, load| {
            engine.finish("b");
            engine.round();
            engine.end_stores();
            engine.tell(failure(load));
        }),
        ("decode, retract, failure", |engine, load| {
            engine.round();
            engine.tell(Event::Retract { request_id: "b".into() });
            engine.tell(failure(load));
        }),
        ("decode, abort, failure", |engine, load| {
            engine.round();
            engine.abort("b");
            engine.tell(failure(load));
        }),
        ("decode, failure, abort", |engine, load| {
            engine.round();
            engine.tell(failure(load));
            engine.abort("b");
        }),
        ("a partner hits it and finishes, failure", |engine, load| {
            engine.round();
            engine.submit("d", tokens(1, 18), 8).expect("the pool can run it");
            engine.result("b", &[8]);
            engine.round();
            assert_eq!(engine.plan.batch.extend_prefix_lens, [12], "what b has published");
            engine.finish("b");
            engine.result("d", &[7]);
            engine.finish("d");
            engine.tell(failure(load));
        }),
    ];
    for (name, depart) in departures {
        let mut engine = Engine::new(&with_host(Role::Fused));
        let load = computed_over_a_load(&mut engine);
        depart(&mut engine, load);
        nothing_is_found(&mut engine, name);
    }
}

#[test]
fn nothing_that_a_peer_reads_is_found_when_its_load_fails() {
    let words: [(&str, Word); 3] = [
        ("with its peer", |_| {}),
        ("the peer is done", |engine| engine.succeeded("b")),
        ("given up", |engine| engine.abort("b")),
    ];
    for (name, word) in words {
        for fails_first in [false, true] {
            let mut engine = Engine::new(&with_host(Role::P));
            let load = computed_over_a_load(&mut engine);
            assert_eq!(engine.round(), "hand over b");
            if fails_first {
                engine.tell(failure(load));
                word(&mut engine);
            } else {
                word(&mut engine);
                engine.tell(failure(load));
            }
            nothing_is_found(&mut engine, name);
        }
    }
}

/// A request that hits a load of somebody else goes with it, and so does one that hits what that one
/// published.
#[test]
fn whoever_hits_what_rests_on_a_load_goes_with_it() {
    let mut engine = Engine::new(&with_host(Role::Fused));
    let load = computed_over_a_load(&mut engine);
    engine.round();
    engine.submit("d", tokens(1, 18), 8).expect("the pool can run it");
    engine.submit("e", tokens(2, 5), 8).expect("the pool can run it");
    engine.result("b", &[8]);
    assert_eq!(engine.round(), "P d e");
    assert_eq!(engine.plan.batch.extend_prefix_lens, [12, 0]);
    engine.tell(failure(load));
    let size = engine.scheduler().waiting_size();
    assert_eq!(size, 2, "b and d wait, e goes on");
    engine.result("e", &[8]);
    assert_eq!(engine.round(), "P b d", "they start over");
    assert_eq!(engine.plan.batch.extend_prefix_lens[..1], [0]);
}

/// On the decode role a local recovery whose load fails starts over here: no peer is asked again.
fn recovering(engine: &mut Engine) -> u64 {
    engine.arrive("a", tokens(1, 10), 0);
    engine.arrive("b", tokens(2, 10), 0);
    engine.round();
    engine.landed("a");
    engine.round();
    engine.landed("b");
    engine.result("a", &[8]);
    for _ in 0..16 {
        engine.round();
        if let Some(&load) = engine.plan.load_back.op_ids.first() {
            return load;
        }
        engine.end_stores();
        for id in engine.plan.batch.request_ids.clone().iter() {
            engine.result(id, &[8]);
            if **id == *"b" && engine.scheduler().request_token_size("b") > 17 {
                engine.finish("b");
            }
        }
    }
    panic!("nobody was retracted and came back");
}

/// Tokens that the first prefill of the plan found on the Device, and on the Host.
fn hit(engine: &Engine) -> (i32, i32) {
    let batch = &engine.plan.batch;
    (batch.device_hit_tokens[0], batch.host_hit_tokens[0])
}

fn decode_worker() -> SchedulerConfig {
    SchedulerConfig { num_host_pages: 33, ..config(Role::D, vec![full("full", 4)]) }
}

#[test]
fn a_local_recovery_whose_load_fails_starts_over_here() {
    let mut engine = Engine::new(&decode_worker());
    let load = recovering(&mut engine);
    let (device, host) = hit(&engine);
    assert!(host > 0);
    engine.tell(failure(load));
    assert_eq!(engine.round(), "P a");
    assert_eq!(hit(&engine), (device, 0));
    engine.result("a", &[8]);
    assert_eq!(engine.round(), "D a");
    engine.result("a", &[8]);
    engine.finish("a");
    engine.settle();
}

/// A landing that hits what a recovery loads: its peer goes on writing when the load fails, and at its word
/// the request starts over here, with the token that the peer has sampled.
#[test]
fn a_landing_over_a_load_that_fails_starts_over_when_it_has_landed() {
    let mut engine = Engine::new(&decode_worker());
    let load = recovering(&mut engine);
    let (device, host) = hit(&engine);
    engine.result("a", &[8]);
    let mut prompt = [tokens(1, 10), vec![7]].concat();
    prompt.resize((device + host + 2) as usize, 8);
    let count = prompt.len() as i32;
    engine.arrive("c", prompt, 0);
    assert_eq!(engine.round(), "D a; land c");
    let landing = engine.plan.remote_prefill.clone().expect("c lands");
    assert_eq!(landing.extend_prefix_lens, [device + host], "what is being loaded, too");
    engine.tell(failure(load));
    assert_eq!(engine.scheduler().pd_transfer_size(), 1, "the peer is at work");
    engine.finish("a");
    engine.landed("c");
    assert_eq!(engine.scheduler().pd_transfer_size(), 0);
    assert_eq!(engine.round(), "P c");
    assert_eq!(hit(&engine), (device, 0));
    assert_eq!(engine.plan.batch.input_lengths, [count + 1 - device]);
    engine.result("c", &[8]);
    engine.finish("c");
    engine.settle();
}

/// One list of events or two: the same is refused, and the same is done.
#[test]
fn a_failed_load_is_foreseen() {
    let finish = || Event::Finish { request_id: "b".into() };
    let reserve =
        || Event::UpdateReserveNumTokens { request_id: "b".into(), reserve_num_tokens: 3 };
    for (role, next) in [(Role::P, finish()), (Role::Fused, finish()), (Role::Fused, reserve())] {
        let mut outcomes = Vec::new();
        for together in [false, true] {
            let mut engine = Engine::new(&with_host(role));
            let load = computed_over_a_load(&mut engine);
            let outcome = match together {
                true => engine.try_tell_all(vec![failure(load), next.clone()]),
                false => {
                    engine.tell(failure(load));
                    engine.try_tell(next.clone())
                }
            };
            outcomes.push(outcome.map_err(|error| error.to_string()));
        }
        assert_eq!(outcomes[0], outcomes[1], "{next:?}");
    }
}

/// A late word on a load says nothing any more, in one list as in two.
#[test]
fn a_load_ends_once_in_a_list() {
    let landed = |load| Event::LoadBackDone { op_id: load, success: true };
    let finish = Event::Finish { request_id: "b".into() };
    let result = Event::ExtendResult {
        request_id: "b".into(),
        tokens: vec![1, 2, 3].into(),
        spec_candidate_ids: Default::default(),
    };
    for (role, next) in [(Role::P, finish), (Role::Fused, result)] {
        let mut engine = Engine::new(&with_host(role));
        let load = computed_over_a_load(&mut engine);
        let held = engine.scheduler().active_lcm_blocks();
        let list = vec![landed(load), failure(load), next];
        assert!(engine.try_tell_all(list).is_err(), "{role:?}: refused as without the late word");
        assert_eq!(engine.scheduler().active_lcm_blocks(), held);
    }
    let mut engine = Engine::new(&with_host(Role::Fused));
    let load = computed_over_a_load(&mut engine);
    engine
        .try_tell_all(vec![landed(load), Event::WriteBackDone { op_id: load }])
        .expect("a late acknowledgement is ignored");
}

/// A prefill worker's sample is the hand-over's: who starts over does so from the prompt that was submitted,
/// which the bound has admitted and the peer has room for.
#[test]
fn a_prefill_worker_starts_over_from_the_submitted_prompt() {
    let mut engine = Engine::new(&config(Role::P, vec![full("full", 4)]));
    engine.arrive("a", tokens(1, 31), 5);
    assert_eq!(engine.round(), "P a");
    engine.result("a", &[7]);
    engine.tell(Event::Retract { request_id: "a".into() });
    assert_eq!(engine.scheduler().request_token_size("a"), 31);
    assert_eq!(engine.round(), "P a");
    engine.result("a", &[8]);
    assert_eq!(engine.round(), "hand over a");
    let handed = engine.plan.remote_decode.clone().expect("it is handed over");
    assert_eq!(handed.decode_input_ids, [8]);
    engine.succeeded("a");
    engine.settle();
}

/// What an external store holds of what was computed over a failed load is not fetched.
#[test]
fn the_store_is_not_asked_for_what_was_computed_over_a_failed_load() {
    let mut engine =
        Engine::new(&SchedulerConfig { enable_l3_storage: true, ..with_host(Role::Fused) });
    let load = computed_over_a_load(&mut engine);
    engine.finish("b");
    let hashes = engine.scheduler().prefix_hashes_for_tokens(&tokens(1, 14));
    let keys = engine.scheduler().expand_prefix_keys(&hashes[2..]).expect("its own hashes");
    engine.register(keys);
    engine.tell(failure(load));
    nothing_is_found(&mut engine, "backed up, failure");
}

/// Nor does it get there: what was computed over a load and not yet ordered to be stored is not ordered any
/// more, and a store on its way is not believed to have brought it.
#[test]
fn what_was_computed_over_a_failed_load_is_not_backed_up() {
    for ordered in [false, true] {
        let mut engine =
            Engine::new(&SchedulerConfig { enable_l3_storage: true, ..with_host(Role::Fused) });
        let load = computed_over_a_load(&mut engine);
        engine.finish("b");
        if ordered {
            engine.round();
        }
        engine.tell(failure(load));
        if !ordered {
            assert_eq!(engine.scheduler().active_lcm_blocks(), 0, "nothing is owed for it");
            engine.round();
        }
        let stored = engine.plan.write_back.num_blocks();
        assert_eq!(stored, usize::from(ordered), "the third page");
        let hashes = engine.scheduler().prefix_hashes_for_tokens(&tokens(1, 14));
        let keys = engine.scheduler().expand_prefix_keys(&hashes[2..2 + stored]);
        engine.register(keys.expect("its own hashes"));
        engine.end_copies();
        nothing_is_found(&mut engine, "backed up");
    }
}

/// What a load or a store still brings is not found behind a clear.
#[test]
fn a_clear_is_not_undone_by_a_copy_in_flight() {
    let mut engine =
        Engine::new(&SchedulerConfig { enable_l3_storage: true, ..with_host(Role::Fused) });
    let hashes = engine.scheduler().prefix_hashes_for_tokens(&tokens(1, 14));
    let keys = engine.scheduler().expand_prefix_keys(&hashes).expect("its own hashes");
    engine.register(keys);
    engine.submit("a", tokens(1, 14), 8).expect("the pool can run it");
    engine.round();
    assert_eq!(engine.plan.load_back.prefetch_from_storage, [[1, 1, 1]]);
    engine.abort("a");
    assert!(!engine.clear_cache(), "a fetch would be cached behind it");
    engine.end_copies();
    assert!(engine.clear_cache());
}

/// Planning ahead publishes what the forward before is to compute. Withheld, nobody finds it, and who has
/// found it goes with it.
#[test]
fn what_a_withheld_forward_was_to_compute_is_not_found() {
    let ahead = SchedulerConfig {
        overlap_schedule_depth: 1,
        max_scheduled_tokens: 8,
        ..config(Role::Fused, vec![full("full", 4)])
    };
    let mut engine = Engine::new(&ahead);
    engine.submit("x", tokens(1, 20), 0).expect("the pool can run it");
    assert_eq!(engine.round(), "P x");
    assert_eq!(engine.round(), "P x");
    engine.tell(Event::Retract { request_id: "x".into() });
    assert_eq!(engine.round(), "P x");
    assert_eq!(engine.plan.batch.extend_prefix_lens, [0]);

    // A partner sees the same forward's result: it was run, and what was published of it is found.
    let mut engine = Engine::new(&SchedulerConfig { max_scheduled_tokens: 12, ..ahead });
    engine.submit("y", tokens(2, 2), 0).expect("the pool can run it");
    engine.submit("x", tokens(1, 20), 0).expect("the pool can run it");
    assert_eq!(engine.round(), "P y x");
    engine.round();
    engine.result("y", &[7]);
    engine.abort("x");
    engine.submit("z", tokens(1, 20), 0).expect("the pool can run it");
    engine.round();
    assert_eq!(prefix_of(&engine, "z"), 8);
}

/// Nor, told prompt by prompt with a plan between, what a partner's plan made ahead has published since the
/// first word; nor what a partner published that its client finished before its result, at any depth.
#[test]
fn a_forward_may_be_said_to_be_withheld_prompt_by_prompt() {
    let partners = |depth| {
        let mut engine = Engine::new(&SchedulerConfig {
            overlap_schedule_depth: depth,
            enable_mixed_prefill_decode: true,
            ..config(Role::Fused, vec![full("full", 4)])
        });
        engine.submit("x", tokens(1, 6), 0).expect("the pool can run it");
        engine.submit("y", tokens(2, 10), 0).expect("the pool can run it");
        assert_eq!(engine.round(), "P x y");
        engine
    };
    let withheld = |engine: &mut Engine, id: &str| {
        engine.tell(Event::Retract { request_id: id.into() });
    };
    let nothing_of_y_is_found = |engine: &mut Engine, when: &str| {
        engine.submit("z", tokens(2, 10), 0).expect("the pool can run it");
        engine.round();
        assert_eq!(prefix_of(engine, "z"), 0, "{when}");
    };

    let mut engine = partners(1);
    withheld(&mut engine, "x");
    assert_eq!(engine.round(), "P x; D y");
    withheld(&mut engine, "y");
    nothing_of_y_is_found(&mut engine, "word by word");

    for depth in [0, 1] {
        let mut engine = partners(depth);
        engine.finish("y");
        withheld(&mut engine, "x");
        nothing_of_y_is_found(&mut engine, "finished ahead of its result");
    }
}

/// A peer may still be at the blocks of a prompt that is given up: what rests on its forward is known as
/// long as a partner could say that it was withheld.
#[test]
fn a_prompt_that_is_given_up_beside_a_partner_keeps_what_it_rests_on() {
    let mut engine = Engine::new(&SchedulerConfig {
        overlap_schedule_depth: 1,
        max_scheduled_tokens: 8,
        ..config(Role::P, vec![full("full", 4)])
    });
    engine.arrive("x", tokens(1, 4), 5);
    engine.arrive("y", tokens(2, 20), 5);
    assert_eq!(engine.round(), "P x y");
    assert_eq!(engine.round(), "P y");
    engine.abort("y");
    engine.tell(Event::Retract { request_id: "x".into() });
    engine.failed("y");
    engine.arrive("z", tokens(2, 20), 5);
    engine.round();
    assert_eq!(engine.plan.batch.extend_prefix_lens.last(), Some(&0));
}

/// A page that was computed over a fetch, backed up, lost, and is being fetched itself when the first fetch
/// turns out to have failed: what comes is not named.
#[test]
fn a_fetch_under_way_of_what_was_computed_over_a_failed_one_is_not_found() {
    let mut engine = Engine::new(&SchedulerConfig {
        enable_l3_storage: true,
        num_device_pages: 13,
        num_host_pages: 6,
        ..config(Role::Fused, vec![full("full", 4)])
    });
    let register = |engine: &mut Engine, pages: std::ops::Range<usize>| {
        let hashes = engine.scheduler().prefix_hashes_for_tokens(&tokens(1, 14));
        let keys = engine.scheduler().expand_prefix_keys(&hashes[pages]).expect("its own hashes");
        engine.register(keys);
    };
    register(&mut engine, 0..2);
    run(&mut engine, "b", tokens(1, 14));
    register(&mut engine, 2..3);
    for other in 2..8 {
        run(&mut engine, &format!("w{other}"), tokens(other, 21));
    }
    engine.submit("c", tokens(1, 14), 0).expect("the pool can run it");
    engine.round();
    assert_eq!(engine.plan.load_back.prefetch_from_storage, [[1, 1, 1]]);
    engine.tell(failure(0));
    engine.end_copies();
    engine.round();
    assert!(prefix_of(&engine, "c") <= 8, "page 3 is found");
}

/// What is given up for a failed load goes in an order of its content: the numbers that stand for pages
/// differ where one rank has told a router more.
#[test]
fn ranks_agree_on_what_a_failed_load_gives_up() {
    let mut engine = Engine::new(&SchedulerConfig {
        num_device_pages: 33,
        num_host_pages: 7,
        ..config(Role::Fused, vec![full("full", 4)])
    });
    run(&mut engine, "old", tokens(9, 25));
    engine.round();
    assert!(engine.clear_cache());
    engine.round();
    run(&mut engine, "z", tokens(1, 5));
    assert!(engine.clear_l1_cache());
    let load = run(&mut engine, "b", tokens(1, 25)).expect("its first page lies on the Host");
    engine.tell(failure(load));
    run(&mut engine, "c", tokens(2, 13));
    run(&mut engine, "d", tokens(3, 13));
}
