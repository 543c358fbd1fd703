//! Request ids as Python strings, made once for all plans with the same batch.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyList, PyString};

/// The ids of a batch, in its order.
type Ids = Arc<Vec<Arc<str>>>;

/// The strings of the last batch that was asked for: in steady decoding that of every round, whose ids are
/// the same memory.
#[derive(Debug, Default)]
pub struct SharedIds(Mutex<Option<(Ids, Vec<Py<PyString>>)>>);

impl SharedIds {
    /// A new list of the ids.
    pub fn list<'py>(&self, py: Python<'py>, ids: &Ids) -> PyResult<Bound<'py, PyList>> {
        let mut last = self.0.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        if !last.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, ids)) {
            let strings = ids.iter().map(|id| PyString::new(py, id).unbind()).collect();
            *last = Some((ids.clone(), strings));
        }
        let strings = last.iter().flat_map(|(_, strings)| strings);
        PyList::new(py, strings.map(|string| string.bind(py)).collect::<Vec<_>>())
    }
}
