"""Why a model cannot be run."""

from __future__ import annotations


class ModelError(ValueError):
    """Base of this package's errors. The message says what is wrong and what would do instead."""


class CheckpointError(ModelError):
    """A checkpoint is missing, incomplete or in a format that is not read."""


class UnsupportedModelError(ModelError):
    """A model keeps something between tokens for which there is no cache group, or its output
    would depend on whom it is batched with."""
