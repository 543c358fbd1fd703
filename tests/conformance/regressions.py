"""Small worlds worth playing for ever, as the shrinker printed them.

`REGRESSIONS` once made the sides differ; both play them. In `STANDSTILLS` the reference stands
still, runs for ever or raises (liveness.md §1); our side plays them alone and must serve everyone,
or end a request with a reason.
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
    # Replay's seed 394 held two: a retraction at the promotion boundary publishes what lies behind
    # it as promoted, also where it was published before;
    "a retraction at the promotion boundary": World(
        groups=(
            Group(id="full0", packing=2),
            Group(id="sliding1", kind="sliding", window=54),
        ),
        requests=(
            Request(id="a", prompt=((1, 2),), output_stream=2, output=12, budget=27),
            Request(id="d", prompt=((5, 46), (6, 3), (7, 4)), output_stream=8, output=5),
            Request(id="i", prompt=((3, 1), (17, 3)), output_stream=18, output=18),
            Request(id="j", prompt=((13, 2), (15, 3), (19, 31)), output_stream=20, output=18),
        ),
        device_blocks=46,
        host_blocks=1,
        token_budget=36,
        timing=394,
    ),
    # and sets the access epoch of those blocks to its own.
    "a retraction is an access": World(
        groups=(
            Group(id="full0", packing=2),
            Group(id="sliding1", kind="sliding", window=60),
        ),
        requests=(
            Request(id="a", prompt=((1, 1),), output_stream=2, output=5, budget=27),
            Request(id="d", prompt=((1, 2), (5, 42), (6, 2), (7, 4)), output_stream=8, output=8),
            Request(
                id="f",
                prompt=((1, 2), (5, 46), (6, 3), (7, 4), (8, 11), (11, 5)),
                output_stream=12,
                output=7,
            ),
            Request(id="h", prompt=((13, 3), (15, 8)), output_stream=16, output=7),
            Request(id="j", prompt=((15, 1), (19, 31)), output_stream=20),
        ),
        device_blocks=44,
        host_blocks=1,
        timing=394,
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
    # Prefill role. Never handed over: the decode slots behind the prompt need one state block more.
    "a prompt whose handover never fits": World(
        groups=(
            Group(id="full0", granularity=16),
            Group(id="state1", kind="state", granularity=16, packing=4),
        ),
        requests=(Request(id="e", prompt=((3, 30),), output_stream=10),),
        role="P",
        granularity=16,
        device_blocks=3,
        width=3,
    ),
    # Prefill role. Both complete in one round; each handover needs a state block, and none is left.
    "two handovers that need a state block": World(
        groups=(
            Group(id="full0", granularity=2),
            Group(id="sliding1", kind="sliding", granularity=1, packing=3, window=35),
            Group(id="state2", kind="state", granularity=2),
        ),
        requests=(
            Request(id="a", prompt=((1, 36),), output_stream=2),
            Request(id="d", prompt=((1, 8), (7, 14)), output_stream=8),
        ),
        role="P",
        granularity=2,
        device_blocks=53,
    ),
    # Decode role. Both count as covered, and each needs one more block of its window.
    "covered decodes need a window's block": World(
        groups=(Group(id="sliding0", kind="sliding", window=6),),
        requests=(
            Request(id="c", prompt=((5, 1),), output_stream=6, output=9, budget=9),
            Request(id="d", prompt=((3, 1),), output_stream=8, output=5, budget=5),
        ),
        role="D",
        device_blocks=3,
    ),
    # Decode role. A recovery takes the blocks that the decodes need, fails at its last chunk, is
    # retracted, and comes first again.
    "a recovery before the decodes, for ever": World(
        groups=(Group(id="full0", granularity=2),),
        requests=(
            Request(id="a", prompt=((1, 1),), output_stream=2, output=7),
            Request(id="e", prompt=((9, 1),), output_stream=10, output=9),
        ),
        role="D",
        granularity=2,
        device_blocks=4,
        token_budget=7,
    ),
    # Decode role. It outgrows the pool and is recovered and retracted for ever.
    "a recovery that outgrows the pool": World(
        groups=(Group(id="full0", granularity=1),),
        requests=(Request(id="f", prompt=((3, 22), (7, 17)), output_stream=11, output=15),),
        role="D",
        device_blocks=52,
        token_budget=4,
    ),
    # Decode role. What landed in a state group is less than its recovery needs.
    "a recovery that needs more than the landing": World(
        groups=(
            Group(id="full0", granularity=2),
            Group(id="state1", kind="state", granularity=2),
        ),
        requests=(Request(id="a", prompt=((1, 1),), output_stream=2, output=5),),
        role="D",
        granularity=2,
        device_blocks=4,
    ),
    # Decode role. The reference cuts d's remote prefill where a's prompt is cached, and raises.
    "a remote prefill past a promotion boundary": World(
        groups=(
            Group(id="full0", granularity=8, packing=2),
            Group(id="sliding1", kind="sliding", granularity=8, window=2),
        ),
        requests=(
            Request(id="a", prompt=((1, 9),), output_stream=2),
            Request(id="d", prompt=((1, 8), (7, 7)), output_stream=8, output=3),
        ),
        role="D",
        granularity=8,
        device_blocks=3,
    ),
    "a remote prefill whose window begins past a promotion boundary": World(
        groups=(
            Group(id="full0", granularity=2),
            Group(id="sliding1", kind="sliding", granularity=2, window=1),
            Group(id="sliding2", kind="sliding", granularity=2, packing=4, window=2),
        ),
        requests=(
            Request(id="a", prompt=((1, 3),), output_stream=2),
            Request(id="b", prompt=((1, 3), (3, 1)), output_stream=4),
        ),
        role="D",
        granularity=2,
        device_blocks=5,
    ),
    # The replayable group's decode needs a block, both are covered or incomplete.
    "a window's block beside a covered prompt, replayable": World(
        groups=(Group(id="replay2", kind="replay", granularity=1, packing=3, window=8),),
        requests=(
            Request(id="c", prompt=((5, 2),), output_stream=6, output=2),
            Request(id="d", prompt=((1, 6), (7, 3)), output_stream=8, output=2, budget=2),
        ),
        granularity=8,
        device_blocks=4,
        token_budget=16,
        mixed=True,
    ),
    # An L3 store. The reference raises at f, which hits more than the Host tier has room for.
    "a fetch from storage beside a full host tier": World(
        groups=(Group(id="full0"), Group(id="state1", kind="state", granularity=2)),
        requests=(
            Request(id="b", prompt=((1, 1),), output_stream=3, output=5),
            Request(id="c", prompt=((4, 12),), output_stream=5, output=4),
            Request(id="f", prompt=((4, 13),), output_stream=11),
        ),
        device_blocks=9,
        host_blocks=4,
        storage=True,
        stored=("f",),
        timing=253,
    ),
}
