//! Token ids: a list on the Python side; in comes a list, or any int32 buffer.

use numpy::{PyArray1, PyArrayMethods};
use pyo3::Borrowed;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Token ids, owned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tokens(pub Vec<i32>);

impl<'py> FromPyObject<'_, 'py> for Tokens {
    type Error = PyErr;

    /// A NumPy array or another buffer of int32 is copied whole; anything else is read as a sequence
    /// of integers, each of which has to fit 32 bits.
    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Some(tokens) = whole(&value) {
            return Ok(Tokens(tokens));
        }
        if let Ok(tokens) = value.extract::<Vec<i32>>() {
            return Ok(Tokens(tokens));
        }
        let as_array = asarray(value.py())?.call1((value,))?;
        match whole(&as_array) {
            Some(tokens) => Ok(Tokens(tokens)),
            None => Ok(Tokens(value.extract::<Vec<i32>>()?)),
        }
    }
}

fn whole(value: &Bound<'_, PyAny>) -> Option<Vec<i32>> {
    let array = value.cast::<PyArray1<i32>>().ok()?;
    Some(array.to_owned_array().into_raw_vec_and_offset().0)
}

fn asarray(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static ASARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    ASARRAY.import(py, "numpy", "asarray")
}

impl<'py> IntoPyObject<'py> for &Tokens {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        (&self.0).into_bound_py_any(py)
    }
}

use pyo3::IntoPyObjectExt;
