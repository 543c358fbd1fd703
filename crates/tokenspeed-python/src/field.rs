//! Attributes that any thread may write: no thread finds an object borrowed by another.

use std::mem;

use pyo3::prelude::*;

/// An attribute of a frozen class. Read and written by threads that are attached to the interpreter, and
/// nothing of Python runs in between.
pub struct Field<T>(Cell<T>);

/// Without a GIL threads run Python side by side.
#[cfg(Py_GIL_DISABLED)]
type Cell<T> = std::sync::Mutex<T>;

/// The GIL is lock enough: one of the field's own would cost a result a seventh of its time.
#[cfg(not(Py_GIL_DISABLED))]
type Cell<T> = std::cell::RefCell<T>;

#[cfg(not(Py_GIL_DISABLED))]
// SAFETY: the cell is reached through `change` alone, whose caller is attached to the interpreter. One
// thread at a time is, and the GIL orders what the threads do. Should a change let go of it all the same,
// then the cell stays marked as borrowed, and another thread panics.
unsafe impl<T: Send> Sync for Field<T> {}

impl<T: Clone> Field<T> {
    /// A copy of its value.
    pub fn get(&self, py: Python<'_>) -> T {
        self.change(py, |value| value.clone())
    }

    /// Writes it.
    pub fn set(&self, py: Python<'_>, value: T) {
        let former = self.change(py, |current| mem::replace(current, value));
        drop(former); // which may run Python, now that the field is free
    }

    /// Runs `change` on its value, in place. It must not run Python.
    pub fn change<R>(&self, _py: Python<'_>, change: impl FnOnce(&mut T) -> R) -> R {
        #[cfg(Py_GIL_DISABLED)]
        let mut value = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        #[cfg(not(Py_GIL_DISABLED))]
        let mut value = self.0.borrow_mut();
        change(&mut value)
    }
}

impl<T> From<T> for Field<T> {
    fn from(value: T) -> Self {
        Field(Cell::new(value))
    }
}

impl<'py, T: Clone + IntoPyObject<'py>> IntoPyObject<'py> for &Field<T> {
    type Target = T::Target;
    type Output = T::Output;
    type Error = T::Error;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Self::Error> {
        self.get(py).into_pyobject(py)
    }
}

/// Setters of a class's fields, `get_all` being its getters. What they take has the field's name, which
/// errors tell.
macro_rules! setters {
    ($class:ident: $($setter:ident($field:ident: $type:ty)),+ $(,)?) => {
        #[pyo3::pymethods]
        impl $class {
            $(
                #[setter]
                fn $setter(&self, py: pyo3::Python<'_>, $field: $type) {
                    self.$field.set(py, $field);
                }
            )+
        }
    };
}
pub(crate) use setters;
