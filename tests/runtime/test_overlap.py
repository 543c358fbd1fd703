"""What does not wait: forwards for loads of later layers, and nobody for a pinned store."""

from __future__ import annotations

from dataclasses import replace

from tokenspeed.runtime.loop import EngineLoop
from tokenspeed.runtime.request import Request
from tokenspeed.runtime.runner import ForwardInput, ForwardOutput
from tokenspeed.runtime.simulated import SimulatedDevice

from .engine import Engine
from .toy import Toy, ToyLayer, alone

PROMPT = list(range(1, 22))


class Looks(Toy):
    """Notes, as it comes to each layer, how much of the loads is still to be done."""

    def __init__(self, device: SimulatedDevice) -> None:
        super().__init__([ToyLayer("full")] * 3, page_tokens=2)
        self.device = device
        self.left: list[int] = []

    def forward(self, batch: ForwardInput) -> ForwardOutput:
        def layer_ready(layer: int) -> None:
            batch.layer_ready(layer)
            self.left.append(len(self.device.stream("loads").queue))

        return super().forward(replace(batch, layer_ready=layer_ready))


def test_a_forward_waits_for_its_layer_and_not_for_the_whole_load() -> None:
    ahead = 0
    for seed in range(12):
        device = SimulatedDevice(seed)
        toy = Looks(device)
        config = toy.recipe().scheduler_config(
            num_device_pages=40, num_host_pages=40, max_scheduled_tokens=64, max_batch_size=4
        )
        loop = EngineLoop(config, toy, device, inline=True)
        said: dict[str, list[int]] = {"a": [], "b": []}
        for name in said:
            loop.submit(Request(name, PROMPT, 3))
            toy.left.clear()
            while loop.has_work:
                for output in loop.step():
                    said[name] += output.tokens
            assert loop.scheduler.clear_l1_cache()
        loop.close()
        assert said["a"] == said["b"] == alone(toy, PROMPT, 3).generated
        ahead += toy.left[0] > 0
        assert toy.left[2] == 0
    assert ahead > 3


def test_results_come_while_a_pinned_store_is_under_way() -> None:
    engine = Engine(
        [Request("a", PROMPT, 6)], pace="copies last", num_device_pages=40, num_host_pages=40
    )
    engine.submit()
    landed_before = 0
    while "a" not in engine.reasons:
        landed_before += bool(engine.step() and engine.device.stream("pinned stores").queue)
    assert landed_before
    engine.run()
    assert engine.checks.stores == 13  # of 26 tokens computed, in pages of 2
    engine.close()
