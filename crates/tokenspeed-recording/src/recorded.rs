//! A scheduler whose calls may be recorded.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use tokenspeed_scheduler::{Error, Result, Scheduler};

use crate::call::{Answer, Answered, Call};
use crate::recorder::Recorder;

/// A scheduler and, if asked for, the recording of its calls.
///
/// A recording that cannot be written breaks off, and the calls go on: what an engine decides must not
/// depend on a disk, and a call that was carried out cannot be refused any more.
#[derive(Debug)]
pub struct Recorded {
    /// What does the work. Calls that may change a plan go through [`Recorded::call`].
    pub scheduler: Scheduler,
    calls: u64,
    recording: Option<(PathBuf, Recorder)>,
    /// Why the last recording broke off, until it is stopped.
    failure: Option<Error>,
    /// Whether nobody has been told of it.
    is_news: bool,
}

impl Recorded {
    /// A new scheduler, without a recording.
    pub fn new(scheduler: Scheduler) -> Recorded {
        Recorded { scheduler, calls: 0, recording: None, failure: None, is_news: false }
    }

    /// Records all calls from the first one on.
    ///
    /// # Errors
    /// [`Error::RecordingTooLate`] after the first call; [`Error::RecordingFailed`] for a file that
    /// exists or cannot be made, or beside another recording.
    pub fn record(&mut self, path: &Path) -> Result<()> {
        if self.calls > 0 {
            return Err(Error::RecordingTooLate { calls: self.calls });
        }
        if let Some((other, _)) = &self.recording {
            return Err(failed(path, format!("'{}' is being recorded already", other.display())));
        }
        let recorder = Recorder::create(path, self.scheduler.config());
        let recorder = recorder.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                failed(path, "there is such a file already; name a new one, or remove it")
            }
            _ => failed(path, error),
        });
        self.recording = Some((path.into(), recorder?));
        Ok(())
    }

    /// Ends the recording, if there is one.
    ///
    /// # Errors
    /// [`Error::RecordingFailed`] if it has broken off, or its end cannot be written.
    pub fn stop_recording(&mut self) -> Result<()> {
        self.is_news = false;
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        match self.recording.take() {
            Some((path, recorder)) => recorder.finish().map_err(|error| failed(&path, error)),
            None => Ok(()),
        }
    }

    /// Why the recording has broken off; told once.
    pub fn take_failure(&mut self) -> Option<&Error> {
        let is_news = std::mem::take(&mut self.is_news);
        self.failure.as_ref().filter(|_| is_news)
    }

    /// Makes a call: `method` with `arguments`, which `call` tells the recording.
    pub fn call<A, T: Answered>(
        &mut self,
        arguments: A,
        call: impl FnOnce(&A) -> Call<'_>,
        method: impl FnOnce(&mut Scheduler, A) -> Result<T>,
    ) -> Result<T> {
        self.calls += 1;
        if self.recording.is_none() {
            return method(&mut self.scheduler, arguments);
        }
        self.note(|recorder| recorder.call(&call(&arguments)));
        let result = catch_unwind(AssertUnwindSafe(|| method(&mut self.scheduler, arguments)));
        match result {
            Ok(result) => {
                self.note(|recorder| recorder.answer(&Answer::of(&result)));
                result
            }
            Err(panic) => {
                self.note(Recorder::flush);
                resume_unwind(panic)
            }
        }
    }

    fn note(&mut self, write: impl FnOnce(&mut Recorder) -> std::io::Result<()>) {
        let Some((path, recorder)) = &mut self.recording else {
            return;
        };
        if let Err(error) = write(recorder) {
            self.failure = Some(failed(path, error));
            self.is_news = true;
            self.recording = None;
        }
    }
}

fn failed(path: &Path, what: impl ToString) -> Error {
    Error::RecordingFailed { path: path.display().to_string(), what: what.to_string() }
}
