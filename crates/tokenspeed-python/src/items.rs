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
    // Without an iterator, which takes longer to make than the one token of a result to read.
    if let Ok(list) = sequence.cast_exact::<PyList>() {
        return collect(list.len(), list.iter().map(Ok));
    }
    collect(0, sequence.try_iter()?)
}

fn collect<'py, T: FromPyObjectOwned<'py>>(
    expected: usize,
    sequence: impl Iterator<Item = PyResult<Bound<'py, PyAny>>>,
) -> PyResult<Vec<T>> {
    let mut items = Vec::with_capacity(expected);
    for item in sequence {
        items.push(item?.extract().map_err(Into::into)?);
    }
    Ok(items)
}
