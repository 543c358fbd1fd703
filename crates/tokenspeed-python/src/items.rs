//! Items of a sequence, for arguments that are lists.

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

/// The items of a sequence, in order. Raises TypeError for a string, and for an item of another type.
///
/// As PyO3 reads a `Vec`, but that it takes memory for the items that are there rather than for what
/// `__len__` says: a false length would end the process.
pub fn of<'py, T: FromPyObjectOwned<'py>>(sequence: &Bound<'py, PyAny>) -> PyResult<Vec<T>> {
    if sequence.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err("expected a list, got str"));
    }
    let len = sequence.cast::<PyList>().map_or(0, |list| list.len());
    let mut items = Vec::with_capacity(len);
    for item in sequence.try_iter()? {
        items.push(item?.extract().map_err(Into::into)?);
    }
    Ok(items)
}
