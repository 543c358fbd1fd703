"""Cache events on the wire, for routers that send a prompt to the engine that has cached it.

An engine publishes, once a round or as often as it likes::

    config.enable_kv_cache_events = True
    with KvEventPublisher("tcp://*:5557", replay_endpoint="tcp://*:5558") as publisher:
        ...
        publisher.publish(scheduler)

A consumer receives, and holds what prompts would find there::

    resident = ResidentBlocks()
    with KvEventSubscriber("tcp://host:5557", "tcp://host:5558") as subscriber:
        for batch in subscriber:
            resident.apply(batch)

`tokenspeed.events.wire` says what the messages look like. Needs ``tokenspeed-core[events]``.
"""

try:
    from tokenspeed.events.publisher import KvEventPublisher
    from tokenspeed.events.resident import ResidentBlocks
    from tokenspeed.events.subscriber import KvEventSubscriber
    from tokenspeed.events.wire import AllBlocksCleared, Batch, BlockRemoved, BlockStored
except ModuleNotFoundError as error:
    if error.name not in ("msgspec", "zmq"):
        raise
    raise ModuleNotFoundError(
        f"tokenspeed.events needs {error.name}: pip install 'tokenspeed-core[events]'",
        name=error.name,
    ) from None

__all__ = [
    "AllBlocksCleared",
    "Batch",
    "BlockRemoved",
    "BlockStored",
    "KvEventPublisher",
    "KvEventSubscriber",
    "ResidentBlocks",
]
