"""A transfer between two engines in one process and on one device."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from tokenspeed.runtime.arena import Arena
from tokenspeed.runtime.device import Device, Event
from tokenspeed.runtime.remote import Heard, RemoteBlocks, Word

Side = Literal["prefill", "decode"]


@dataclass
class _Meeting:
    """A request as far as both sides have come with it."""

    knows: set[Side] = field(default_factory=set)
    given: dict[Side, tuple[Arena, RemoteBlocks, Event]] = field(default_factory=dict)
    over: Event | None = None
    """Of its copy, once that is on its stream."""
    given_up: bool = False
    told: set[Side] = field(default_factory=set)
    """Who has heard the last word."""


class LocalTransfer:
    """Copies a prompt's blocks from the prefill side's arena to the decode side's, as soon as both
    have handed theirs over.

    A prompt is bootstrapped on the decode side when both know of it, and on the prefill side only
    when the decode side has blocks for it: otherwise a prefill engine, which never retracts, may
    fill up with prompts that have no place to go, while the decode engine holds its blocks for
    others that find no place there.
    """

    def __init__(self, device: Device, idle_s: float = 1e-3) -> None:
        """`idle_s`: how long an end waits at most while nothing is under way, for a word of the
        other."""
        self._device = device
        self._idle_s = idle_s
        self._stream = device.stream("transfer")
        self._lock = threading.Lock()
        self._moved = threading.Condition(self._lock)
        self._meetings: dict[str, _Meeting] = {}
        self._words: dict[Side, deque[Heard]] = {"prefill": deque(), "decode": deque()}
        self.prefill = TransferEnd(self, "prefill")
        self.decode = TransferEnd(self, "decode")

    def _meet(self, side: Side, request_id: str) -> None:
        with self._lock:
            meeting = self._meetings.setdefault(request_id, _Meeting())
            meeting.knows.add(side)
            if len(meeting.knows) == 2 and not meeting.given_up:
                self._say(request_id, meeting, Word.BOOTSTRAPPED, {"decode"})

    def _give_up(self, request_id: str) -> None:
        with self._lock:
            meeting = self._meetings.get(request_id)
            if meeting is not None:
                meeting.given_up = True
                self._moved.notify_all()

    def _hand_over(
        self, side: Side, arena: Arena, requests: Sequence[RemoteBlocks], ready: Event
    ) -> None:
        with self._lock:
            for blocks in requests:
                meeting = self._meetings.get(blocks.request_id)
                if meeting is None or meeting.given_up:
                    continue  # its last word is on its way, or has been said
                meeting.given[side] = arena, blocks, ready
                if side == "decode":
                    self._say(blocks.request_id, meeting, Word.BOOTSTRAPPED, {"prefill"})
                if len(meeting.given) == 2:
                    meeting.over = self._copy(meeting)
                self._moved.notify_all()

    def _copy(self, meeting: _Meeting) -> Event:
        source, there, read_from = meeting.given["prefill"]
        target, here, written_from = meeting.given["decode"]
        self._fence("transfer after prefill", read_from)
        self._fence("transfer after zeroing", written_from)
        for group_id, slots in here.slots.items():
            at = np.searchsorted(there.slots[group_id], slots)
            self._device.copy_blocks(
                self._stream,
                target,
                source,
                target.layout.offsets(group_id, here.blocks[group_id]),
                source.layout.offsets(group_id, there.blocks[group_id][at]),
                target.layout.groups[group_id].payload_bytes,
            )
        return self._stream.record()

    def _fence(self, name: str, event: Event) -> None:
        """The next copy runs after `event`."""
        self._stream.wait(event)

    def _heard(self, side: Side) -> list[Heard]:
        with self._lock:
            for request_id, meeting in list(self._meetings.items()):
                if meeting.over is not None:
                    if self._is_over(meeting.over):
                        sent = meeting.given["prefill"][1]
                        self._say(request_id, meeting, Word.LANDED, meeting.knows, sent)
                elif meeting.given_up:
                    # Who does not know of it yet is told when it does.
                    self._say(request_id, meeting, Word.FAILED, meeting.knows)
                if len(meeting.told) == 2:
                    del self._meetings[request_id]
            words, self._words[side] = self._words[side], deque()
            return list(words)

    def _is_over(self, event: Event) -> bool:
        return event.done()

    def _say(
        self,
        request_id: str,
        meeting: _Meeting,
        word: Word,
        sides: set[Side],
        sent: RemoteBlocks | None = None,
    ) -> None:
        heard = Heard(request_id, word)
        if sent is not None:
            heard = Heard(request_id, word, sent.token, sent.drafts)
        for side in sorted(sides - meeting.told):
            self._words[side].append(heard)
            if word is not Word.BOOTSTRAPPED:
                meeting.told.add(side)
        self._moved.notify_all()

    def _wait(self, side: Side) -> None:
        with self._moved:
            copies = [m.over for m in self._meetings.values() if m.over is not None]
            if not copies and not self._words[side]:
                self._moved.wait(self._idle_s)
        if copies:
            copies[0].wait()


class TransferEnd:
    """One engine's end; see `RemotePeer`."""

    def __init__(self, transfer: LocalTransfer, side: Side) -> None:
        self._transfer = transfer
        self._side = side

    def meet(self, request_id: str) -> None:
        self._transfer._meet(self._side, request_id)

    def give_up(self, request_id: str) -> None:
        self._transfer._give_up(request_id)

    def hand_over(self, arena: Arena, requests: Sequence[RemoteBlocks], ready: Event) -> None:
        self._transfer._hand_over(self._side, arena, requests, ready)

    def heard(self) -> list[Heard]:
        return self._transfer._heard(self._side)

    def wait(self) -> None:
        self._transfer._wait(self._side)
