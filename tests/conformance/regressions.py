"""Small worlds worth playing for ever, as the shrinker printed them.

`REGRESSIONS` once made the sides differ; both play them. In `STANDSTILLS` the reference stands
still or runs for ever (liveness.md §1); our side plays them alone and must serve everyone, or end
a request with a reason.
"""

from __future__ import annotations

from .world import Group, Request, World

REGRESSIONS: dict[str, World] = {
    # The random worlds name their state groups last; a finish stores these last in any order.
    "a state group ahead of the others": World(
        groups=(
            Group(id="state", kind="state"),
            Group(id="full"),
            Group(id="sliding", kind="sliding", window=5),
        ),
        requests=(Request(id="a", prompt=((1, 9),), output_stream=2),),
        host_blocks=16,
    ),
    # Seed 2397 once made us load another set of blocks than the reference.
    "loads after retractions": World(
        groups=(
            Group(id="full0", granularity=16, packing=4),
            Group(id="sliding1", kind="sliding", granularity=16, packing=2, window=64),
            Group(id="sliding2", kind="sliding", granularity=2, window=39),
        ),
        requests=(
            Request(id="a", prompt=((1, 2),), output_stream=2, output=2),
            Request(id="b", prompt=((1, 2), (3, 24)), output_stream=4, output=3),
            Request(id="c", prompt=((1, 2), (3, 7), (5, 80)), output_stream=6, output=3, budget=24),
            Request(id="d", prompt=((1, 2), (7, 45)), output_stream=8, output=3),
            Request(id="e", prompt=((1, 2), (3, 5), (9, 40)), output_stream=10, output=3),
            Request(id="f", prompt=((1, 2), (3, 5), (9, 9), (11, 22)), output_stream=12, output=4),
            Request(id="g", prompt=((13, 6),), output_stream=14, output=4, abort=60),
            Request(
                id="h",
                prompt=((1, 2), (3, 5), (9, 40), (10, 2), (15, 27)),
                output_stream=16,
                output=3,
            ),
            Request(id="i", prompt=((1, 2), (17, 32)), output_stream=18),
        ),
        granularity=16,
        device_blocks=45,
        host_blocks=200,
        token_budget=16,
        depth=1,
        replay_tokens=1,
        timing=2397,
        result_lag=1,
    ),
}

STANDSTILLS: dict[str, World] = {
    # liveness.md: what a reserve covers must include the verify window past the last token.
    "exempt requests need one block more": World(
        groups=(Group(id="full"),),
        requests=(
            Request(id="a", prompt=((1, 8),), output_stream=2, output=24, budget=24),
            Request(id="b", prompt=((3, 8),), output_stream=4, output=24, budget=24),
            Request(id="c", prompt=((5, 8),), output_stream=6, output=24, budget=24),
        ),
        device_blocks=8,
        token_budget=8,
        width=4,
    ),
    "a verify window past the declared budget": World(
        groups=(
            Group(id="full0", granularity=8, packing=2),
            Group(id="sliding2", kind="sliding", granularity=8, window=1),
        ),
        requests=(Request(id="b", prompt=((3, 1),), output_stream=4, output=9, budget=9),),
        granularity=8,
        device_blocks=3,
        width=2,
    ),
    "a verify window past the declared budget, replayable": World(
        groups=(Group(id="replay1", kind="replay", granularity=16, window=2),),
        requests=(Request(id="a", prompt=((1, 1),), output_stream=2, output=17, budget=17),),
        granularity=16,
        device_blocks=2,
        width=2,
    ),
    # liveness.md: an undeclared budget is ended where it reaches the bound, with a reason.
    "an undeclared budget outgrows the pool": World(
        groups=(Group(id="full"),),
        requests=(Request(id="a", prompt=((1, 10),), output_stream=2, output=40),),
        device_blocks=8,
        host_blocks=8,
    ),
    # A readmission whose recomputed prompt no longer fits: retracted at its last chunk for ever.
    "an outgrown request is retracted at its last chunk": World(
        groups=(
            Group(id="full0", packing=4),
            Group(id="sliding1", kind="sliding", window=2),
        ),
        requests=(Request(id="b", prompt=((1, 2), (3, 47)), output_stream=4, output=33),),
        device_blocks=7,
        token_budget=4,
    ),
    # The incomplete prefill is the preferred victim and its own blocker, each time it comes back.
    "a prompt beside a decode is retracted at its last chunk": World(
        groups=(Group(id="full0", granularity=8, packing=4),),
        requests=(
            Request(id="d", prompt=((4, 3),), output_stream=7, output=8),
            Request(id="e", prompt=((8, 49),), output_stream=9, arrival=4),
        ),
        granularity=8,
        device_blocks=2,
        token_budget=24,
        width=2,
    ),
    # The decode is covered by its reserve, the prompt by its own: neither may be the victim.
    "a window's block beside a covered prompt": World(
        groups=(
            Group(id="full0", granularity=8, packing=2),
            Group(id="sliding1", kind="sliding", granularity=2, window=9),
        ),
        requests=(
            Request(id="c", prompt=((5, 5),), output_stream=6, arrival=2, output=3, budget=29),
            Request(id="d", prompt=((1, 99), (4, 7), (7, 1)), output_stream=8, arrival=2, budget=1),
        ),
        granularity=8,
        device_blocks=27,
        token_budget=16,
        width=2,
    ),
    # Both prompts complete in one round and hold every block; both need one more to decode.
    "states that need a block at their first decode": World(
        groups=(Group(id="state1", kind="state", granularity=2),),
        requests=(
            Request(id="a", prompt=((1, 1),), output_stream=2, output=2),
            Request(id="b", prompt=((3, 2),), output_stream=4),
            Request(id="c", prompt=((5, 1),), output_stream=6, output=2),
        ),
        granularity=2,
        device_blocks=4,
        token_budget=4,
        rows=2,
        width=3,
        mixed=True,
    ),
}
