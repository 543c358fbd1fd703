//! The list of events that one `advance` carries out.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use tokenspeed_scheduler::Event;

use crate::events;
use crate::field::Field;
use crate::items;
use crate::repr;

/// What has happened since the last round, in order: events of `ForwardEvent`, `Cache` and `PD`.
///
/// An event is copied when it is added. `Scheduler.advance` carries all of them out, or none. Threads
/// may share it: what one adds while another's `advance` runs is not part of that.
#[pyclass(module = "tokenspeed.scheduler", frozen)]
pub struct ExecutionEvent {
    events: Field<Arc<Vec<Event>>>,
}

#[pymethods]
impl ExecutionEvent {
    #[new]
    #[pyo3(signature = (events = Vec::new()), text_signature = "(events=())")]
    fn new(#[pyo3(from_py_with = items::of)] events: Vec<Bound<'_, PyAny>>) -> PyResult<Self> {
        let events: Vec<Event> = events.iter().map(to_core).collect::<PyResult<_>>()?;
        Ok(ExecutionEvent { events: Arc::new(events).into() })
    }

    /// Appends a copy of an event and returns this list. Raises TypeError for anything else.
    fn add_event<'py>(
        this: PyRef<'py, Self>,
        event: &Bound<'py, PyAny>,
    ) -> PyResult<PyRef<'py, Self>> {
        let new = to_core(event)?;
        // In place, unless an `advance` is reading them.
        this.events.change(event.py(), |events| Arc::make_mut(events).push(new));
        Ok(this)
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.events(py).len()
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let names: Vec<&str> = self.events(py).iter().map(Event::name).collect();
        format!("<ExecutionEvent: {}>", repr::texts(&names))
    }
}

impl ExecutionEvent {
    /// What to carry out, as of now.
    pub fn events(&self, py: Python<'_>) -> Arc<Vec<Event>> {
        self.events.get(py)
    }
}

fn to_core(event: &Bound<'_, PyAny>) -> PyResult<Event> {
    let py = event.py();
    macro_rules! first_of {
        ($($class:ident),+) => {
            $(if let Ok(event) = event.cast::<events::$class>() {
                return Ok(event.get().to_core(py));
            })+
        };
    }
    first_of!(
        ExtendResult,
        Finish,
        WriteBackDoneEvent,
        LoadBackDoneEvent,
        Abort,
        Retract,
        UpdateReserveNumTokens,
        BootstrappedEvent,
        FailedEvent,
        SucceededEvent,
        RemotePrefillDoneEvent
    );
    let message = format!(
        "expected an event of ForwardEvent, Cache or PD, got {}",
        event.get_type().fully_qualified_name()?
    );
    Err(PyTypeError::new_err(message))
}
