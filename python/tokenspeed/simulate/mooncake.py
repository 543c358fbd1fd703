"""The Mooncake trace format: one JSON object a line.

    {"timestamp": 40, "input_length": 23769, "output_length": 3, "hash_ids": [151, 152]}

`timestamp` is in milliseconds, the lengths in tokens; a hash id names 512 tokens together with all
that precedes them, so equal ids mean an equal prefix. The ids may cover less than the prompt.
"""

from __future__ import annotations

import json

_NUMBERS = ("timestamp", "input_length", "output_length")


def parse(line: str) -> tuple[float, int, int, list[int]]:
    """One request as (arrival in seconds, prompt tokens, output tokens, hash ids).

    `ValueError` says what the line lacks or holds wrongly.
    """
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    if type(row) is not dict:
        raise ValueError("not a JSON object")
    for name in (*_NUMBERS, "hash_ids"):
        if name not in row:
            raise ValueError(f"`{name}` is missing")
    timestamp, prompt, output = (row[name] for name in _NUMBERS)
    if type(timestamp) not in (int, float) or not 0 <= timestamp < float("inf"):
        raise ValueError(f"`timestamp` is {timestamp!r}; it needs milliseconds from 0 up")
    for name, value in (("input_length", prompt), ("output_length", output)):
        if type(value) is not int:
            raise ValueError(f"`{name}` is {value!r}; it needs a whole number of tokens")
    hash_ids = row["hash_ids"]
    if type(hash_ids) is not list:
        raise ValueError(f"`hash_ids` is {hash_ids!r}; it needs a list of whole numbers")
    for hash_id in hash_ids:
        if type(hash_id) is not int or not -(2**63) <= hash_id < 2**63:
            raise ValueError(f"`hash_ids` holds {hash_id!r}; it needs whole numbers of 64 bits")
    return timestamp / 1000.0, prompt, output, hash_ids
