//! The scheduler's Python surface (`api.md`): conversion, errors, views; nothing is decided here.
//!
//! The classes live flat in `tokenspeed.scheduler._core`; the Python package puts them into the
//! namespaces that engines know (`Cache`, `Forward`, `ForwardEvent`, `PD`, `KVEvent`) and holds the
//! enumerations and exceptions.

mod batch;
mod capacity;
mod config;
mod copies;
mod enums;
mod errors;
mod events;
mod execution_event;
mod field;
mod gauges;
mod group_config;
mod guard;
mod ids;
mod integers;
mod items;
mod kv_events;
mod plan;
mod prefix_cache;
mod recording;
mod repr;
mod request;
mod request_id;
mod rerun;
mod scheduler;
mod views;

/// The compiled part of `tokenspeed.scheduler`; import from there.
#[pyo3::pymodule(gil_used = false)]
mod _core {
    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::capacity::CapacityModel;
    #[pymodule_export]
    use crate::config::SchedulerConfig;
    #[pymodule_export]
    use crate::copies::{LoadBackOp, WriteBackOp};
    #[pymodule_export]
    use crate::events::{
        Abort, BootstrappedEvent, ExtendResult, FailedEvent, Finish, LoadBackDoneEvent,
        RemotePrefillDoneEvent, Retract, SucceededEvent, UpdateReserveNumTokens,
        WriteBackDoneEvent,
    };
    #[pymodule_export]
    use crate::execution_event::ExecutionEvent;
    #[pymodule_export]
    use crate::gauges::OwedResult;
    #[pymodule_export]
    use crate::group_config::CacheGroupConfig;
    #[pymodule_export]
    use crate::kv_events::{BlockRemoved, BlockStored};
    #[pymodule_export]
    use crate::plan::{AbortNotice, ExecutionPlan};
    #[pymodule_export]
    use crate::request::RequestSpec;
    #[pymodule_export]
    use crate::rerun::{Rerun, RerunStep};
    #[pymodule_export]
    use crate::scheduler::Scheduler;
    use pyo3::prelude::*;

    /// Without NumPy the import fails, rather than the first array.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.py().import("numpy").map(drop)
    }
}
