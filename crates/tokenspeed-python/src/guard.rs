//! One lock around the core, and no panic let through.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LockResult, Mutex, MutexGuard};

use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use tokenspeed_recording::{Answered, Call, Recorded};
use tokenspeed_scheduler::{Error, Result, Scheduler};

use crate::errors;

/// The core behind its lock. A panic inside poisons the lock and becomes an InternalError, as does
/// every later call.
#[derive(Debug)]
pub struct Guarded(Mutex<Recorded>);

/// Why a call gave nothing.
enum Failure {
    /// The core refused it.
    Refused(Error),
    /// It broke off midway, now or in a former call.
    Broken(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Refused(error)
    }
}

impl Guarded {
    /// What `build` gives, behind a lock.
    pub fn new(py: Python<'_>, build: impl FnOnce() -> Result<Scheduler>) -> PyResult<Guarded> {
        Ok(Guarded(Mutex::new(Recorded::new(checked(py, build)?))))
    }

    /// Runs `work` on the core while it holds the interpreter.
    pub fn attached<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Scheduler) -> Result<T>,
    ) -> PyResult<T> {
        self.held(py, |core| work(&mut core.scheduler))
    }

    /// As `attached`, with the recording.
    pub fn held<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Recorded) -> Result<T>,
    ) -> PyResult<T> {
        without_panic(|| locked(self.0.lock_py_attached(py), work))
            .map_err(|failure| exception(py, failure))
    }

    /// Runs `work` on the core; other Python threads run meanwhile if it may take `long`.
    pub fn run<T: Send>(
        &self,
        py: Python<'_>,
        long: bool,
        work: impl FnOnce(&mut Recorded) -> Result<T> + Send,
    ) -> PyResult<T> {
        if !long {
            return self.held(py, work);
        }
        py.detach(|| without_panic(|| locked(self.0.lock(), work)))
            .map_err(|failure| exception(py, failure))
    }

    /// Makes a call that may change a plan: as `run`, and it is recorded if the engine asked for that.
    /// A recording that breaks off is a warning.
    pub fn call<A: Send, T: Answered + Send>(
        &self,
        py: Python<'_>,
        long: bool,
        arguments: A,
        call: impl FnOnce(&A) -> Call<'_> + Send,
        method: impl FnOnce(&mut Scheduler, A) -> Result<T> + Send,
    ) -> PyResult<T> {
        let (result, failure) = self.run(py, long, |core| {
            let result = core.call(arguments, call, method);
            Ok((result, core.take_failure().cloned()))
        })?;
        if let Some(failure) = failure {
            errors::warn(py, &failure);
        }
        result.map_err(|error| errors::exception(py, &error))
    }

    /// Looks something up.
    pub fn read<T>(&self, py: Python<'_>, gauge: impl FnOnce(&Scheduler) -> T) -> PyResult<T> {
        self.attached(py, |core| Ok(gauge(core)))
    }
}

/// Runs `work`, which needs no scheduler; a panic becomes an InternalError.
pub fn checked<T>(py: Python<'_>, work: impl FnOnce() -> Result<T>) -> PyResult<T> {
    without_panic(|| Ok(work()?)).map_err(|failure| exception(py, failure))
}

fn locked<T>(
    lock: LockResult<MutexGuard<'_, Recorded>>,
    work: impl FnOnce(&mut Recorded) -> Result<T>,
) -> std::result::Result<T, Failure> {
    match lock {
        Ok(mut core) => Ok(work(&mut core)?),
        Err(_) => Err(Failure::Broken(
            "a former call broke off midway, so that the state of the scheduler is unknown: build a \
             new one, and report the first InternalError"
                .into(),
        )),
    }
}

fn without_panic<T>(
    work: impl FnOnce() -> std::result::Result<T, Failure>,
) -> std::result::Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("a panic without a text");
        Err(Failure::Broken(format!("the scheduler broke off midway: {text}")))
    })
}

fn exception(py: Python<'_>, failure: Failure) -> PyErr {
    match failure {
        Failure::Refused(error) => errors::exception(py, &error),
        Failure::Broken(text) => errors::internal(py, &text),
    }
}
