"""These tests need the extra `models`, and glassllm as a model."""

from __future__ import annotations

import pytest

for name in ("torch", "transformers", "glassllm"):
    pytest.importorskip(name)
