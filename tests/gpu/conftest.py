"""Everything here needs a GPU, and is skipped where CuPy finds none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tokenspeed.runtime.cuda import CudaDevice, why_missing

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if reason := why_missing():
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def device() -> Iterator[CudaDevice]:
    made = CudaDevice()
    yield made
    made.close()
