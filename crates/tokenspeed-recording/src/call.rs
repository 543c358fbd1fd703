//! One call and what came of it, as values.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use tokenspeed_scheduler::{
    Event, ExecutionPlan, Handle, RequestSpec, Result, Scheduler, StorageKeys,
};

/// A call of a [`Scheduler`] that may change a later plan, with its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is the scheduler's method of the same name")]
pub enum Call<'a> {
    SubmitRequests(Cow<'a, [RequestSpec]>),
    Advance(Cow<'a, [Event]>),
    AdvanceResults { handles: Cow<'a, [Handle]>, tokens: Cow<'a, [i32]>, offsets: Cow<'a, [i64]> },
    Finish(Cow<'a, [Handle]>),
    NextExecutionPlan,
    ClearL1Cache,
    ClearCache,
    RegisterStorageKeys(Cow<'a, StorageKeys>),
    UnregisterStorageKeys(Cow<'a, StorageKeys>),
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It was carried out.
    Done,
    /// Whether the caches were emptied.
    Cleared(bool),
    /// A plan, as its digest in 16 hex digits.
    Plan(String),
    /// The error's stable name; nothing has changed.
    Refused(String),
}

impl Answer {
    /// Of what a method gave.
    pub fn of<T: Answered>(result: &Result<T>) -> Answer {
        match result {
            Ok(value) => value.answer(),
            Err(error) => Answer::Refused(error.code().into()),
        }
    }
}

/// What a recorded method may give.
pub trait Answered {
    /// It, as the recording tells it.
    fn answer(&self) -> Answer;
}

impl Answered for () {
    fn answer(&self) -> Answer {
        Answer::Done
    }
}

impl Answered for bool {
    fn answer(&self) -> Answer {
        Answer::Cleared(*self)
    }
}

impl Answered for ExecutionPlan {
    fn answer(&self) -> Answer {
        Answer::Plan(format!("{:016x}", self.digest(0)))
    }
}

impl Call<'_> {
    /// The scheduler's method.
    pub fn name(&self) -> &'static str {
        match self {
            Call::SubmitRequests(_) => "submit_requests",
            Call::Advance(_) => "advance",
            Call::AdvanceResults { .. } => "advance_results",
            Call::Finish(_) => "finish",
            Call::NextExecutionPlan => "next_execution_plan",
            Call::ClearL1Cache => "clear_l1_cache",
            Call::ClearCache => "clear_cache",
            Call::RegisterStorageKeys(_) => "register_storage_keys",
            Call::UnregisterStorageKeys(_) => "unregister_storage_keys",
        }
    }

    /// Makes the call; gives what came of it, and the plan if it made one.
    pub fn carry_out(self, scheduler: &mut Scheduler) -> (Answer, Option<ExecutionPlan>) {
        let done = match self {
            Call::SubmitRequests(specs) => scheduler.submit_requests(specs.into_owned()),
            Call::Advance(events) => scheduler.advance(&events),
            Call::AdvanceResults { handles, tokens, offsets } => {
                scheduler.advance_results(&handles, &tokens, &offsets)
            }
            Call::Finish(handles) => scheduler.finish(&handles),
            Call::RegisterStorageKeys(keys) => scheduler.register_storage_keys(keys.into_owned()),
            Call::UnregisterStorageKeys(keys) => {
                scheduler.unregister_storage_keys(keys.into_owned())
            }
            Call::ClearL1Cache => return (scheduler.clear_l1_cache().answer(), None),
            Call::ClearCache => return (scheduler.clear_cache().answer(), None),
            Call::NextExecutionPlan => {
                let plan = scheduler.next_execution_plan();
                return (Answer::of(&plan), plan.ok());
            }
        };
        (Answer::of(&done), None)
    }
}
