//! The core's errors as the exceptions of `tokenspeed.scheduler.errors`, mapped once.

use std::ffi::CString;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use tokenspeed_scheduler::{Error, ErrorKind};

const MODULE: &str = "tokenspeed.scheduler.errors";

/// The exception for an error of the core.
pub fn exception(py: Python<'_>, error: &Error) -> PyErr {
    static UNKNOWN_GROUP: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static CONFIG: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static REQUEST: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static EVENT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static RECORDING: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let (class, name) = match (error, error.kind()) {
        (Error::UnknownGroup { .. }, _) => (&UNKNOWN_GROUP, "UnknownGroupError"),
        (_, ErrorKind::Config) => (&CONFIG, "ConfigError"),
        (_, ErrorKind::Request) => (&REQUEST, "RequestError"),
        (_, ErrorKind::Event) => (&EVENT, "EventError"),
        (_, ErrorKind::Recording) => (&RECORDING, "RecordingError"),
        (_, ErrorKind::Unsupported) => return unsupported(py, &error.to_string()),
        _ => return internal(py, &error.to_string()),
    };
    build(py, class, name, &error.to_string(), error.code())
}

/// `UnsupportedError`: something that this version does not offer.
pub fn unsupported(py: Python<'_>, message: &str) -> PyErr {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    build(py, &CLASS, "UnsupportedError", message, "unsupported_feature")
}

/// Warns of a recording that broke off. Where a program makes warnings exceptions, this one is only
/// shown: the call that it comes with has been carried out.
pub fn warn(py: Python<'_>, error: &Error) {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let warned = CLASS.import(py, MODULE, "RecordingWarning").and_then(|class| {
        let text = format!("{error}; the recording has ended, the scheduler goes on");
        PyErr::warn(py, class, &CString::new(text)?, 1)
    });
    if let Err(error) = warned {
        error.write_unraisable(py, None);
    }
}

/// `InternalError`: a bug of ours.
pub fn internal(py: Python<'_>, message: &str) -> PyErr {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    build(py, &CLASS, "InternalError", message, "internal")
}

fn build(
    py: Python<'_>,
    class: &PyOnceLock<Py<PyType>>,
    name: &str,
    message: &str,
    code: &str,
) -> PyErr {
    match class.import(py, MODULE, name).and_then(|class| class.call1((message, code))) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => PyRuntimeError::new_err(format!("{message} (and {name} failed: {error})")),
    }
}
