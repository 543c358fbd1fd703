"""`tokenspeed events`."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import zmq
from tokenspeed.cli import main
from tokenspeed.events import Batch, BlockRemoved, BlockStored, KvEventPublisher
from tokenspeed.events.show import lines
from tokenspeed.events.wire import Event

from .engine import build, play

ROOT = Path(__file__).parents[2]
LOCAL = "tcp://127.0.0.1:*"


def untimed(text: str) -> str:
    return re.sub(r"\d\d:\d\d:\d\d[.]\d\d\d", "TIME", text)


def test_a_batch_in_lines() -> None:
    events: list[Event] = [BlockRemoved([2**64 - 1]), BlockStored([1, 2], None, list(range(16)), 8)]
    batch = Batch(12, 0.125, events, 3, missed=2)
    assert [untimed(line) for line in lines(batch, 87)] == [
        "     2 batches are lost: what they said is unknown",
        "#12  TIME  rank 3  2 stored, 1 removed, 87 resident",
        "  - ffffffffffffffff",
        "  + 0000000000000001  8 tokens: 0, 1, 2, 3, 4, 5, ...",
        "  + 0000000000000002 behind 0000000000000001  8 tokens: 8, 9, 10, 11, 12, 13, ...",
    ]


def test_the_command_shows_what_comes() -> None:
    scheduler = build()
    with KvEventPublisher(LOCAL, replay_endpoint=LOCAL) as publisher:
        play(scheduler, 0)
        publisher.publish(scheduler)
        ran = subprocess.run(
            [
                *(sys.executable, "-m", "tokenspeed.cli", "events", publisher.endpoint),
                *("--replay", str(publisher.replay_endpoint), "--count", "2"),
            ],
            capture_output=True,
            text=True,
            timeout=20,
        )
    assert ran.returncode == 0, ran.stderr
    shown = ran.stdout.splitlines()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert untimed(ran.stdout) in untimed(readme)
    assert shown[0].endswith("0 stored, 0 removed, 0 resident")
    assert shown[1] == "  everything is gone"
    assert shown[2].endswith("2 stored, 0 removed, 2 resident")
    assert shown[3].endswith("  4 tokens: 0, 1, 2, 3")


def test_the_command_says_that_it_waits() -> None:
    endpoint = "tcp://127.0.0.1:1"
    with subprocess.Popen(
        [sys.executable, "-m", "tokenspeed.cli", "events", endpoint],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as ran:
        patience = threading.Timer(20, ran.kill)
        patience.start()
        assert ran.stderr is not None
        assert ran.stderr.readline() == f"waiting for {endpoint} (Ctrl-C ends it)\n"
        ran.send_signal(signal.SIGINT)
        assert ran.communicate() == ("", "\ntokenspeed: error: interrupted\n")
        patience.cancel()
    assert ran.returncode == 130


@pytest.mark.parametrize("endpoints", [["nowhere"], [LOCAL, "--replay", "tcp://x:y"]])
def test_a_wrong_endpoint_is_one_line(
    endpoints: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["events", *endpoints])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "is no endpoint" in error


def test_what_is_no_event_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.linger = 0
        socket.bind(LOCAL)
        endpoint = socket.getsockopt_string(zmq.LAST_ENDPOINT)

        def answer() -> None:
            *envelope, _ = socket.recv_multipart()
            socket.send_multipart([*envelope, b"12345678", b"nonsense"])

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(SystemExit) as ended:
            main(["events", endpoint, "--replay", endpoint])
        thread.join()
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "no batch of cache events" in error
