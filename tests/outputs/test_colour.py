"""Colours that follow the meaning of the words they stand on."""

import os

import pytest

from agentos.config.settings import TerminalInfo
from agentos.outputs.colour import paint, paint_text, wants_colours

RED, GREEN, YELLOW, MAGENTA = (f"\x1b[{code}m" for code in (31, 32, 33, 35))


@pytest.mark.parametrize(
    ("text", "painted"),
    [
        ("LLD-40  approved", f"LLD-40  {GREEN}approved"),
        ("LLD-41  needs revision", f"LLD-41  {YELLOW}needs revision"),
        ("2 need revision", f"2 {YELLOW}need revision"),
        ("LLD-42  failed", f"LLD-42  {RED}failed"),
        ("  Failed: 3", f"  {RED}Failed: 3"),
        ("key-4 rate limited until 18:52", f"key-4 {MAGENTA}rate limited"),
        ("Rate limit hit on key-4.", f"{MAGENTA}Rate limit hit"),
        ("exhausted for the day", f"{MAGENTA}exhausted"),
        ("  LLD-42  12s  waits for a key", f"12s  {MAGENTA}waits for a key"),
        ("  LLD-42  STALLED", f"{RED}STALLED"),
        ("[=====>    ] 5/10", f"{GREEN}[=====>    ]"),
    ],
)
def test_each_result_and_state_has_its_colour(text: str, painted: str) -> None:
    assert painted in paint_text(text)


@pytest.mark.parametrize(
    "text", ["0 approved, 0 need revision, 0 failed", "  Failed: 0", "lld-workflow --failed"]
)
def test_what_did_not_happen_and_flags_stay_plain(text: str) -> None:
    assert paint_text(text) == text


def test_the_end_of_an_item_is_coloured_and_its_own_output_is_not() -> None:
    assert f" {GREEN}Approved\x1b[0m after 1 review" in paint(
        "[LLD-42] Approved after 1 review in 3s: docs/x.md"
    )
    assert f" {YELLOW}Needs revision\x1b[0m after" in paint(
        "[LLD-42] Needs revision after 2 reviews in 3s: d"
    )
    assert f"{RED} FAILED: Invalid spec format\x1b[0m" in paint("[LLD-42] FAILED: Invalid spec format")
    assert paint("[LLD-42] the review approved it").endswith("m the review approved it")


def test_no_prefix_of_an_item_has_a_colour_that_means_something() -> None:
    prefixes = {paint(f"[LLD-{number}] x").partition("[LLD")[0] for number in range(200)}
    assert len(prefixes) > 1 and prefixes.isdisjoint({RED, GREEN, YELLOW, MAGENTA})


def test_colours_follow_the_environment_first_and_the_terminal_second() -> None:
    reading, writing = os.pipe()
    try:
        assert not wants_colours(writing, TerminalInfo())
        assert wants_colours(writing, TerminalInfo(colours=True))
    finally:
        os.close(reading)
        os.close(writing)
