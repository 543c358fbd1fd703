//! Token ids, handles, offsets: a list or an array comes in, integers stay.

use numpy::{Element, PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;
use pyo3::{Borrowed, IntoPyObjectExt};

/// Integers, owned; a list on the Python side.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Integers<T>(pub Vec<T>);

/// Token ids.
pub type Tokens = Integers<i32>;

impl<'py, T> FromPyObject<'_, 'py> for Integers<T>
where
    T: Element + Copy + for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    type Error = PyErr;

    /// A one-dimensional array, or other buffer, of this very type is copied whole; anything else is
    /// read integer by integer, each of which has to fit the type.
    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if value.is_instance_of::<PyList>() {
            return Ok(Integers(value.extract()?));
        }
        let array = asarray(value.py())?.call1((value,))?;
        match array.cast::<PyArray1<T>>() {
            Ok(array) => Ok(Integers(array.to_owned_array().into_raw_vec_and_offset().0)),
            Err(_) => Ok(Integers(array.call_method0("tolist")?.extract()?)),
        }
    }
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
