//! What is written is what is read, whatever the call.

use std::path::PathBuf;

use tempfile::TempDir;
use tokenspeed_recording::{Answer, Call, Entry, Recorder, Recording};
use tokenspeed_scheduler::{
    CacheGroupConfig, CacheGroupFamily, CacheRetention, CacheTransferPolicy, Event, Handle,
    RequestId, RequestSpec, Role, SchedulerConfig, StorageKeys,
};

fn id() -> RequestId {
    "a \"name\"\n".into()
}

fn events() -> Vec<Event> {
    vec![
        Event::ExtendResult {
            request_id: id(),
            tokens: vec![0, -1, i32::MAX].into(),
            spec_candidate_ids: vec![i32::MIN].into(),
        },
        Event::Finish { request_id: id() },
        Event::Abort { request_id: id() },
        Event::Retract { request_id: id() },
        Event::UpdateReserveNumTokens { request_id: id(), reserve_num_tokens: i64::MIN },
        Event::WriteBackDone { op_id: u64::MAX },
        Event::LoadBackDone { op_id: 0, success: false },
        Event::Bootstrapped { request_id: id() },
        Event::TransferFailed { request_id: id() },
        Event::TransferSucceeded { request_id: id() },
        Event::RemotePrefillDone { request_id: id(), bootstrap_token: -7 },
    ]
}

fn calls() -> Vec<(Call<'static>, Answer)> {
    let keys = || StorageKeys {
        group_ids: vec![0, -1],
        content_hashes: vec!["00".into(), String::new()],
        page_offsets: vec![i64::MAX, 0],
    };
    let specs =
        vec![RequestSpec { request_id: id().to_string(), tokens: vec![1, 2], max_new_tokens: -3 }];
    vec![
        (Call::SubmitRequests(specs.into()), Answer::Refused("negative_budget".into())),
        (Call::SubmitRequests(Vec::new().into()), Answer::Done),
        (Call::Advance(events().into()), Answer::Done),
        (
            Call::AdvanceResults {
                handles: vec![Handle(u64::MAX)].into(),
                tokens: vec![5].into(),
                offsets: vec![0, 1].into(),
            },
            Answer::Done,
        ),
        (Call::Finish(vec![Handle::new(1, 2)].into()), Answer::Done),
        (Call::NextExecutionPlan, Answer::Plan("00000000000000ff".into())),
        (Call::ClearL1Cache, Answer::Cleared(false)),
        (Call::ClearCache, Answer::Cleared(true)),
        (Call::RegisterStorageKeys(std::borrow::Cow::Owned(keys())), Answer::Done),
        (Call::UnregisterStorageKeys(std::borrow::Cow::Owned(keys())), Answer::Done),
    ]
}

fn config() -> SchedulerConfig {
    SchedulerConfig {
        prefix_granularity: 4,
        role: Role::D,
        enable_l3_storage: true,
        cache_groups: vec![CacheGroupConfig {
            group_id: id().to_string(),
            retention: CacheRetention::SlidingWindow,
            sliding_window_tokens: Some(5),
            family: CacheGroupFamily::State,
            transfer_policy: CacheTransferPolicy::LatestSnapshot,
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn written(name: &str, calls: &[(Call<'static>, Answer)]) -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a folder can be made");
    let path = folder.path().join(name);
    let mut recorder = Recorder::create(&path, &config()).expect("the file is new");
    for (call, answer) in calls {
        recorder.call(call).expect("the disk has room");
        recorder.answer(answer).expect("the disk has room");
    }
    recorder.finish().expect("the disk has room");
    (folder, path)
}

fn read(recording: &mut Recording) -> Vec<Entry> {
    std::iter::from_fn(|| recording.next_entry().expect("every line is whole")).collect()
}

#[test]
fn every_call_and_event_is_read_as_it_was_written() {
    for name in ["run.jsonl", "run.jsonl.gz"] {
        let calls = calls();
        let (_folder, path) = written(name, &calls);
        let mut recording = Recording::open(&path).expect("it was written here");
        assert_eq!(recording.header().config, config());
        for (at, (entry, (call, answer))) in read(&mut recording).iter().zip(&calls).enumerate() {
            assert_eq!((&entry.call, entry.answer.as_ref()), (call, Some(answer)));
            assert_eq!((entry.number, entry.line), (at as u64 + 1, 2 * at as u64 + 2));
        }
        assert_eq!(recording.cut_line(), None);
        let size = path.metadata().expect("it is there").len();
        assert_eq!(recording.progress(), (size, size));
    }
}

/// Every kind of event, so that a new one is thought of here: its name in the file is for good.
#[test]
fn the_names_of_events_in_the_file() {
    let (_folder, path) = written("run.jsonl", &[(Call::Advance(events().into()), Answer::Done)]);
    let text = std::fs::read_to_string(path).expect("it was written here");
    let line = text.lines().nth(1).expect("a call");
    for name in [
        "extend_result",
        "finish",
        "abort",
        "retract",
        "update_reserve_num_tokens",
        "write_back_done",
        "load_back_done",
        "bootstrapped",
        "transfer_failed",
        "transfer_succeeded",
        "remote_prefill_done",
    ] {
        assert!(line.contains(&format!("{{\"{name}\":{{")), "{name}");
    }
    assert!(text.lines().nth(2) == Some("\"done\""));
}

/// A file that was cut anywhere gives the calls that are whole, and says where it ends.
#[test]
fn a_cut_file_is_read_as_far_as_it_goes() {
    for name in ["run.jsonl", "run.jsonl.gz"] {
        let calls = calls();
        let (_folder, path) = written(name, &calls);
        let whole = std::fs::read(&path).expect("it was written here");
        let mut most = 0;
        for length in (0..=whole.len()).filter(|length| (whole.len() - length) % 7 == 0) {
            std::fs::write(&path, &whole[..length]).expect("the disk has room");
            let Ok(mut recording) = Recording::open(&path) else {
                assert_eq!(most, 0, "the header was whole before");
                continue;
            };
            let entries = read(&mut recording);
            for (entry, (call, answer)) in entries.iter().zip(&calls) {
                assert_eq!(&entry.call, call);
                assert!(entry.answer.as_ref().is_none_or(|read| read == answer));
            }
            let is_whole = length == whole.len() || whole[..length].ends_with(b"\n");
            assert!(is_whole || recording.cut_line().is_some(), "{name}: {length} bytes");
            assert!(entries.len() >= most);
            most = entries.len();
        }
        assert_eq!(most, calls.len());
    }
}
