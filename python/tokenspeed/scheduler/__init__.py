"""The scheduler of an LLM engine: which requests run in the next round, and in which cache blocks.

A round is three calls: `Scheduler.advance` tells what has happened, `Scheduler.submit_requests`
brings new requests, and `Scheduler.next_execution_plan` decides.

    scheduler = Scheduler(config)
    scheduler.submit_requests([RequestSpec(request_id="a", tokens=[1, 2, 3], max_new_tokens=16)])
    plan = scheduler.next_execution_plan()
    ...  # run plan.batch, sample a token
    result = ForwardEvent.ExtendResult(request_id="a", tokens=[7])
    scheduler.advance(ExecutionEvent([result]))

Lists (`Batch.input_ids`) are built on access; the arrays beside them (`Batch.input_ids_array`) are
read-only views of the plan's own memory, valid for as long as one holds them.
"""

from tokenspeed.scheduler import PD, Cache, Forward, ForwardEvent, KVEvent
from tokenspeed.scheduler._core import (
    AbortNotice,
    CacheGroupConfig,
    CapacityModel,
    ExecutionEvent,
    ExecutionPlan,
    OwedResult,
    RequestSpec,
    Rerun,
    RerunStep,
    Scheduler,
    SchedulerConfig,
)
from tokenspeed.scheduler.enums import (
    CacheGroupFamily,
    CacheRetention,
    CacheTransferPolicy,
    PressurePolicy,
)
from tokenspeed.scheduler.errors import (
    ConfigError,
    EventError,
    InternalError,
    RecordingError,
    RecordingWarning,
    RequestError,
    SchedulerError,
    UnknownGroupError,
    UnsupportedError,
)

__all__ = [
    "AbortNotice",
    "Cache",
    "CacheGroupConfig",
    "CacheGroupFamily",
    "CacheRetention",
    "CacheTransferPolicy",
    "CapacityModel",
    "ConfigError",
    "EventError",
    "ExecutionEvent",
    "ExecutionPlan",
    "Forward",
    "ForwardEvent",
    "InternalError",
    "KVEvent",
    "OwedResult",
    "PD",
    "PressurePolicy",
    "RecordingError",
    "RecordingWarning",
    "RequestError",
    "RequestSpec",
    "Rerun",
    "RerunStep",
    "Scheduler",
    "SchedulerConfig",
    "SchedulerError",
    "UnknownGroupError",
    "UnsupportedError",
]
