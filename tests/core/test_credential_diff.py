"""What changed when the credentials were edited during a run."""

from dataclasses import replace

from agentos.core.protocol.events import KeysChanged
from agentos.core.quota.keys import diff_credentials
from agentos.core.text.secrets import Secret

from .builders import key, keys


def test_added_and_removed_keys_are_named() -> None:
    assert diff_credentials(keys(2), [key("key-1"), key("spare")]) == KeysChanged(("spare",), ("key-2",))


def test_a_changed_secret_is_a_new_key_under_the_same_name() -> None:
    changed = replace(key("key-1"), secret=Secret("another one"))
    assert diff_credentials(keys(1), [changed]) == KeysChanged(("key-1",), ("key-1",))


def test_enabled_disabled_and_changed_keys_are_named() -> None:
    first, second, third = keys(3)
    before = [first, replace(second, enabled=False), third]
    after = [replace(first, enabled=False), second, replace(third, concurrency=2)]
    assert diff_credentials(before, after) == KeysChanged((), (), ("key-1",), ("key-2",), ("key-3",))


def test_renaming_or_reordering_keys_is_no_change() -> None:
    first, second = keys(2)
    assert diff_credentials([first, second], [replace(second, name="mine"), first]) is None
