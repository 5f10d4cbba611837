"""Values from outside are read without raising and shown without hiding anything."""

import pytest

from agentos.core.text.values import is_web_address, natural_order, shortened, with_visible_characters
from agentos.outputs.report.facts import plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("Größe 日本", "Größe 日本"),
        ("a\u202eb\u2066c", "a<U+202E>b<U+2066>c"),
        ("zero\u200bwidth\ufeff", "zero<U+200B>width<U+FEFF>"),
        ("tag\U000e0041", "tag<U+E0041>"),
        ("filler\u3164", "filler<U+3164>"),
    ],
)
def test_invisible_characters_are_shown_in_reports(text: str, shown: str) -> None:
    assert with_visible_characters(text) == shown == plain(text)


@pytest.mark.parametrize("url", ["http://[", "https://host:99999", "nonsense", "ftp://host", "http://a b"])
def test_what_is_not_a_web_address(url: str) -> None:
    assert not is_web_address(url) and is_web_address("https://models.example.com:8443/v1")


def test_a_long_value_is_shortened_with_its_length() -> None:
    assert shortened("9" * 5000) == "9" * 80 + "… (5,000 characters)"


def test_natural_order_compares_numbers_by_their_value() -> None:
    names = ["LLD-10", "b", "LLD-2", "2", "LLD-1"]
    assert sorted(names, key=natural_order) == ["2", "LLD-1", "LLD-2", "LLD-10", "b"]
