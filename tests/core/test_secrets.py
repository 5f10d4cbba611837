"""Secrets are never printed, and the redactor masks every form of them."""

import base64
import json
import traceback
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentos.core.protocol.commands import GrantLease
from agentos.core.protocol.ports import LeasedKey
from agentos.core.quota.credentials import Credential
from agentos.core.text.secrets import MASK, Redactor, Secret

CANARY = 'AIza"Sy\\Canary/0123+456789=äöü'
secrets = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=12, max_size=60)


@pytest.mark.parametrize(
    "shown",
    [
        repr(Secret(CANARY)),
        str(Secret(CANARY)),
        f"{Secret(CANARY)} {Secret(CANARY)!r}",
        "%s" % (Secret(CANARY),),  # noqa: UP031 - one more way to print
        repr([Secret(CANARY)]),
        repr(Credential("key-1", "gemini", Secret(CANARY))),
        repr(GrantLease("LLD-1", "c", "l", "key-1", "gemini", Secret(CANARY), None, None)),
        repr(LeasedKey("key-1", CANARY, None, "pro")),
    ],
)
def test_printing_a_secret_or_its_container_does_not_show_it(shown: str) -> None:
    assert CANARY not in shown and "Canary" not in shown


def test_an_exception_about_a_secret_does_not_show_it() -> None:
    try:
        raise ValueError(Secret(CANARY))
    except ValueError:
        assert "Canary" not in traceback.format_exc()


def test_only_reveal_returns_the_value_and_equal_secrets_are_equal() -> None:
    assert Secret(CANARY).reveal() == CANARY
    assert Secret(CANARY) == Secret(CANARY) and len({Secret(CANARY), Secret(CANARY)}) == 1


@given(secrets)
def test_a_secret_is_masked_plain_json_escaped_and_url_quoted(value: str) -> None:
    redact = Redactor([Secret(value)])
    for form in (value, json.dumps(value)[1:-1], urllib.parse.quote(value, safe="")):
        assert redact(f"before {form} after") == f"before {MASK} after"


@pytest.mark.parametrize("shift", [0, 1, 2])
@given(value=secrets, before=st.binary(min_size=3, max_size=9), after=st.binary(max_size=9))
def test_a_secret_is_masked_in_base64_at_any_offset(
    shift: int, value: str, before: bytes, after: bytes
) -> None:
    before = before[: len(before) // 3 * 3] + b"x" * shift
    encoded = base64.b64encode(before + value.encode() + after).decode()
    shown = Redactor([Secret(value)])(encoded)
    assert MASK in shown
    assert len(shown.replace(MASK, "")) <= len(encoded) - (4 * len(value) // 3 - 4)


def test_every_occurrence_is_masked_longest_secret_first() -> None:
    redact = Redactor([Secret("secret-one"), Secret("secret-one-and-more")])
    assert redact("secret-one-and-more, secret-one, secret-one") == f"{MASK}, {MASK}, {MASK}"


def test_a_secret_added_later_is_masked_too() -> None:
    redact = Redactor()
    assert redact("key canary-123456") == "key canary-123456"
    redact.add([Secret("canary-123456")])
    assert redact("key canary-123456") == f"key {MASK}"


def test_a_value_too_short_to_be_a_key_masks_nothing() -> None:
    assert Redactor([Secret("a"), Secret("")])("a banana") == "a banana"
