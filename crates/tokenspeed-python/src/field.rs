//! Attributes that any thread may write: no thread finds an object borrowed by another.

use std::mem;

use pyo3::prelude::*;

/// An attribute of a frozen class. Read and written whole, by a thread that is attached to the
/// interpreter, and nothing of Python runs in between.
pub struct Field<T>(Slot<T>);

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
    pub fn change<R>(&self, py: Python<'_>, change: impl FnOnce(&mut T) -> R) -> R {
        self.0.with(py, change)
    }
}

impl<T> From<T> for Field<T> {
    fn from(value: T) -> Self {
        Field(Slot::from(value))
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

#[cfg(not(Py_GIL_DISABLED))]
use by_interpreter_lock::Slot;
#[cfg(Py_GIL_DISABLED)]
use by_own_lock::Slot;

/// Where the interpreter has a lock: a lock of the field's own would cost a result a fifth of its time.
#[cfg(not(Py_GIL_DISABLED))]
mod by_interpreter_lock {
    use std::cell::RefCell;

    use pyo3::Python;

    pub struct Slot<T>(RefCell<T>);

    // SAFETY: the cell is reached through `with` alone, whose caller is attached to the interpreter. One
    // thread at a time is, and its lock orders what the threads do. Should the change let go of that
    // lock all the same, then the cell stays marked as borrowed, and another thread panics.
    unsafe impl<T: Send> Sync for Slot<T> {}

    impl<T> Slot<T> {
        pub fn with<R>(&self, _py: Python<'_>, change: impl FnOnce(&mut T) -> R) -> R {
            change(&mut self.0.borrow_mut())
        }
    }

    impl<T> From<T> for Slot<T> {
        fn from(value: T) -> Self {
            Slot(RefCell::new(value))
        }
    }
}

/// Where threads run Python side by side.
#[cfg(Py_GIL_DISABLED)]
mod by_own_lock {
    use std::sync::{Mutex, PoisonError};

    use pyo3::Python;

    pub struct Slot<T>(Mutex<T>);

    impl<T> Slot<T> {
        pub fn with<R>(&self, _py: Python<'_>, change: impl FnOnce(&mut T) -> R) -> R {
            change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }

    impl<T> From<T> for Slot<T> {
        fn from(value: T) -> Self {
            Slot(Mutex::new(value))
        }
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
