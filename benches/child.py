"""The process that a peer is played in, on an interpreter of its own if need be: the schedulers of
other projects want other packages than this one does.

`Child` is the session's side. The other side is this file as a program, `child.py FD PEER`: it sets
situations up and plays their steps, as it is told over the socket `FD`.
"""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
from multiprocessing.connection import Connection
from typing import Any


class Lost(Exception):
    """A scheduler failed, took too long or ended its process."""


class Child:
    """One peer's process."""

    def __init__(self, peer: str, python: str, patience_s: float) -> None:
        ours, theirs = socket.socketpair()
        command = [python, __file__, str(theirs.fileno()), peer]
        # What other projects print is of no interest here, and would break the progress bar.
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], **quiet)
        theirs.close()
        self._pipe = Connection(ours.detach())
        self._patience_s = patience_s
        self._lost: str | None = None

    def ask(self, message: Any) -> Any:
        """Sends a message and waits for the answer to it.

        Raises:
            Lost: The peer failed at it, took too long or ended its process, now or before.
        """
        if self._lost is None:
            try:
                self._pipe.send(message)
                if self._pipe.poll(self._patience_s):
                    answer, error = self._pipe.recv()
                    if error is None:
                        return answer
                    raise Lost(error)
                self._lost = f"took longer than {self._patience_s:.0f} s"
                self._process.kill()
            except (EOFError, OSError):
                self._lost = "its process ended"
        raise Lost(self._lost)

    def end(self) -> None:
        """Ends the process."""
        self._pipe.close()
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _serve(pipe: Connection, name: str) -> None:
    os.environ["SPDLOG_LEVEL"] = "off"  # the reference's own log
    from peers import PEERS

    steps: dict[int, Any] = {}
    gc.disable()
    while True:
        try:
            what, index, argument = pipe.recv()
        except EOFError:
            return
        try:
            if what == "missing":
                answer: Any = PEERS[name].missing()
            elif what == "start":
                steps[index] = argument.start(PEERS[name])
                gc.collect()
                answer = []
            else:
                answer = [steps[index]() for _ in range(argument)]
        except Exception as error:
            pipe.send((None, f"{type(error).__name__}: {error}"))
        else:
            pipe.send((answer, None))


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])), sys.argv[2])
