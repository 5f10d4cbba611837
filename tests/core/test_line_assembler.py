"""The line assembler returns complete, clean lines for any chunking of the bytes."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentos.core.text.line_assembler import CUT_MARK, MAX_LINE, LineAssembler, clean, one_line
from agentos.core.text.secrets import MASK, Redactor, Secret

CANARY = "AIzaSyCanary0123456789"
REDACT = Redactor([Secret(CANARY)])


def lines(*chunks: bytes) -> list[str]:
    assembler = LineAssembler(REDACT)
    found = [line for chunk in chunks for line in assembler.feed(chunk)]
    return found + assembler.close()


def chopped(content: bytes, size: int) -> list[bytes]:
    return [content[at : at + size] for at in range(0, len(content), size)]


pieces = st.sampled_from(
    [
        b"word ",
        b"\n",
        b"\r",
        b"\r\n",
        "ä€🙂".encode(),
        b"\xff\xfe",
        b"\x1b[31m",
        b"\x1b]52;c;aGk=\x07",
        b"\x1b]0;title",
        b"\x1b",
        b"\x1bPq#0",
        b"\x1b\\",
        b"\x9b",
        b"\x00\x07\t",
        CANARY.encode(),
        CANARY.encode()[:9],
        CANARY.encode()[9:],
        b"x" * 8190,
        b"y" * 8704,
        b"z" * 17000,
    ]
)
streams = st.lists(pieces | st.binary(max_size=5), max_size=12).map(b"".join)


@settings(deadline=None, max_examples=60)
@given(streams, st.lists(st.integers(0, 20000), max_size=8))
def test_any_chunking_of_any_bytes_gives_the_same_lines(stream: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    chunks = [stream[start:end] for start, end in itertools.pairwise(places)]
    assert lines(*chunks) == lines(stream)


@settings(deadline=None, max_examples=30)
@given(streams, st.integers(50, 700))
def test_lines_are_complete_clean_and_bounded(stream: bytes, size: int) -> None:
    found = lines(*chopped(stream, size))
    for line in found:
        assert len(line) <= MAX_LINE + len(CUT_MARK)
        assert not any((ord(sign) < 32 and sign != "\t") or 127 <= ord(sign) < 160 for sign in line)
        assert CANARY not in line and line.splitlines() in ([], [line])


def test_the_tail_without_a_newline_is_returned_by_close() -> None:
    assert lines(b"one\ntw", b"o\nthree") == ["one", "two", "three"]
    assert lines(b"one\n") == ["one"]
    assert lines() == []


def test_an_empty_line_is_a_line() -> None:
    assert lines(b"a\n\nb\n") == ["a", "", "b"]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"10%\r20%\r100%\n", "100%"),
        (b"10%\r20%\r\n", "20%"),
        (b"windows\r\n", "windows"),
        (b"\r\r\n", ""),
    ],
)
def test_the_last_carriage_return_segment_wins(written: bytes, shown: str) -> None:
    assert lines(written) == [shown]


def test_a_spoofed_prefix_stays_in_its_own_line() -> None:
    assert lines(b"ok\r[COORDINATOR] done\n") == ["[COORDINATOR] done"]
    assert lines("ok\u2028[COORDINATOR] done\x0b[LLD-9] x\x85[LLD-8] y\n".encode()) == [
        "ok[COORDINATOR] done[LLD-9] x[LLD-8] y"
    ]


@pytest.mark.parametrize(
    "escape",
    [
        "\x1b[31m",
        "\x1b[38;5;1m",
        "\x1b[2J",
        "\x1b[?25l",
        "\x1b]52;c;ZXZpbA==\x07",
        "\x1b]52;c;ZXZpbA==\x1b\\",
        "\x1b]0;a title\x07",
        "\x1bPq#0;2;0;0;0\x1b\\",
        "\x1b(B",
        "\x1bc",
        "\x9b31m",
        "\x1b",
    ],
)
def test_escapes_are_stripped(escape: str) -> None:
    assert clean(f"be{escape}\tfore") == "be\tfore" or escape == "\x1b"
    assert lines(f"a\t{escape}\n".encode()) == ["a\t"]


def test_characters_that_reorder_text_are_shown() -> None:
    assert clean("safe\u202etxt\u2066.exe\u2069") == "safe<U+202E>txt<U+2066>.exe<U+2069>"
    assert lines("a\u202eb\n".encode()) == ["a<U+202E>b"]
    assert one_line("\u202etitle") == "<U+202E>title" and one_line("80-\udcff.md") == "80-?.md"
    assert clean("\u05e9\u05dc\u200f \u05d0") == "\u05e9\u05dc\u200f \u05d0", "marks reorder nothing else"


def test_an_escape_split_over_two_reads_is_stripped() -> None:
    assert lines(b"a\x1b]52;c;ZX", b"ZpbA==", b"\x07b\n") == ["ab"]


def test_invalid_utf8_is_replaced_and_split_characters_are_joined() -> None:
    assert lines(b"a\xffb\n") == ["a\ufffdb"]
    assert lines(b"\xf0\x9f", b"\x99\x82\n") == ["🙂"]
    assert lines(b"cut \xf0\x9f") == ["cut \ufffd"]


@pytest.mark.parametrize("size", [1, 4096, 65536, 1 << 20])
def test_a_line_of_one_megabyte_comes_in_pieces_without_loss(size: int) -> None:
    content = "".join(f"{number:07} " for number in range(1 << 17)) if size > 1 else "0123456 " * 4096
    found = lines(*chopped(content.encode() + b"\nnext\n", size))
    assert found.pop() == "next"
    assert all(piece.endswith(CUT_MARK) and len(piece) == MAX_LINE + len(CUT_MARK) for piece in found[:-1])
    assert "".join(piece.removesuffix(CUT_MARK) for piece in found) == content


def test_one_megabyte_without_a_newline_is_not_buffered() -> None:
    assembler = LineAssembler(REDACT)
    pieces = [line for chunk in chopped(b"x" * (1 << 20), 65536) for line in assembler.feed(chunk)]
    assert sum(len(line.removesuffix(CUT_MARK)) for line in pieces) > (1 << 20) - 3 * MAX_LINE


def test_an_escape_of_one_megabyte_is_stripped_and_nothing_after_it() -> None:
    stream = b"a\x1b]52;c;" + b"Q" * (1 << 20) + b"\x07b\n"
    assert lines(*chopped(stream, 4096)) == ["ab"]


@pytest.mark.parametrize("at", range(len(CANARY) + 1))
def test_a_secret_split_over_two_reads_is_masked(at: int) -> None:
    stream = f"key={CANARY}!\n".encode()
    assert lines(stream[: 4 + at], stream[4 + at :]) == [f"key={MASK}!"]


@pytest.mark.parametrize("before", [MAX_LINE - 30, MAX_LINE - 10, MAX_LINE - 1, MAX_LINE])
@pytest.mark.parametrize("size", [100, 1 << 20])
def test_a_secret_across_a_cut_is_masked(before: int, size: int) -> None:
    stream = b"x" * before + CANARY.encode() + b"y" * MAX_LINE * 3
    whole = "".join(line.removesuffix(CUT_MARK) for line in lines(*chopped(stream, size)))
    assert whole == "x" * before + MASK + "y" * MAX_LINE * 3


@pytest.mark.parametrize("text", range(16384, 16414, 3))
def test_a_secret_after_many_escapes_is_not_split_by_a_cut(text: int) -> None:
    for content in (text, text - MAX_LINE - 500):
        stream = b"\x1b[31m" * 200 + b"x" * content + CANARY.encode() + b"\n"
        whole = "".join(line.removesuffix(CUT_MARK) for line in lines(*chopped(stream, 61)))
        assert whole == "x" * content + MASK


def test_a_secret_with_an_escape_inside_is_masked() -> None:
    assert lines(f"{CANARY[:5]}\x1b[0m{CANARY[5:]}\n".encode()) == [MASK]
