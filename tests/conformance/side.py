"""One scheduler under play, behind the surface of api.md that both implementations share."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

from .events import (
    Aborted,
    Bootstrapped,
    Event,
    Finished,
    HandedOver,
    Loaded,
    PeerFailed,
    RemotelyPrefilled,
    Reserve,
    Result,
    Retracted,
    Stored,
)
from .plan import Plan, read_plan
from .storage import Key
from .world import Group, Request, World


def what_is_missing(module: str) -> str | None:
    """What to tell someone who wants to play `module`; None where it is installed."""
    if find_spec(module.partition(".")[0]):
        return None
    return (
        f"{module} is not installed: `pip install tokenspeed-scheduler==0.1.24` for the reference, "
        "or `--theirs none`"
    )


class Side:
    """A scheduler built for `world` from `module`, with plain data in and out.

    Operations of a copy are named by the round that planned them and their place in that plan, so
    that one list of events serves both sides though their operation ids may differ.
    """

    def __init__(self, module: str, world: World, policy: str | None = None) -> None:
        """`policy`: a ``PressurePolicy`` by name; None: the module's own, as the reference has."""
        self._api = importlib.import_module(module)
        config = build_config(self._api, world)
        if policy is not None:
            config.pressure_policy = getattr(self._api.PressurePolicy, policy)
        self._scheduler = self._api.Scheduler(config)
        self._group_ids = [group.id for group in world.groups]
        self._operations: dict[tuple[int, str, int], int] = {}

    def submit(self, request: Request) -> str | None:
        """Submits one request; returns the reason if it is refused (``ValueError``)."""
        spec = self._api.RequestSpec()
        spec.request_id = request.id
        spec.tokens = request.tokens()
        spec.max_new_tokens = request.budget
        try:
            self._scheduler.submit_requests([spec])
        except ValueError as error:
            return str(error)
        return None

    def advance(self, events: Iterable[Event]) -> None:
        """Feeds `events`, in order, as one ``ExecutionEvent``."""
        execution = self._api.ExecutionEvent()
        for event in events:
            execution.add_event(self._native(event))
        self._scheduler.advance(execution)

    def offer(self, event: Event) -> bool:
        """Feeds one event that may be refused; whether it is taken."""
        try:
            self.advance([event])
        except RuntimeError as error:
            if type(error).__name__ == "InternalError":
                raise
            return False
        return True

    def plan(self, round_: int) -> Plan:
        """The next plan; its operations become known to later events."""
        plan = self.read(self._scheduler.next_execution_plan())
        for tier, operations in (("store", plan.stores), ("load", plan.loads)):
            for place, op_id in enumerate(operations):
                self._operations[round_, tier, place] = op_id
        return plan

    def read(self, plan: Any) -> Plan:
        """A plan as plain data."""
        return read_plan(plan)

    def gauges(self, request_ids: Iterable[str]) -> dict[str, int]:
        """Every gauge by name; ``request_token_size`` for each of `request_ids`."""
        s = self._scheduler
        gauges = {
            "bootstrapping_size": s.bootstrapping_size(),
            "waiting_size": s.waiting_size(),
            "prefilling_size": s.prefilling_size(),
            "remote_prefilling_size": s.remote_prefilling_size(),
            "decoding_size": s.decoding_size(),
            "pd_transfer_size": s.pd_transfer_size(),
            "active_lcm_blocks": s.active_lcm_blocks(),
            "available_lcm_blocks": s.available_lcm_blocks(),
            "empty_lcm_blocks": s.empty_lcm_blocks(),
        }
        for group_id in self._group_ids:
            pages = s.cache_group_available_pages(group_id)
            gauges[f"cache_group_available_pages({group_id})"] = pages
        for request_id in request_ids:
            gauges[f"request_token_size({request_id})"] = s.request_token_size(request_id)
            gauges[f"pd_transfer_pinned({request_id})"] = int(s.pd_transfer_pinned(request_id))
        return gauges

    def bounds(self) -> dict[str, int]:
        """What holds for the life of the scheduler."""
        s = self._scheduler
        bounds = {"max_single_request_tokens": s.max_single_request_tokens()}
        for group_id in self._group_ids:
            name = f"cache_group_total_pages({group_id})"
            bounds[name] = s.cache_group_total_pages(group_id)
        return bounds

    def prefix_hashes(self, tokens: list[int]) -> list[str]:
        return [str(h) for h in self._scheduler.prefix_hashes_for_tokens(tokens)]

    def waiting_hashes(self) -> list[str]:
        """The pages that waiting prompts could take from storage."""
        return [str(h) for h in self._scheduler.waiting_prefix_hashes()]

    def expand(self, hashes: list[str]) -> list[Key]:
        """The keys of the pages `hashes` in every group."""
        groups, content, offsets = self._scheduler.expand_prefix_keys(hashes)
        keys = zip(groups, content, offsets, strict=True)
        return [(int(group), str(h), int(offset)) for group, h, offset in keys]

    def register(self, keys: list[Key]) -> None:
        """Tells that storage holds `keys`."""
        self._scheduler.register_storage_keys(*_columns(keys))

    def unregister(self, keys: list[Key]) -> None:
        """Tells that storage does not hold `keys` any more."""
        self._scheduler.unregister_storage_keys(*_columns(keys))

    def clear(self) -> dict[str, bool]:
        """Asks for the Device cache, then for both tiers, to be emptied; what each call says."""
        s = self._scheduler
        return {
            "clear_l1_cache": bool(s.clear_l1_cache()),
            "can_clear_cache": bool(s.can_clear_cache()),
            "clear_cache": bool(s.clear_cache()),
        }

    def can_clear_cache(self) -> bool:
        return bool(self._scheduler.can_clear_cache())

    def _native(self, event: Event) -> Any:
        api = self._api
        match event:
            case Result(request_id, tokens, candidates):
                native = api.ForwardEvent.ExtendResult()
                native.request_id = request_id
                native.tokens = list(tokens)
                native.spec_candidate_ids = list(candidates)
            case Reserve(request_id, tokens):
                native = api.ForwardEvent.UpdateReserveNumTokens()
                native.request_id = request_id
                native.reserve_num_tokens_in_next_schedule_event = tokens
            case Finished(request_id):
                native = api.ForwardEvent.Finish()
                native.request_id = request_id
            case Aborted(request_id):
                native = api.ForwardEvent.Abort()
                native.request_id = request_id
            case Stored(round_, place):
                native = api.Cache.WriteBackDoneEvent()
                native.op_id = self._operations[round_, "store", place]
            case Loaded(round_, place, success):
                op_id = self._operations[round_, "load", place]
                native = api.Cache.LoadBackDoneEvent(op_id, success)
            case Retracted(request_id):
                native = api.ForwardEvent.Retract()
                native.request_id = request_id
            case Bootstrapped(request_id):
                native = api.PD.BootstrappedEvent(request_id)
            case PeerFailed(request_id):
                native = api.PD.FailedEvent(request_id)
            case HandedOver(request_id):
                native = api.PD.SucceededEvent(request_id)
            case RemotelyPrefilled(request_id, token):
                native = api.PD.RemotePrefillDoneEvent(request_id, token)
        return native


def _columns(keys: list[Key]) -> tuple[list[int], list[str], list[int]]:
    return [g for g, _, _ in keys], [h for _, h, _ in keys], [o for _, _, o in keys]


def build_config(api: Any, world: World) -> Any:
    """`world`'s ``SchedulerConfig`` of the implementation `api`."""
    config = api.SchedulerConfig()
    config.role = getattr(api.SchedulerConfig.Role, world.role)
    config.prefix_granularity = world.granularity
    config.num_device_pages = world.device_blocks + 1
    config.num_host_pages = world.host_blocks + 1 if world.host_blocks else 0
    config.max_scheduled_tokens = world.token_budget
    config.max_batch_size = world.rows
    config.decode_input_tokens = world.width
    config.overlap_schedule_depth = world.depth
    config.enable_mixed_prefill_decode = world.mixed
    config.disable_prefix_cache = world.disable_prefix_cache
    config.disable_l2_cache = world.disable_l2_cache
    config.enable_l3_storage = world.storage
    config.prefix_replay_tokens = world.replay_tokens
    config.cache_groups = [
        build_group(api, group, world.device_blocks, world.role) for group in world.groups
    ]
    return config


def build_group(api: Any, group: Group, device_blocks: int, role: str) -> Any:
    """`group`'s ``CacheGroupConfig``; the roles that transfer need a policy (api.md)."""
    windowed = group.kind in ("sliding", "replay")
    native = api.CacheGroupConfig(
        group.id,
        group.granularity,
        device_blocks * group.packing + 1,
        retention=api.CacheRetention.SlidingWindow if windowed else api.CacheRetention.FullHistory,
        sliding_window_tokens=group.window if windowed else None,
        family=api.CacheGroupFamily.State
        if group.kind == "state"
        else api.CacheGroupFamily.History,
        cache_blocks_per_lcm_block=group.packing,
        replayable=group.kind == "replay",
    )
    if role != "Fused":
        policy = api.CacheTransferPolicy
        native.transfer_policy = (
            policy.LatestSnapshot if group.kind == "state" else policy.FullSuffix
        )
    return native
