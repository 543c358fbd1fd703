//! Items of a sequence, for arguments that are lists.

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// The items of a sequence, in order. Raises TypeError for a string, and for an item of another type.
///
/// As PyO3 reads a `Vec`, but that it takes memory for the items that come rather than for what
/// `__len__` says: a false length would end the process.
pub fn of<'py, T: FromPyObjectOwned<'py>>(sequence: &Bound<'py, PyAny>) -> PyResult<Vec<T>> {
    if sequence.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err("expected a list, got str"));
    }
    sequence.try_iter()?.map(|item| item?.extract().map_err(Into::into)).collect()
}
