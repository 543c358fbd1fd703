"""The surface that engines already use: all of it is here, named and nested as in the wheel that
`api.md` names."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import EnumMeta
from types import ModuleType
from typing import Any

import pytest
import tokenspeed.scheduler as ours

theirs = pytest.importorskip("tokenspeed_scheduler", reason="the reference has no wheel here")


def public(owner: Any) -> Iterator[tuple[str, Any]]:
    for name, value in vars(owner).items():
        if not name.startswith("_"):
            yield name, value


def walk(owner: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every public name below a module or class, by its path."""
    names = theirs.__all__ if owner is theirs else [name for name, _ in public(owner)]
    for name in names:
        value = inspect.getattr_static(owner, name)
        yield (*path, name), value
        if isinstance(value, (type, ModuleType)):
            yield from walk(value, (*path, name))


NAMES = dict(walk(theirs))


def ours_at(path: tuple[str, ...]) -> Any:
    owner: Any = ours
    for name in path[:-1]:
        owner = getattr(owner, name)
    return inspect.getattr_static(owner, path[-1])


def members(choices: Any) -> dict[str, int]:
    return {member.name: member.value for member in choices}


def test_the_reference_has_what_is_compared() -> None:
    assert len(NAMES) > 150
    assert ("Scheduler", "next_execution_plan") in NAMES
    assert ("SchedulerConfig", "Role", "Fused") in NAMES
    assert ("Forward", "Batch", "input_ids") in NAMES


@pytest.mark.parametrize("path", NAMES, ids=".".join)
def test_every_name_is_here(path: tuple[str, ...]) -> None:
    value, here = NAMES[path], ours_at(path)
    if isinstance(value, property):
        assert inspect.isdatadescriptor(here)
    elif isinstance(value, EnumMeta):
        assert members(here) == members(value)
    elif isinstance(value, (type, ModuleType)):
        assert isinstance(here, type(ours.Cache) if isinstance(value, ModuleType) else type)
    elif callable(value):
        assert callable(here)


WRITABLE = [
    path for path, value in NAMES.items() if isinstance(value, property) and value.fset is not None
]


@pytest.mark.parametrize("path", WRITABLE, ids=".".join)
def test_what_can_be_written_there_can_be_here_and_starts_the_same(path: tuple[str, ...]) -> None:
    arguments = {
        "LoadBackDoneEvent": (3, True),
        "BootstrappedEvent": ("a",),
        "FailedEvent": ("a",),
        "SucceededEvent": ("a",),
        "RemotePrefillDoneEvent": ("a", 5),
    }.get(path[-2], ())
    values = []
    for module in (theirs, ours):
        kind: Any = module
        for name in path[:-1]:
            kind = getattr(kind, name)
        instance = kind(*arguments)
        value = getattr(instance, path[-1])
        setattr(instance, path[-1], value)
        assert getattr(instance, path[-1]) == value
        values.append(getattr(value, "name", value))
    assert values[0] == values[1]


def test_all_is_what_help_shows() -> None:
    assert set(theirs.__all__) <= set(ours.__all__)
    assert sorted(ours.__all__) == sorted(set(ours.__all__))
    for name in ours.__all__:
        assert hasattr(ours, name)
