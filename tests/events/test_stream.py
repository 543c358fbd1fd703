"""Publisher and subscriber: who comes late or misses something recovers it, and then holds exactly
what is resident."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq
from tokenspeed.events import (
    Batch,
    KvEventPublisher,
    KvEventSubscriber,
    ResidentBlocks,
    wire,
)
from tokenspeed.events.wire import END, decode, frame

from .engine import build, held_after, play

ROOT = Path(__file__).parents[2]
LOCAL = "tcp://127.0.0.1:*"
PATIENCE_S = 20.0

CONSUMER = """
import json, sys
from tokenspeed.events import KvEventSubscriber, ResidentBlocks
resident, missed, batches = ResidentBlocks(), 0, 0
with KvEventSubscriber(sys.argv[1], sys.argv[2]) as subscriber:
    for batch in subscriber:
        resident.apply(batch)
        missed += batch.missed
        batches += 1
        if batch.sequence >= int(sys.argv[3]):
            break
print(json.dumps([missed, batches, sorted(resident)]))
"""


@pytest.fixture
def publisher() -> Iterator[KvEventPublisher]:
    with KvEventPublisher(LOCAL, replay_endpoint=LOCAL) as publisher:
        yield publisher


def read(publisher: KvEventPublisher, last: int) -> ResidentBlocks:
    """A subscriber that reads up to a batch."""
    assert publisher.replay_endpoint is not None
    resident = ResidentBlocks()
    with KvEventSubscriber(publisher.endpoint, publisher.replay_endpoint) as subscriber:
        while True:
            batch = subscriber.receive(PATIENCE_S)
            assert batch is not None and batch.missed == 0
            resident.apply(batch)
            if batch.sequence >= last:
                return resident


def test_a_late_process_holds_what_is_resident(publisher: KvEventPublisher) -> None:
    scheduler = build()
    batches = 0
    for turn in range(30):
        play(scheduler, turn)
        batches += bool(publisher.publish(scheduler))
    assert publisher.replay_endpoint is not None
    last = batches + 4
    consumer = subprocess.Popen(
        [sys.executable, "-c", CONSUMER, publisher.endpoint, publisher.replay_endpoint, str(last)],
        stdout=subprocess.PIPE,
        text=True,
    )
    turn = 30
    while batches < last:  # it starts in the midst of these
        play(scheduler, turn)
        batches += bool(publisher.publish(scheduler))
        turn += 1
        time.sleep(0.05)
    out, _ = consumer.communicate(timeout=PATIENCE_S)
    missed, seen, resident = json.loads(out)
    assert (missed, seen) == (0, last + 1)  # the first batch clears
    assert set(resident) == held_after(range(turn))


class Deaf(KvEventSubscriber):
    """Loses batches on the way, as one that is too slow does."""

    lost = 0

    def _take(self, batch: Batch) -> None:
        if batch.sequence % 4 in (1, 2):
            self.lost += 1
        else:
            super()._take(batch)


def test_gaps_are_mended(publisher: KvEventPublisher) -> None:
    assert publisher.replay_endpoint is not None
    scheduler = build()
    resident = ResidentBlocks()
    sequences: list[int] = []
    deaf = Deaf(publisher.endpoint, publisher.replay_endpoint)
    with deaf as subscriber:
        published = 0
        for turn in range(40):
            play(scheduler, turn)
            published += bool(publisher.publish(scheduler))
            while not sequences or sequences[-1] < published - 3:
                batch = subscriber.receive(PATIENCE_S)
                assert batch is not None
                sequences.append(batch.sequence)
                resident.apply(batch)
        while sequences[-1] < published:
            batch = subscriber.receive(PATIENCE_S)  # the last ones after a silence, if need be
            assert batch is not None
            sequences.append(batch.sequence)
            resident.apply(batch)
        assert deaf.lost > 5
        assert subscriber.receive(0.01) is None
    assert sequences == list(range(published + 1))
    assert set(resident) == held_after(range(40))


def test_what_nobody_has_any_more_is_counted() -> None:
    scheduler = build()
    with KvEventPublisher(LOCAL, replay_endpoint=LOCAL, buffer_batches=3) as publisher:
        published = 0
        for turn in range(12):
            play(scheduler, turn)
            published += bool(publisher.publish(scheduler))
        assert publisher.replay_endpoint is not None
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            with KvEventSubscriber(publisher.endpoint, publisher.replay_endpoint) as subscriber:
                first = subscriber.receive(PATIENCE_S)
                assert first is not None
                if first.sequence == published - 2:
                    break
            assert time.monotonic() < deadline_s
        assert first.missed == published - 2


def test_without_replay_a_gap_is_counted() -> None:
    scheduler = build()
    with KvEventPublisher(LOCAL) as publisher:
        assert publisher.replay_endpoint is None
        play(scheduler, 0)
        assert publisher.publish(scheduler)
        with KvEventSubscriber(publisher.endpoint) as subscriber:
            turn, batch = 1, None
            while batch is None:
                play(scheduler, turn)
                publisher.publish(scheduler)
                batch = subscriber.receive(0.1)
                turn += 1
            assert batch.missed == batch.sequence > 0


@contextmanager
def another_engine(
    turns: int, replays: bool = True
) -> Iterator[tuple[KvEventPublisher, KvEventSubscriber, ResidentBlocks]]:
    """An engine's publisher, a subscriber that has followed one before it at the same endpoint for
    so many turns, and what that subscriber holds."""
    first = KvEventPublisher(LOCAL, replay_endpoint=LOCAL)
    endpoint, replay = first.endpoint, first.replay_endpoint
    assert replay is not None
    resident = ResidentBlocks()
    asked = replay if replays else None
    with KvEventSubscriber(endpoint, asked, replay_timeout_s=0.2) as subscriber:
        subscriber.receive(0.2)  # connects
        scheduler = build()
        for turn in range(turns):
            play(scheduler, turn)
            first.publish(scheduler)
        while batch := subscriber.receive(1.0):
            resident.apply(batch)
        first.close()
        with KvEventPublisher(endpoint, replay_endpoint=replay) as second:
            yield second, subscriber, resident


def test_another_engine_at_the_same_place_is_followed() -> None:
    with another_engine(6) as (second, subscriber, resident):
        assert len(resident) > 5
        scheduler = build()
        deadline_s = time.monotonic() + PATIENCE_S
        turns = 0
        while not turns or set(resident) != held_after(range(turns)):
            assert time.monotonic() < deadline_s
            play(scheduler, turns)
            second.publish(scheduler)
            turns += 1
            while batch := subscriber.receive(0.2):
                resident.apply(batch)


@pytest.mark.parametrize("turns", [1, 8])
def test_another_engine_is_known_by_its_batches_not_by_their_number(turns: int) -> None:
    """The second engine has sent fewer, or more, than the consumer had seen of the first."""
    with another_engine(4) as (second, subscriber, resident):
        scheduler = build()
        for turn in range(10, 10 + turns):
            play(scheduler, turn)
            second.publish(scheduler)
        deadline_s = time.monotonic() + PATIENCE_S
        while set(resident) != held_after(range(10, 10 + turns)):
            assert time.monotonic() < deadline_s
            if batch := subscriber.receive(0.2):
                resident.apply(batch)


@pytest.mark.parametrize("replays", [True, False])
def test_another_engine_that_has_sent_as_many_is_known(replays: bool) -> None:
    """Its next batch has the number that the first would have given it; no silence tells."""
    # Again where the consumer was connected too early, and heard one before, or too late.
    assert any(is_known_by_its_first_word(replays) for _ in range(20))


def is_known_by_its_first_word(replays: bool) -> bool:
    with another_engine(4, replays) as (second, subscriber, resident):
        subscriber.silence_s = 1000.0
        scheduler = build()
        for turn in range(10, 15):
            # Connects again, which takes a consumer that listens; what went before it is not heard.
            if turn == 14 and subscriber.receive(1.5) is not None:
                return False
            play(scheduler, turn)
            second.publish(scheduler)
        heard = []
        while batch := subscriber.receive(0.5):
            resident.apply(batch)
            heard.append(batch)
        if heard and replays:
            assert set(resident) == held_after(range(10, 15))
        elif heard:
            assert heard[0].missed == heard[0].sequence > 0
            assert set(resident) <= held_after(range(10, 15))
        return bool(heard)


def test_a_consumer_that_polls_asks_for_what_it_missed(publisher: KvEventPublisher) -> None:
    assert publisher.replay_endpoint is not None
    scheduler = build()
    with Deaf(publisher.endpoint, publisher.replay_endpoint) as subscriber:
        assert subscriber.receive(PATIENCE_S) is not None
        play(scheduler, 0)
        publisher.publish(scheduler)
        deadline_s = time.monotonic() + PATIENCE_S
        while subscriber.receive(0.1) is None:
            assert time.monotonic() < deadline_s


def test_a_replay_as_others_ask_for_it(publisher: KvEventPublisher) -> None:
    scheduler = build()
    published = 0
    for turn in range(8):
        play(scheduler, turn)
        published += bool(publisher.publish(scheduler))
    read(publisher, published)
    assert publisher.replay_endpoint is not None
    with zmq.Context() as context:
        for kind, envelope in ((zmq.REQ, []), (zmq.DEALER, [b""]), (zmq.DEALER, [])):
            with context.socket(kind) as socket:
                socket.rcvtimeo = int(PATIENCE_S * 1000)
                socket.connect(publisher.replay_endpoint)
                if kind == zmq.DEALER:
                    socket.send_multipart([*envelope, b"no question"])
                socket.send_multipart([*envelope, frame(published - 1)])
                answers: list[tuple[bytes, bytes]] = []
                while not answers or (kind == zmq.DEALER and answers[-1][0] != END):
                    *head, sequence, payload = socket.recv_multipart()
                    assert head == envelope
                    answers.append((sequence, payload))
        assert [decode((b"", s, p)).sequence for s, p in answers[:-1]] == [published - 1, published]
        assert answers[-1] == (END, b"")


def test_a_full_queue_holds_nobody_up_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = threading.Event()
    encode = wire.encode

    def stuck(*args: Any) -> bytes:
        assert gate.wait(PATIENCE_S)
        return encode(*args)

    monkeypatch.setattr(wire, "encode", stuck)
    scheduler = build()
    with KvEventPublisher(LOCAL, replay_endpoint=LOCAL, queue_batches=2) as publisher:
        accepted = 0
        for turn in range(50):
            play(scheduler, turn)
            accepted += bool(publisher.publish(scheduler))
        assert accepted <= 2
        gate.set()
        deadline_s = time.monotonic() + PATIENCE_S
        while not publisher.publish(scheduler):
            assert time.monotonic() < deadline_s
        accepted += 1
        assert set(read(publisher, accepted)) == held_after(range(50))


def test_closing_sends_what_is_queued_and_frees_the_endpoint() -> None:
    scheduler = build()
    publisher = KvEventPublisher(LOCAL, replay_endpoint=LOCAL)
    play(scheduler, 0)
    assert publisher.replay_endpoint is not None
    with KvEventSubscriber(publisher.endpoint, publisher.replay_endpoint) as subscriber:
        assert subscriber.receive(PATIENCE_S) is not None
        deadline_s = time.monotonic() + PATIENCE_S
        turn, sent = 1, 0
        while not sent or subscriber.receive(0.05) is None:  # until the subscription has arrived
            assert time.monotonic() < deadline_s
            play(scheduler, turn)
            sent += bool(publisher.publish(scheduler))
            turn += 1
        play(scheduler, turn)
        play(scheduler, turn + 1)
        assert publisher.publish(scheduler)
        publisher.close()
        publisher.close()
        assert "closed" in repr(publisher)
        last = sent + 1
        sequence = -1
        while sequence < last:
            batch = subscriber.receive(1.0)
            assert batch is not None
            sequence = batch.sequence
    assert publisher.publish(scheduler) == 0
    KvEventPublisher(publisher.endpoint).close()
    assert not [t for t in threading.enumerate() if t.name.startswith("kv-events")]


def test_an_endpoint_in_use_says_so(publisher: KvEventPublisher) -> None:
    for endpoints in ((publisher.endpoint, None), (LOCAL, publisher.endpoint)):
        with pytest.raises(zmq.ZMQError, match="in use"):
            KvEventPublisher(endpoints[0], replay_endpoint=endpoints[1])


def test_a_publisher_that_broke_off_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bytes:
        raise MemoryError("as asked")

    scheduler = build()
    monkeypatch.setattr(wire, "encode", broken)
    with KvEventPublisher(LOCAL) as publisher:
        deadline_s = time.monotonic() + PATIENCE_S
        with pytest.raises(RuntimeError, match="broke off") as error:
            while time.monotonic() < deadline_s:
                play(scheduler, 0)
                publisher.publish(scheduler)
        assert isinstance(error.value.__cause__, MemoryError)


@pytest.mark.parametrize(
    "wrong",
    [
        "tcp//x",
        "nosuch://*:1",
        "",
        "udp://127.0.0.1:5555",
        "ipc://" + "x" * 200,
        None,
        b"tcp://*:*",
    ],
)
def test_what_is_no_endpoint_is_refused(wrong: Any) -> None:
    said = f"^{re.escape(repr(wrong))} is no endpoint; one is like tcp://"
    with pytest.raises(ValueError, match=said):
        KvEventPublisher(wrong)
    if wrong is not None:
        with pytest.raises(ValueError, match=said):
            KvEventPublisher(LOCAL, replay_endpoint=wrong)
    with pytest.raises(ValueError, match=said):
        KvEventSubscriber(wrong)


@pytest.mark.parametrize("port", ["99999", "-1", "65536", "12x", "", "99999999999999999999"])
def test_a_port_that_zeromq_would_wrap_is_refused(port: str) -> None:
    said = re.escape(f"127.0.0.1:{port}' is no endpoint: a port is 1 to 65535")
    with pytest.raises(ValueError, match=said + r", or \* for any$"):
        KvEventPublisher(f"tcp://127.0.0.1:{port}")
    with pytest.raises(ValueError, match=said + "$"):
        KvEventSubscriber(f"tcp://127.0.0.1:{port}")


@pytest.mark.parametrize("port", ["*", "0"])
def test_any_port_is_one_that_is_free(port: str) -> None:
    with KvEventPublisher(f"tcp://127.0.0.1:{port}") as publisher:
        assert 1 <= int(publisher.endpoint.removeprefix("tcp://127.0.0.1:")) <= 65535


@pytest.mark.parametrize("host", ["nosuch.host.invalid", "192.0.2.1"])
def test_a_host_that_is_another_machine_says_what_to_bind(host: str) -> None:
    with pytest.raises(zmq.ZMQError, match=f"{host}:5557' cannot .* no address of this machine"):
        KvEventPublisher(f"tcp://{host}:5557")


@pytest.mark.parametrize(
    ("name", "wrong", "rule"),
    [
        ("queue_batches", 0, "a whole number, 1 to 2147483647"),
        ("queue_batches", "3", "a whole number, 1 to 2147483647"),
        ("queue_batches", 1.5, "a whole number, 1 to 2147483647"),
        ("queue_batches", True, "a whole number, 1 to 2147483647"),
        ("buffer_batches", -1, "a whole number, 0 to 2147483647"),
        ("buffer_batches", None, "a whole number, 0 to 2147483647"),
        ("high_water_mark", -1, "a whole number, 0 to 2147483647"),
        ("high_water_mark", 2**31, "a whole number, 0 to 2147483647"),
        ("linger_s", -1, "a number of seconds, 0 to 2147483"),
        ("linger_s", float("nan"), "a number of seconds, 0 to 2147483"),
        ("linger_s", "1", "a number of seconds, 0 to 2147483"),
        ("topic", 5, "a text"),
    ],
)
def test_a_wrong_argument_is_named_with_its_value(name: str, wrong: object, rule: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} = {wrong!r}: {name} is {rule}$"):
        KvEventPublisher(LOCAL, **{name: wrong})  # type: ignore[arg-type]


def test_the_least_arguments_do() -> None:
    KvEventPublisher(
        LOCAL, queue_batches=1, buffer_batches=0, high_water_mark=0, linger_s=0
    ).close()


def test_a_layout_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="layout = 'x': it is one of map, array"):
        KvEventPublisher(LOCAL, layout="x")  # type: ignore[arg-type]
