"""Trace readers: what they read, and what they say of a line that they cannot."""

import gzip
import json

import numpy as np
import pytest
from tokenspeed.simulate.trace import (
    BLOCK_TOKENS,
    TraceError,
    default_trace_path,
    load_trace,
)

GOOD = '{"timestamp": 40, "input_length": 1100, "output_length": 3, "hash_ids": [7, 9, 11]}'
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"


def test_shipped_trace_is_the_published_one():
    trace = load_trace(default_trace_path())
    assert len(trace) == 12_031
    assert trace.prompt_tokens.sum() == 144_793_823
    assert trace.output_tokens.sum() == 4_122_048
    # With an unbounded cache 36.6 % of the blocks are hits: all but the first of each.
    assert 1 - trace.num_blocks / len(trace.blocks) == pytest.approx(0.366, abs=0.0005)


def test_shipped_trace_carries_its_notice():
    notice = (default_trace_path().parent / "NOTICE").read_text()
    assert default_trace_path().name in notice
    assert "Apache License, Version 2.0" in notice
    licence = (default_trace_path().parent / "LICENSE-Apache-2.0").read_text()
    assert "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION" in licence


def test_mooncake_columns(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(GOOD + "\n" + GOOD.replace("40", "1540") + "\n")
    trace = load_trace(path)
    assert trace.arrival_s.tolist() == [0.0, 1.5]
    assert trace.prompt_tokens.tolist() == [1100, 1100]
    assert trace.output_tokens.tolist() == [3, 3]
    assert trace.span_s == 1.5
    assert trace.name == "t.jsonl"


def test_gzip_is_told_by_content(tmp_path):
    path = tmp_path / "no_suffix"
    path.write_bytes(gzip.compress(GOOD.encode()))
    assert len(load_trace(path)) == 1


def test_azure_columns(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        f"{AZURE}\n"
        "2023-11-16 23:59:59.9799600,4808,10\n"
        "2023-11-17 00:00:00.0000000,3180,8\n"
        "2023-11-17 00:00:01,110,27\n"
        "2023-11-17 00:00:02.5+00:00,111,28\n"
    )
    trace = load_trace(path)
    assert trace.arrival_s == pytest.approx([0, 0.02004, 1.02004, 2.52004], abs=1e-6)
    assert trace.prompt_tokens.tolist() == [4808, 3180, 110, 111]
    assert trace.output_tokens.tolist() == [10, 8, 27, 28]
    assert len(trace.blocks) == 0


def test_arrivals_are_ordered_and_ties_keep_their_order(trace_of):
    late = [(500, 10 + i, 1, []) for i in range(100)]
    trace = trace_of(*late[:50], (100, 5, 2, [5]), *late[50:])
    assert trace.arrival_s.tolist() == [0.0] + [0.4] * 100
    assert trace.prompt_tokens.tolist() == [5, *range(10, 110)]
    assert trace.block_offsets.tolist() == [0] + [1] * 101


def test_prompts_match_exactly_as_far_as_their_hash_ids(trace_of):
    trace = trace_of(
        (0, 1100, 1, [7, 9, 11]), (0, 2000, 1, [7, 9, 12]), (0, 1100, 1, []), (0, 1100, 1, [])
    )
    first, second, third, fourth = (trace.tokens(i) for i in range(4))
    assert [len(first), len(second), len(third)] == [1100, 2000, 1100]
    assert first.dtype == np.int32
    shared = 2 * BLOCK_TOKENS
    assert np.array_equal(first[:shared], second[:shared])
    assert first[shared] != second[shared]
    # What no id covers belongs to one request alone, from its first token on.
    covered = 3 * BLOCK_TOKENS
    heads = [second[covered], third[0], fourth[0], *first[::BLOCK_TOKENS]]
    assert len(set(map(int, heads))) == len(heads)
    assert np.array_equal(trace.tokens(1), second)


def test_first_requests(trace_of):
    trace = trace_of((0, 600, 1, [1, 2]), (5, 700, 2, [1, 3]), (9, 800, 3, [4]))
    part = trace.first(2)
    assert len(part) == 2
    assert np.array_equal(part.tokens(1), trace.tokens(1))
    assert part.arrival_s.tolist() == [0.0, 0.005]


def test_shuffled_requests_keep_their_prompts(trace_of):
    rows = [(at, 600 + 512 * at, 1 + at, list(range(at, 2 * at + 1))) for at in range(9)]
    trace = trace_of(*rows)
    other = trace.shuffled(1)
    assert np.array_equal(other.arrival_s, trace.arrival_s)
    assert other.prompt_tokens.tolist() != trace.prompt_tokens.tolist()
    assert sorted(other.prompt_tokens) == sorted(trace.prompt_tokens)
    for at, prompt_tokens in enumerate(other.prompt_tokens.tolist()):
        was = trace.prompt_tokens.tolist().index(prompt_tokens)
        assert other.output_tokens[at] == trace.output_tokens[was]
        # All but a private tail, which names its place.
        named = slice(0, (prompt_tokens - 600) // BLOCK_TOKENS * BLOCK_TOKENS)
        assert np.array_equal(other.tokens(at)[named], trace.tokens(was)[named])
    assert np.array_equal(other.blocks, trace.shuffled(1).blocks)


def without(name: str) -> str:
    row = json.loads(GOOD)
    del row[name]
    return json.dumps(row)


def changed(name: str, value: object) -> str:
    return json.dumps({**json.loads(GOOD), name: value})


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "the line is blank"),
        ('{"timestamp": 40, ', "not JSON: .* at column"),
        ("[1, 2]", "not a JSON object"),
        (without("timestamp"), "`timestamp` is missing"),
        (without("hash_ids"), "`hash_ids` is missing"),
        (changed("timestamp", -1), "`timestamp` is -1; it needs milliseconds"),
        (changed("timestamp", True), "`timestamp` is True"),
        (changed("timestamp", float("nan")), "`timestamp` is nan"),
        (changed("input_length", "12"), "`input_length` is '12'; it needs a whole number"),
        (changed("input_length", 0), "the prompt has 0 tokens"),
        (changed("input_length", 10**20), "it has 1000.* tokens; 2147483647 are the most"),
        (changed("output_length", 2.5), "`output_length` is 2.5"),
        (changed("output_length", 0), "the output has 0 tokens"),
        (changed("hash_ids", 3), "`hash_ids` is 3; it needs a list"),
        (changed("hash_ids", [1, "x"]), "`hash_ids` holds 'x'"),
        (changed("hash_ids", [1, 2**63]), "`hash_ids` holds 9223372036854775808"),
        (changed("hash_ids", [1, 2, 3, 4]), "4 hash ids name more than the 3 blocks"),
    ],
)
def test_malformed_mooncake_line_is_named(tmp_path, line, says):
    path = tmp_path / "bad.jsonl"
    path.write_text(f"{GOOD}\n{GOOD}\n{line}\n{GOOD}\n")
    with pytest.raises(TraceError, match=rf"bad\.jsonl line 3: {says}"):
        load_trace(path)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "the line is blank"),
        ("2023-11-16 18:17:03.97,4808", "2 fields where 3 are due"),
        ("yesterday,4808,10", "`TIMESTAMP` is 'yesterday'"),
        ("2023-11-16 18:17:03.,4808,10", "`TIMESTAMP` is '2023-11-16 18:17:03.'"),
        ("2023-11-16 18:17:03,x,10", "`ContextTokens` is 'x'"),
        ("2023-11-16 18:17:03,5,1.5", "`GeneratedTokens` is '1.5'"),
        ("2023-11-16 18:17:03,-5,1", "the prompt has -5 tokens"),
        ("2023-11-16 18:17:03,5,0", "the output has 0 tokens"),
    ],
)
def test_malformed_azure_line_is_named(tmp_path, line, says):
    path = tmp_path / "bad.csv"
    path.write_text(f"{AZURE}\n2023-11-16 18:17:03.97,4808,10\n{line}\n")
    with pytest.raises(TraceError, match=rf"bad\.csv line 3: {says}"):
        load_trace(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file is empty"),
        (b"a,b,c\n1,2,3\n", "line 1: neither a Mooncake request"),
        (AZURE.encode(), "a header and no request"),
        (gzip.compress(GOOD.encode())[:-6], "the gzip data is damaged"),
        (b"\x1f\x8b then nothing of the sort", "the gzip data is damaged"),
        (b'{"timestamp": \xff}', "not UTF-8 text at byte 14"),
    ],
)
def test_unreadable_file_is_named(tmp_path, content, says):
    path = tmp_path / "bad"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=f"bad.*({says})"):
        load_trace(path)


def test_missing_file_says_what_to_do(tmp_path):
    with pytest.raises(TraceError, match=r"nosuch: No such file.*name a Mooncake or Azure trace"):
        load_trace(tmp_path / "nosuch")
