//! The list of events that one `advance` carries out.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use tokenspeed_scheduler::Event;

use crate::events;
use crate::items;
use crate::repr;

/// What has happened since the last round, in order: events of `ForwardEvent`, `Cache` and `PD`.
///
/// An event is copied when it is added. `Scheduler.advance` carries all of them out, or none.
#[pyclass(module = "tokenspeed.scheduler")]
#[derive(Debug)]
pub struct ExecutionEvent {
    /// What to carry out.
    pub events: Vec<Event>,
}

#[pymethods]
impl ExecutionEvent {
    #[new]
    #[pyo3(signature = (events = Vec::new()), text_signature = "(events=())")]
    fn new(#[pyo3(from_py_with = items::of)] events: Vec<Bound<'_, PyAny>>) -> PyResult<Self> {
        let events = events.iter().map(to_core).collect::<PyResult<_>>()?;
        Ok(ExecutionEvent { events })
    }

    /// Appends a copy of an event and returns this list. Raises TypeError for anything else.
    fn add_event<'py>(
        mut this: PyRefMut<'py, Self>,
        event: &Bound<'py, PyAny>,
    ) -> PyResult<PyRefMut<'py, Self>> {
        let event = to_core(event)?;
        this.events.push(event);
        Ok(this)
    }

    fn __len__(&self) -> usize {
        self.events.len()
    }

    fn __repr__(&self) -> String {
        let names: Vec<&str> = self.events.iter().map(Event::name).collect();
        format!("<ExecutionEvent: {}>", repr::texts(&names))
    }
}

fn to_core(event: &Bound<'_, PyAny>) -> PyResult<Event> {
    macro_rules! first_of {
        ($($class:ident),+) => {
            $(if let Ok(event) = event.cast::<events::$class>() {
                return Ok(Event::from(&*event.try_borrow()?));
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
