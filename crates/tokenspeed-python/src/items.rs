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
    let mut items = Vec::new();
    try_for_each(sequence, |item| {
        items.push(item.extract().map_err(Into::into)?);
        Ok(())
    })?;
    Ok(items)
}

/// Hands the items of a sequence to `take`, in order, until one is refused. Raises TypeError for a
/// string.
pub fn try_for_each<'py>(
    sequence: &Bound<'py, PyAny>,
    mut take: impl FnMut(Bound<'py, PyAny>) -> PyResult<()>,
) -> PyResult<()> {
    if sequence.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err("expected a list, got str"));
    }
    match sequence.cast_exact::<PyList>() {
        // Without Python's iterator, which takes longer to make than the one token of a result to read.
        Ok(list) => list.iter().try_for_each(take),
        Err(_) => sequence.try_iter()?.try_for_each(|item| take(item?)),
    }
}
