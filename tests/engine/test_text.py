"""Text as it comes: incomplete characters, stop strings, and nothing given out too early."""

from __future__ import annotations

import random

import pytest
from tokenspeed.engine.text import TextStream


class Bytes:
    """A token is a byte: most characters take several."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: list[int]) -> str:
        return bytes(tokens).decode(errors="replace")


def play(text: str, stop: tuple[str, ...] = ()) -> tuple[str, str | None, list[str]]:
    stream = TextStream(Bytes(), stop)
    pieces = [stream.push(token) for token in Bytes().encode(text)]
    pieces.append(stream.close())
    assert "".join(pieces) == stream.text
    return stream.text, stream.stopped_by, pieces


def test_a_character_is_given_out_when_it_is_whole() -> None:
    text, stopped, pieces = play("aé€𝄞z")
    assert (text, stopped) == ("aé€𝄞z", None)
    assert [piece for piece in pieces if piece] == ["a", "é", "€", "𝄞", "z"]


def test_bytes_that_are_no_character_come_at_the_end() -> None:
    stream = TextStream(Bytes())
    assert [stream.push(token) for token in (0x61, 0xE2, 0x82)] == ["a", "", ""]
    assert stream.close() == "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("text", "stop", "cut"),
    [
        ("one two three", ("two",), "one "),
        ("aab", ("ab",), "a"),
        ("one tw", ("two",), "one tw"),
        ("stop at once", ("stop",), ""),
        ("abcabd", ("abd", "cab"), "ab"),
        ("naïve café", ("ï",), "na"),
    ],
)
def test_a_stop_string_cuts(text: str, stop: tuple[str, ...], cut: str) -> None:
    got, stopped, _ = play(text, stop)
    assert got == cut
    assert (stopped in stop) == (cut != text)


def test_any_text_with_any_stop_strings_is_cut_at_the_first_of_them() -> None:
    rng = random.Random(3)
    cuts = 0
    for _ in range(2000):
        text = "".join(rng.choices("abé", k=rng.randrange(1, 12)))
        stop = tuple("".join(rng.choices("abé", k=rng.randrange(1, 4))) for _ in range(2))
        # The first to be complete; of two that are complete at once, the one that begins first.
        ends = [(text.index(s) + len(s), text.index(s)) for s in stop if s in text]
        want = text[: min(ends)[1]] if ends else text
        cuts += bool(ends)
        assert play(text, stop)[0] == want, (text, stop)
    assert cuts > 500
