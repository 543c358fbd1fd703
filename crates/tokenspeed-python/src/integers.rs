//! Token ids, handles, offsets: a list or an array comes in, integers stay.

use numpy::{
    Element, PyArray1, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods,
    dtype,
};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyTuple};
use pyo3::{Borrowed, IntoPyObjectExt};
use smallvec::SmallVec;

use crate::items;

/// Integers, owned, and in place while they are few; a list on the Python side.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Integers<T>(pub Few<T>);

impl<T: Copy> Clone for Integers<T> {
    fn clone(&self) -> Self {
        Integers(Few::from_slice(&self.0)) // At once: SmallVec's own goes integer by integer.
    }
}

/// As the core's `TokenIds`, so that tokens are handed over as they are.
type Few<T> = SmallVec<[T; 4]>;

/// Characters of an item that an error shows.
const SHOWN_CHARS: usize = 40;

/// Token ids.
pub type Tokens = Integers<i32>;

impl<'py, T> FromPyObject<'_, 'py> for Integers<T>
where
    T: Element + Copy + for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    type Error = PyErr;

    /// A one-dimensional array, or other buffer, of this very type is copied whole; a list, a tuple
    /// and an array of other integers are read integer by integer, each of which has to fit the
    /// type. Raises TypeError for anything else and OverflowError for what does not fit.
    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = value.py();
        if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
            return each(&value).map(Integers);
        }
        let array = asarray(py)?.call1((value,))?;
        if let Ok(array) = array.cast::<PyArray1<T>>() {
            return whole(array).map(Integers);
        }
        let array = array.cast_into::<PyUntypedArray>()?;
        // An empty array has a type that nobody chose: float64 for `np.array([])`.
        let integers = array.is_empty() || matches!(array.dtype().kind(), b'i' | b'u' | b'O');
        if array.ndim() != 1 || !integers {
            let message = format!(
                "expected a list of integers or a one-dimensional array of {}, got {}: \
                 {}-dimensional, of {}",
                dtype::<T>(py),
                value.get_type().fully_qualified_name()?,
                array.ndim(),
                array.dtype(),
            );
            return Err(PyTypeError::new_err(message));
        }
        each(&array.call_method0("tolist")?).map(Integers)
    }
}

/// An array's integers in its own order, whatever its strides and its alignment.
fn whole<T: Element + Copy>(array: &Bound<'_, PyArray1<T>>) -> PyResult<Few<T>> {
    match array.to_vec() {
        Ok(integers) => Ok(integers.into()),
        // Strided, reversed or unaligned: NumPy's copy is none of these.
        Err(_) => Ok(array.call_method0("copy")?.cast::<PyArray1<T>>()?.to_vec()?.into()),
    }
}

/// A sequence's integers, one by one; an error says which does not fit, and what was expected.
fn each<'py, T>(sequence: &Bound<'py, PyAny>) -> PyResult<Few<T>>
where
    T: Element + for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    let mut integers = Few::new();
    items::try_for_each(sequence, |item| match item.extract() {
        Ok(integer) => {
            integers.push(integer);
            Ok(())
        }
        Err(error) => Err(misfit::<T>(&item, integers.len(), error)),
    })?;
    Ok(integers)
}

/// What is said of an item that does not fit.
#[cold]
fn misfit<T: Element>(item: &Bound<'_, PyAny>, at: usize, error: PyErr) -> PyErr {
    let py = item.py();
    let text = item.repr().map_or_else(|_| "?".into(), |repr| repr.to_string());
    let text: String = text.chars().take(SHOWN_CHARS).collect();
    let expected = dtype::<T>(py);
    let message =
        format!("expected {expected} integers, but item {at} is {text}: {}", error.value(py));
    if error.is_instance_of::<PyOverflowError>(py) {
        PyOverflowError::new_err(message)
    } else if error.is_instance_of::<PyTypeError>(py) {
        PyTypeError::new_err(message)
    } else {
        error
    }
}

fn asarray(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static ASARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    ASARRAY.import(py, "numpy", "asarray")
}

impl<'py> IntoPyObject<'py> for Tokens {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        self.0.into_bound_py_any(py)
    }
}
