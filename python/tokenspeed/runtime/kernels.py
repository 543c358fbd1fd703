"""The CUDA C++ of `kernels/`, compiled for the card at hand at first use.

The run-time compiler, NVRTC, comes through `cuda.bindings`; no CUDA toolkit is needed, nor a GPU to
compile. What it made is kept in the user's cache directory (`cache_directory`), under a name that
is a hash of all that it was made of, so that nothing stale is ever loaded. Processes may do this at
the same time: a file appears whole, and whoever comes second writes the same bytes again.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenspeed.runtime.errors import DeviceFault

KERNELS: Mapping[str, tuple[str, ...]] = {
    "blocks.cu": ("zero_blocks", "copy_blocks"),
    "rows.cu": ("scatter_rows", "gather_rows"),
}
"""The kernels by the file that they are in."""

HEADERS = ("span.cuh",)

OPTIONS = ("--std=c++17",)
"""Of the compiler, beside the architecture."""

TILE_BYTES = 16384
"""What a thread block of `blocks.cu` takes in one turn, as there."""

THREADS = 256
"""Threads of a thread block, the most that the kernels are bounded for."""


def sources() -> Path:
    """The directory of the kernels: `kernels/` of a checkout, or its copy in an installed package.

    Raises `DeviceFault` if there is none.
    """
    here = Path(__file__)
    for place in (here.parents[3] / "kernels", here.parents[1] / "kernels"):
        if all((place / name).is_file() for name in (*KERNELS, *HEADERS)):
            return place
    raise DeviceFault("the package was installed without its CUDA sources")


def compiler_version() -> str:
    """NVRTC's version, as `12.9`. Raises `DeviceFault` where there is no NVRTC."""
    nvrtc = _nvrtc()
    major, minor = _checked(nvrtc.nvrtcVersion())
    return f"{major}.{minor}"


def compile_source(name: str, architecture: str) -> bytes:
    """The machine code (a cubin) of a file of `KERNELS` for an architecture such as `sm_90`.

    Raises `DeviceFault` with the compiler's own words, or where there is no NVRTC.
    """
    nvrtc = _nvrtc()
    place = sources()
    headers = [(place / header).read_bytes() for header in HEADERS]
    program = _checked(
        nvrtc.nvrtcCreateProgram(
            (place / name).read_bytes(),
            name.encode(),
            len(HEADERS),
            headers,
            [header.encode() for header in HEADERS],
        )
    )
    try:
        options = [option.encode() for option in _options(architecture)]
        (outcome,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        if outcome != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = bytearray(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
            _checked(nvrtc.nvrtcGetProgramLog(program, log))
            words = log.rstrip(b"\0").decode(errors="replace")
            raise DeviceFault(f"{name} does not compile for {architecture}:\n{words}")
        code = bytearray(_checked(nvrtc.nvrtcGetCUBINSize(program)))
        _checked(nvrtc.nvrtcGetCUBIN(program, code))
        return bytes(code)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def cache_directory() -> Path:
    """Where machine code is kept: `$TOKENSPEED_CACHE_DIR`, else `tokenspeed/kernels` in
    `$XDG_CACHE_HOME`, else in `~/.cache`."""
    if own := os.environ.get("TOKENSPEED_CACHE_DIR"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tokenspeed" / "kernels"


def cubin(name: str, architecture: str, directory: Path | None = None) -> bytes:
    """As `compile_source`, from `directory` (by default `cache_directory`) if it is there, else
    compiled and left there. A directory that cannot be used is done without."""
    file = (directory or cache_directory()) / f"{_key(name, architecture)}.cubin"
    try:
        return file.read_bytes()
    except OSError:
        code = compile_source(name, architecture)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=file.parent, suffix=".draft")
        try:
            with os.fdopen(handle, "wb") as out:
                out.write(code)
            Path(draft).replace(file)
        except OSError:
            Path(draft).unlink(missing_ok=True)
    except OSError:
        pass  # a cache that cannot be written costs a second at each start
    return code


def _options(architecture: str) -> tuple[str, ...]:
    return (*OPTIONS, f"--gpu-architecture={architecture}")


def _key(name: str, architecture: str) -> str:
    """A hash of the text, the headers, the options, the architecture and the compiler."""
    place = sources()
    parts = [(place / file).read_bytes() for file in (name, *HEADERS)]
    parts += [part.encode() for part in (*_options(architecture), compiler_version())]
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "little") + part)
    return f"{Path(name).stem}-{architecture}-{whole.hexdigest()[:32]}"


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()  # finds the library
    except (ImportError, RuntimeError) as cause:
        raise DeviceFault(f"CUDA's run-time compiler is missing: {cause}") from cause
    return nvrtc


def _checked(result: tuple[Any, ...]) -> Any:
    """What a call of `nvrtc` gave, if it went well."""
    outcome, *values = result
    if int(outcome) != 0:
        raise DeviceFault(f"CUDA's run-time compiler failed: {outcome.name}")
    return values[0] if len(values) == 1 else tuple(values)
