"""Puts an engine's device side together: arenas, the model on them, rows, executor, handle."""

from __future__ import annotations

from tokenspeed.runtime.arena import Arena
from tokenspeed.runtime.device import Device
from tokenspeed.runtime.drafter import Drafter
from tokenspeed.runtime.executor import RoundExecutor
from tokenspeed.runtime.handle import DeviceHandle
from tokenspeed.runtime.remote import RemotePeer
from tokenspeed.runtime.rows import DeviceRows
from tokenspeed.runtime.runner import ModelRunner, Sampler
from tokenspeed.runtime.transfer import TierTransfer
from tokenspeed.scheduler import SchedulerConfig


def build_handle(
    config: SchedulerConfig,
    tokens_max: int,
    runner: ModelRunner,
    device: Device,
    sampler: Sampler,
    drafter: Drafter | None,
    *,
    inline: bool,
    peer: RemotePeer | None = None,
    name: str = "",
    executor_type: type[RoundExecutor] = RoundExecutor,
) -> DeviceHandle:
    """One allocation on the device and one in host memory, of the same geometry. `tokens_max`: of
    one request, prompt and output. Raises `DeviceFault`."""
    layout = runner.recipe().layout
    on_device = Arena(
        layout,
        config.num_device_pages,
        device.alloc_device(config.num_device_pages * layout.parent_bytes),
    )
    on_host = None
    if config.num_host_pages and not config.disable_l2_cache:
        nbytes = config.num_host_pages * layout.parent_bytes
        on_host = Arena(layout, config.num_host_pages, device.alloc_host(nbytes))
    runner.bind(on_device, device)
    block_tokens = {group.group_id: group.block_granularity for group in config.cache_groups}
    width = config.decode_input_tokens
    # A verify step demands its whole width, however few tokens it lands; a state group one more.
    slots = {name: -(-width * (tokens_max + 4) // g) + 2 for name, g in block_tokens.items()}
    made: list[DeviceRows] = []

    def make() -> None:
        rows = DeviceRows(
            device.xp,
            num_rows=config.max_batch_size + 1,
            width=width,
            columns=slots,
            drafter=drafter,
            tokens_max=tokens_max,
        )
        made.append(rows)

    # On the stream that will use them: what zeroes them has to be ordered before.
    device.run(device.stream(f"{name}forward"), make)
    device.synchronize()
    (rows,) = made
    transfer = TierTransfer(device, on_device, on_host)
    executor = executor_type(
        device, runner, sampler, drafter, transfer, rows, block_tokens, peer, name
    )
    return DeviceHandle(device, executor, inline=inline)
