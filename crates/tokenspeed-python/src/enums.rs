//! The core's enumerations as those of `tokenspeed.scheduler.enums`, by member name.

use pyo3::Borrowed;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use tokenspeed_scheduler::{
    CacheGroupFamily, CacheRetention, CacheTransferPolicy, PressurePolicy, Role,
};

const MODULE: &str = "tokenspeed.scheduler.enums";

/// An enumeration of the core that Python has under the same name, with the same members.
pub trait PythonEnum: Copy + PartialEq + std::fmt::Debug + 'static {
    /// The members; a member's name is its `Debug` text.
    const MEMBERS: &'static [Self];

    /// The Python class.
    fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>>;
}

macro_rules! python_enum {
    ($name:ident: $($member:ident),+) => {
        impl PythonEnum for $name {
            const MEMBERS: &'static [Self] = &[$($name::$member),+];

            fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
                static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
                CLASS.import(py, MODULE, stringify!($name))
            }
        }
    };
}

python_enum!(Role: P, D, Fused);
python_enum!(CacheRetention: FullHistory, SlidingWindow);
python_enum!(CacheGroupFamily: History, State);
python_enum!(CacheTransferPolicy: Unspecified, FullSuffix, LatestSnapshot);
python_enum!(PressurePolicy: Document, Goodput);

/// A member on its way between the two languages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice<T>(pub T);

impl<'py, T: PythonEnum> FromPyObject<'_, 'py> for Choice<T> {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let class = T::class(value.py())?;
        if value.is_instance(class)? {
            let name = value.getattr("name")?;
            let name = name.extract::<String>()?;
            if let Some(&member) = T::MEMBERS.iter().find(|member| format!("{member:?}") == name) {
                return Ok(Choice(member));
            }
        }
        let members = T::MEMBERS.iter().map(|member| format!("{member:?}"));
        let members = members.collect::<Vec<_>>().join(", ");
        let message =
            format!("expected a member of {} ({members}), got {}", class.name()?, value.repr()?);
        Err(PyTypeError::new_err(message))
    }
}

impl<'py, T: PythonEnum> IntoPyObject<'py> for Choice<T> {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        T::class(py)?.getattr(format!("{:?}", self.0))
    }
}

impl<'py, T: PythonEnum> IntoPyObject<'py> for &Choice<T> {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        (*self).into_pyobject(py)
    }
}
