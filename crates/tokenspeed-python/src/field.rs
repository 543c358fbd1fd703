//! Attributes that any thread may write: no thread finds an object borrowed by another.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

/// An attribute of a frozen class. Read and written whole; nothing of Python runs while it is locked.
#[derive(Debug, Default)]
pub struct Field<T>(Mutex<T>);

impl<T: Clone> Field<T> {
    /// A copy of its value.
    pub fn get(&self) -> T {
        self.locked().clone()
    }

    /// Writes it.
    pub fn set(&self, value: T) {
        let former = mem::replace(&mut *self.locked(), value);
        drop(former); // which may run Python, now that the lock is free
    }

    /// Runs `change` on its value, in place. It must not run Python.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut self.locked())
    }

    fn locked(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> From<T> for Field<T> {
    fn from(value: T) -> Self {
        Field(Mutex::new(value))
    }
}

impl<'py, T: Clone + IntoPyObject<'py>> IntoPyObject<'py> for &Field<T> {
    type Target = T::Target;
    type Output = T::Output;
    type Error = T::Error;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Self::Error> {
        self.get().into_pyobject(py)
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
                fn $setter(&self, $field: $type) {
                    self.$field.set($field);
                }
            )+
        }
    };
}
pub(crate) use setters;
