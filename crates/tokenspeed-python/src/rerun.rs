//! The calls of a recording, made again.

use std::path::PathBuf;
use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use tokenspeed_recording::{Answer, Recording};

use crate::errors;
use crate::plan::ExecutionPlan;
use crate::repr::Repr;
use crate::scheduler::Scheduler;

/// A recording and a new scheduler of its configuration, for which `step` makes one call after the
/// other.
///
/// Raises RecordingError for a file that is no recording, and as Scheduler for its configuration.
#[pyclass(module = "tokenspeed.scheduler", frozen)]
pub struct Rerun {
    recording: Mutex<Recording>,
    scheduler: Py<Scheduler>,
    version: String,
}

#[pymethods]
impl Rerun {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let recording = Recording::open(&path).map_err(|error| errors::exception(py, &error))?;
        let header = recording.header().clone();
        let scheduler = Py::new(py, Scheduler::of(py, header.config)?)?;
        Ok(Rerun { recording: Mutex::new(recording), scheduler, version: header.version })
    }

    /// The scheduler that gets the calls; to look at.
    #[getter]
    fn scheduler<'py>(&self, py: Python<'py>) -> &Bound<'py, Scheduler> {
        self.scheduler.bind(py)
    }

    /// The version of tokenspeed that has recorded.
    #[getter]
    fn version(&self) -> &str {
        &self.version
    }

    /// Makes the next call; None at the end.
    ///
    /// Raises RecordingError for a line that cannot be read, and InternalError if the call breaks off.
    fn step(&self, py: Python<'_>) -> PyResult<Option<RerunStep>> {
        let entry = self.locked(py, Recording::next_entry);
        let Some(entry) = entry.map_err(|error| errors::exception(py, &error))? else {
            return Ok(None);
        };
        let call = entry.call.name();
        let scheduler = self.scheduler.get();
        let (now, round, plan) = scheduler.core.run(py, true, move |core| {
            let (answer, plan) = entry.call.carry_out(&mut core.scheduler);
            Ok((answer, core.scheduler.round(), plan))
        })?;
        Ok(Some(RerunStep {
            number: entry.number,
            line: entry.line,
            round,
            call,
            same: entry.answer.as_ref().is_none_or(|recorded| *recorded == now),
            recorded: entry.answer.map(text),
            now: text(now),
            plan: plan.map(|plan| Py::new(py, scheduler.planned(plan))).transpose()?,
        }))
    }

    /// The line in which the file ends too early, as that of a process that died may; None if none.
    /// Known when `step` has given None, or a step without an answer.
    #[getter]
    fn cut_line(&self, py: Python<'_>) -> Option<u64> {
        self.locked(py, |recording| recording.cut_line())
    }

    /// Bytes of the file read so far, and all of them.
    #[getter]
    fn progress(&self, py: Python<'_>) -> (u64, u64) {
        self.locked(py, |recording| recording.progress())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let (read, size) = self.progress(py);
        format!("<Rerun: {read} of {size} bytes read>")
    }
}

impl Rerun {
    fn locked<T>(&self, py: Python<'_>, look: impl FnOnce(&mut Recording) -> T) -> T {
        let lock = self.recording.lock_py_attached(py);
        look(&mut lock.unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}

/// A call of a recording that has been made again.
#[pyclass(module = "tokenspeed.scheduler", frozen, get_all)]
pub struct RerunStep {
    /// Its number in the recording, from 1.
    number: u64,
    /// The line of the file that holds it, from 1.
    line: u64,
    /// Plans made so far, this one included.
    round: u64,
    /// The name of the scheduler's method.
    call: &'static str,
    /// What came of it when it was recorded: "done", "cleared", "not cleared", "plan " and its digest
    /// in hex, or "refused: " and the error's code; None where the file ends before.
    recorded: Option<String>,
    /// What came of it now.
    now: String,
    /// Whether both are the same, as far as the file says.
    same: bool,
    /// The plan of now, if the call made one.
    plan: Option<Py<ExecutionPlan>>,
}

#[pymethods]
impl RerunStep {
    fn __repr__(&self) -> String {
        Repr::of("RerunStep")
            .field("number", self.number)
            .text("call", self.call)
            .text("now", &self.now)
            .truth("same", self.same)
            .finish()
    }
}

fn text(answer: Answer) -> String {
    match answer {
        Answer::Done => "done".into(),
        Answer::Cleared(true) => "cleared".into(),
        Answer::Cleared(false) => "not cleared".into(),
        Answer::Plan(digest) => format!("plan {digest}"),
        Answer::Refused(code) => format!("refused: {code}"),
    }
}
