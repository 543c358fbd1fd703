"""Batches made by hand: a runner without a scheduler."""

from __future__ import annotations

import numpy as np
import torch
from tokenspeed.models.runner import TransformersRunner
from tokenspeed.runtime.arena import Arena
from tokenspeed.runtime.runner import ForwardInput


class Paging:
    """An arena whose blocks are dealt out in a random order, and requests that grow in it."""

    def __init__(self, runner: TransformersRunner, num_parents: int, seed: int = 0) -> None:
        self.runner = runner
        self.recipe = runner.recipe()
        layout = self.recipe.layout
        # Bytes that are no numbers: what no request owns must not be looked at.
        buffer = np.full(num_parents * layout.parent_bytes, 0xFF, dtype=np.uint8)
        self.arena = Arena(layout, num_parents, buffer)
        runner.bind(self.arena, None)
        rng = np.random.default_rng(seed)
        self.free = (1 + rng.permutation(num_parents - 1)).tolist()
        self.tables: dict[str, dict[str, list[int]]] = {}
        self.done: dict[str, int] = {}
        self.ready: list[int] = []

    def _grow(self, request: str, tokens: int) -> None:
        tables = self.tables.setdefault(request, {g: [] for g in self.recipe.group_ids})
        for group_id, table in tables.items():
            while len(table) * self.recipe.block_tokens(group_id) < tokens:
                per = self.recipe.layout.groups[group_id].blocks_per_parent
                block = 1 + (self.free.pop() - 1) * per  # one block a parent, the rest unused
                self.arena.block(group_id, block)[:] = 0
                table.append(block)

    def forward(
        self,
        extends: dict[str, list[int]],
        decodes: dict[str, list[int]] | None = None,
        checkpoints: dict[str, int] | None = None,
        accept: dict[str, int] | None = None,
    ) -> torch.Tensor:
        """Runs tokens of prefills, then of decodes; returns the logits of the last token of each
        prefill, and of all tokens of each decode. `accept`: how many tokens of a decode count."""
        decodes = decodes or {}
        inputs = extends | decodes
        width = max((len(tokens) for tokens in decodes.values()), default=1)
        begins = {name: self.done.get(name, 0) for name in inputs}
        ends = {name: begins[name] + len(tokens) for name, tokens in inputs.items()}
        for name in inputs:
            self._grow(name, ends[name])
        tables = {}
        for group_id in self.recipe.group_ids:
            rows = [self.tables[name][group_id] for name in inputs]
            table = np.zeros((len(rows), max(map(len, rows))), dtype=np.int32)
            for at, row in enumerate(rows):
                table[at, : len(row)] = row
            tables[group_id] = table
        start = np.cumsum([0, *map(len, inputs.values())]).astype(np.int32)
        positions = [np.arange(begins[name], ends[name]) for name in inputs]
        seq_lens = np.array(list(ends.values()), dtype=np.int32)
        count = len(extends)
        batch = ForwardInput(
            num_extends=count,
            width=width,
            request_ids=tuple(inputs),
            sampling=(None,) * len(inputs),
            rows=np.arange(1, len(inputs) + 1, dtype=np.int32),
            input_ids=np.concatenate(list(inputs.values())).astype(np.int32),
            positions=np.concatenate(positions).astype(np.int32),
            query_start=start,
            seq_lens=seq_lens,
            block_tables=tables,
            query_start_host=start,
            seq_lens_max=int(seq_lens.max()),
            seq_lens_host=seq_lens if width == 1 else None,
            extend_prefix_lens=np.array([begins[n] for n in extends], dtype=np.int32),
            extend_replay_lens=np.zeros(count, dtype=np.int32),
            checkpoints=np.array([(checkpoints or {}).get(n, -1) for n in extends], dtype=np.int32),
            completes=np.ones(count, dtype=np.bool_),
            layer_ready=self.ready.append,
            logit_tokens=np.concatenate(
                [start[1 : count + 1] - 1, np.arange(start[count], start[-1])]
            ).astype(np.int32),
            logit_requests=np.concatenate(
                [np.arange(count), np.repeat(np.arange(count, len(inputs)), width)]
            ).astype(np.int32),
        )
        logits = self.runner.forward(batch).logits
        kept = accept or {name: len(tokens) for name, tokens in decodes.items()}
        if width > 1:
            counts = [len(tokens) for tokens in extends.values()]
            counts += [kept[name] for name in decodes]
            self.runner.accepted(batch, np.array(counts, dtype=np.int32))
        for name in inputs:
            self.done[name] = begins[name] + kept[name] if name in decodes else ends[name]
        return logits
