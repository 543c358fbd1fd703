"""The CUDA sources without a GPU: they compile, and their own text moves the right bytes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tokenspeed.runtime import kernels
from tokenspeed.runtime.errors import DeviceFault
from tokenspeed.runtime.layout import ArenaLayout
from tokenspeed.runtime.recipe import Field, LayerCache, Recipe

from tests.runtime.emulator import COMPILER, Emulator

ARCHITECTURES = ("sm_80", "sm_90")


def compiler_missing() -> str | None:
    try:
        kernels.compiler_version()
    except DeviceFault as cause:
        return str(cause)
    return None


needs_nvrtc = pytest.mark.skipif(compiler_missing() is not None, reason=str(compiler_missing()))
needs_cpp = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler, c++")


# Compiling


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", kernels.KERNELS)
def test_every_kernel_compiles(name: str, architecture: str) -> None:
    code = kernels.compile_source(name, architecture)
    assert code.startswith(b"\x7fELF")
    for kernel in kernels.KERNELS[name]:
        assert f".text.{kernel}\0".encode() in code


def test_every_source_is_listed() -> None:
    directory = kernels.sources()
    assert {path.name for path in directory.iterdir()} == {*kernels.KERNELS, *kernels.HEADERS}
    for name, listed in kernels.KERNELS.items():
        text = (directory / name).read_text(encoding="utf-8")
        bounds = rf'extern "C" __global__ void __launch_bounds__\({kernels.THREADS}\)\n(\w+)\('
        assert re.findall(bounds, text) == list(listed)
        assert text.count("__global__") == len(listed)
    blocks = (directory / "blocks.cu").read_text(encoding="utf-8")
    assert f"TILE_BYTES = {kernels.TILE_BYTES};" in blocks


def test_an_installed_package_holds_the_same_sources() -> None:
    installed = Path(kernels.__file__).parents[1] / "kernels"
    if not installed.is_dir():
        pytest.skip("maturin has not built here")
    for path in kernels.sources().iterdir():
        assert (installed / path.name).read_bytes() == path.read_bytes(), "build again"


@pytest.fixture
def own_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sources, to change."""
    copy = tmp_path / "sources"
    shutil.copytree(kernels.sources(), copy)
    monkeypatch.setattr(kernels, "sources", lambda: copy)
    return copy


@needs_nvrtc
def test_a_kernel_that_does_not_compile_says_why(own_sources: Path) -> None:
    (own_sources / "rows.cu").write_text("int x = nothing_of_that_name;\n")
    with pytest.raises(DeviceFault, match="nothing_of_that_name"):
        kernels.compile_source("rows.cu", "sm_90")


# The cache


@needs_nvrtc
def test_what_was_compiled_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = kernels.cubin("rows.cu", "sm_90", tmp_path / "cache")
    monkeypatch.setattr(kernels, "compile_source", _must_not_run)
    assert kernels.cubin("rows.cu", "sm_90", tmp_path / "cache") == code


def _must_not_run(*_: object) -> bytes:
    raise AssertionError("compiled again")


def _of_text(sources: Path, _: pytest.MonkeyPatch) -> None:
    with (sources / "rows.cu").open("a") as out:
        out.write("// changed\n")


def _of_header(sources: Path, _: pytest.MonkeyPatch) -> None:
    with (sources / "span.cuh").open("a") as out:
        out.write("// changed\n")


def _of_options(_: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kernels, "OPTIONS", ("--std=c++20",))


def _of_compiler(_: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kernels, "compiler_version", lambda: "99.0")


@needs_nvrtc
@pytest.mark.parametrize("change", [_of_text, _of_header, _of_options, _of_compiler])
def test_whatever_is_different_is_compiled_again(
    change: Callable[[Path, pytest.MonkeyPatch], None],
    own_sources: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = tmp_path / "cache"
    kernels.cubin("rows.cu", "sm_90", cache)
    change(own_sources, monkeypatch)
    kernels.cubin("rows.cu", "sm_90", cache)
    kernels.cubin("rows.cu", "sm_80", cache)
    assert len(list(cache.iterdir())) == 3


@needs_nvrtc
def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    taken = tmp_path / "a file"
    taken.touch()
    assert kernels.cubin("rows.cu", "sm_90", taken / "cache").startswith(b"\x7fELF")


@needs_nvrtc
def test_processes_may_compile_at_the_same_time(tmp_path: Path) -> None:
    program = (
        "import sys, hashlib, pathlib; from tokenspeed.runtime import kernels;"
        "code = kernels.cubin('rows.cu', 'sm_90', pathlib.Path(sys.argv[1]));"
        "print(hashlib.sha256(code).hexdigest())"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "cache")]
    racers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(kernels.__file__).parents[2])
        for _ in range(4)
    ]
    printed = {racer.communicate()[0] for racer in racers}
    assert [racer.returncode for racer in racers] == [0] * 4
    assert len(printed) == 1
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".cubin"]


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TOKENSPEED_CACHE_DIR", raising=False)
    assert kernels.cache_directory() == tmp_path / "tokenspeed" / "kernels"
    monkeypatch.setenv("TOKENSPEED_CACHE_DIR", str(tmp_path / "own"))
    assert kernels.cache_directory() == tmp_path / "own"


# The kernels' text, run on the CPU


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    return Emulator("blocks.cu", tmp_path_factory.mktemp("blocks"))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    return Emulator("rows.cu", tmp_path_factory.mktemp("rows"))


def aligned_bytes(nbytes: int, rng: np.random.Generator) -> np.ndarray:
    """Random bytes at a multiple of 64, so that alignment is ours to choose."""
    memory = np.empty(nbytes + 64, dtype=np.uint8)
    first = -memory.ctypes.data % 64
    memory[:] = rng.integers(1, 256, memory.shape, dtype=np.uint8)
    return memory[first : first + nbytes]


SIZES = (1, 15, 16, 17, 100, 4096, 16383, 16384, 16400, 40000)
"""Bytes of a block: less than a word, a tile, a tile and more, several."""


@needs_cpp
@pytest.mark.parametrize("aligned", [16, 4, 1])
@pytest.mark.parametrize("nbytes", SIZES)
def test_blocks_are_zeroed_and_nothing_else(blocks: Emulator, nbytes: int, aligned: int) -> None:
    rng = np.random.default_rng(nbytes * aligned)
    for grid, threads in ((1, 32), (3, 64), (40, 8)):
        stride = -(-nbytes // 16) * 16 + 16
        arena = aligned_bytes(stride * 9, rng)
        shift = aligned * int(rng.integers(0, 16 // aligned))
        offsets = rng.permutation(8)[:5].astype(np.int64) * stride + shift
        expected = arena.copy()
        for at in offsets:
            expected[at : at + nbytes] = 0
        counts = blocks.launch("zero_blocks", grid, (threads, 1), arena, offsets, 5, nbytes)
        np.testing.assert_array_equal(arena, expected)
        assert counts.misaligned == 0
        assert counts.bytes_stored == 5 * nbytes


@needs_cpp
@pytest.mark.parametrize("shifts", [(0, 0), (4, 8), (12, 12), (1, 1), (0, 3), (5, 0)])
@pytest.mark.parametrize("nbytes", SIZES)
def test_blocks_are_copied_and_nothing_else(
    blocks: Emulator, nbytes: int, shifts: tuple[int, int]
) -> None:
    rng = np.random.default_rng(nbytes)
    for grid, threads in ((1, 32), (3, 64), (40, 8)):
        stride = -(-nbytes // 16) * 16 + 16
        target, source = aligned_bytes(stride * 9, rng), aligned_bytes(stride * 9, rng)
        to = rng.permutation(8)[:5].astype(np.int64) * stride + shifts[0]
        at = rng.permutation(8)[:5].astype(np.int64) * stride + shifts[1]
        expected, untouched = target.copy(), source.copy()
        for one, other in zip(to, at):
            expected[one : one + nbytes] = source[other : other + nbytes]
        counts = blocks.launch("copy_blocks", grid, (threads, 1), target, source, to, at, 5, nbytes)
        np.testing.assert_array_equal(target, expected)
        np.testing.assert_array_equal(source, untouched)
        assert counts.misaligned == 0
        assert counts.bytes_stored == counts.bytes_loaded == 5 * nbytes


@needs_cpp
def test_aligned_blocks_move_in_wide_words(blocks: Emulator) -> None:
    rng = np.random.default_rng(0)
    target, source = aligned_bytes(65536, rng), aligned_bytes(65536, rng)
    zero = np.zeros(1, dtype=np.int64)
    copied = blocks.launch("copy_blocks", 2, (64, 1), target, source, zero, zero, 1, 65536)
    assert copied.accesses == 2 * 65536 // 16
    zeroed = blocks.launch("zero_blocks", 2, (64, 1), target, zero, 1, 65536)
    assert zeroed.accesses == 65536 // 16


def field_place(layout: ArenaLayout, layer: int, field: str) -> tuple[int, int, int, np.int32]:
    """What the kernels of `rows.cu` want to know of a field: where block 0 would have it, bytes
    from block to block, bytes of a row, tokens of a block."""
    group, place = layout.find(layer, field)
    start = layout.offset(group.group_id, 0) + place.offset_bytes
    tokens = place.shape[0]
    return start, group.block_bytes, place.nbytes // tokens, np.int32(tokens)


RECIPES = {
    "vectors": Recipe([LayerCache("full", {"k": Field((2, 16), "float16")})] * 2, 4),
    "odd rows": Recipe(
        [
            LayerCache("full", {"k": Field((3,), "float16"), "v": Field((7,), "uint8")}),
            LayerCache("sliding", {"k": Field((5,), "float32")}, window_tokens=8),
        ],
        4,
    ),
    "long rows": Recipe([LayerCache("full", {"k": Field((9, 128), "bfloat16")})], 2),
}


FIELDS = [
    (name, layer, field)
    for name, recipe in RECIPES.items()
    for layer, caches in enumerate(recipe.layers)
    for field in caches[0].fields
]


@needs_cpp
@pytest.mark.parametrize(("recipe", "layer", "field"), FIELDS)
def test_rows_go_where_the_layout_says(rows: Emulator, recipe: str, layer: int, field: str) -> None:
    layout = RECIPES[recipe].layout
    group, place = layout.find(layer, field)
    row_bytes, tokens = place.nbytes // place.shape[0], place.shape[0]
    rng = np.random.default_rng(7)
    parents, columns = 6, 3
    ids = layout.num_blocks(group.group_id, parents)
    for grid in (1, 3):
        arena = aligned_bytes(parents * layout.parent_bytes, rng)
        table = np.zeros((2, columns), dtype=np.int32)
        named = min(4, ids - 1)
        table.flat[[0, 1, 3, 5][:named]] = rng.permutation(np.arange(1, ids))[:named]
        table[1, 1] = -1
        requests, positions = (
            axis.ravel().astype(np.int32)
            for axis in np.meshgrid([0, 1], np.arange(-1, columns * tokens + 2), indexing="ij")
        )
        order = rng.permutation(len(requests))
        requests, positions = requests[order], positions[order]
        fresh = aligned_bytes(len(requests) * row_bytes, rng)
        expected, gathered = arena.copy(), np.zeros_like(fresh)
        for at, (request, position) in enumerate(zip(requests, positions)):
            inside = 0 <= position < columns * tokens
            block = int(table[request, position // tokens]) if inside else 0
            if block <= 0:
                continue
            first = layout.offset(group.group_id, block) + place.offset_bytes
            first += int(position) % tokens * row_bytes
            expected[first : first + row_bytes] = fresh[at * row_bytes : (at + 1) * row_bytes]
            gathered[at * row_bytes : (at + 1) * row_bytes] = expected[first : first + row_bytes]
        tokens_of = (requests, positions, len(requests), table, np.int32(columns))
        about = (*tokens_of, *field_place(layout, layer, field))
        counts = rows.launch("scatter_rows", grid, (32, 2), arena, fresh, *about)
        np.testing.assert_array_equal(arena, expected)
        assert counts.misaligned == 0
        read = aligned_bytes(fresh.nbytes, rng)
        counts = rows.launch("gather_rows", grid, (32, 2), arena, read, *about)
        np.testing.assert_array_equal(read, gathered)
        assert counts.misaligned == 0
        assert counts.bytes_stored == fresh.nbytes
