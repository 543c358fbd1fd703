//! The id that an event names its request by, as Python gives it.

use std::convert::Infallible;

use pyo3::prelude::*;
use pyo3::types::PyString;
use pyo3::{Borrowed, PyErr};
use tokenspeed_scheduler as core;

/// The core's id; a str on the Python side.
#[derive(Debug, Clone, Default)]
pub struct RequestId(pub core::RequestId);

impl<'py> FromPyObject<'_, 'py> for RequestId {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(RequestId(value.extract::<&str>()?.into()))
    }
}

impl<'py> IntoPyObject<'py> for RequestId {
    type Target = PyString;
    type Output = Bound<'py, PyString>;
    type Error = Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Self::Error> {
        Ok(PyString::new(py, &self.0))
    }
}
