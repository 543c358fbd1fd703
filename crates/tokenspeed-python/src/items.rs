//! Items of a sequence, for arguments that are lists.

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

/// The items of a sequence, in order. Raises TypeError for a string, and for an item of another type.
///
/// As PyO3 reads a `Vec`, but that it takes memory for the items that are there rather than for what
/// `__len__` says: a false length would end the process.
pub fn of<'py, C>(sequence: &Bound<'py, PyAny>) -> PyResult<C>
where
    C: IntoIterator + FromIterator<C::Item>,
    C::Item: FromPyObjectOwned<'py>,
{
    read(sequence, |item| item.extract().map_err(Into::into))
}

/// As `of`, each item read by `extract`.
pub fn read<'py, T, C: FromIterator<T>>(
    sequence: &Bound<'py, PyAny>,
    mut extract: impl FnMut(Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<C> {
    if sequence.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err("expected a list, got str"));
    }
    match sequence.cast_exact::<PyList>() {
        // Without Python's iterator, which takes longer to make than the one token of a result to read.
        Ok(list) => list.iter().map(extract).collect(),
        Err(_) => sequence.try_iter()?.map(|item| extract(item?)).collect(),
    }
}
