//! Recording a scheduler's calls.

use std::path::PathBuf;

use pyo3::prelude::*;

use crate::scheduler::Scheduler;

#[pymethods]
impl Scheduler {
    /// Writes the configuration and every later call to a new file, for `tokenspeed rerun`; gzip if
    /// its name ends in ".gz". Calls that are refused are written too. The file holds the token ids of
    /// every prompt and output.
    ///
    /// What is written has reached the operating system before each plan is made. A file that
    /// cannot be written any more ends the recording with a `RecordingWarning`, and no call.
    ///
    /// Raises RecordingError after the scheduler's first call, for a file that exists or cannot be
    /// made, and beside another recording.
    fn record(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.core.held(py, |core| core.record(&path))
    }

    /// Ends the recording and its file; without a recording it does nothing. A scheduler that goes
    /// away ends its recording by itself.
    ///
    /// Raises RecordingError for one that broke off, or whose end cannot be written.
    fn stop_recording(&self, py: Python<'_>) -> PyResult<()> {
        self.core.held(py, |core| core.stop_recording())
    }
}
