"""Reading and naming credentials."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from agentos.core.errors import PreflightError
from agentos.core.quota.credentials import Credential
from agentos.core.ratelimit.limits import Dimension, Rate
from agentos.storage.credentials.reader import CredentialSource


def read(
    tmp_path: Path,
    environment: Mapping[str, str] | None = None,
    text: str | None = None,
    limit: int | None = None,
    concurrency: int | None = None,
) -> list[Credential]:
    file = tmp_path / "credentials.toml"
    if text is not None:
        file.write_text(text)
        file.chmod(0o600)
    return CredentialSource(file, environment or {}, limit, concurrency).read()


def named(credentials: list[Credential]) -> dict[str, str]:
    return {credential.name: credential.secret.reveal() for credential in credentials}


# Variables.


def test_numbered_variables_are_read_in_order_even_with_gaps(tmp_path: Path) -> None:
    environment = {"GEMINI_API_KEY_10": "ten", "GEMINI_API_KEY_1": "one", "GEMINI_API_KEY_3": "three"}
    assert named(read(tmp_path, environment)) == {"key-1": "one", "key-2": "three", "key-3": "ten"}


def test_each_numbered_key_can_have_its_own_base_url_and_model(tmp_path: Path) -> None:
    environment = {
        "GEMINI_API_KEY_1": "one",
        "GEMINI_API_KEY_2": "two",
        "GEMINI_BASE_URL_2": "http://there",
        "GEMINI_MODEL_2": "pro",
        "GEMINI_BASE_URL": "http://nowhere",
    }
    assert [(key.base_url, key.model) for key in read(tmp_path, environment)] == [
        (None, None),
        ("http://there", "pro"),
    ]


def test_a_number_may_have_a_leading_zero(tmp_path: Path) -> None:
    environment = {"GEMINI_API_KEY_01": "one", "GEMINI_MODEL_01": "pro", "GEMINI_API_KEY_02": "two"}
    found = read(tmp_path, environment)
    assert named(found) == {"key-1": "one", "key-2": "two"} and found[0].model == "pro"


def test_the_plain_variable_is_used_when_there_are_no_numbered_ones(tmp_path: Path) -> None:
    assert named(read(tmp_path, {"GEMINI_API_KEY": " plain\n"})) == {"key-1": "plain"}
    both = {"GEMINI_API_KEY": "plain", "GEMINI_API_KEY_2": "two"}
    assert named(read(tmp_path, both)) == {"key-1": "two"}


@pytest.mark.parametrize(
    "name", ["GEMINI_API_KEY_", "GEMINI_API_KEY_X", "MY_GEMINI_API_KEY_1", "gemini_api_key_1"]
)
def test_other_variables_are_not_keys(tmp_path: Path, name: str) -> None:
    assert read(tmp_path, {name: "x", "GEMINI_API_KEY_1": "", "GEMINI_API_KEY": "  "}) == []


def test_with_several_providers_keys_are_named_after_them(tmp_path: Path) -> None:
    environment = {
        "OPENAI_API_KEY": "o",
        "ANTHROPIC_API_KEY": "a",
        "GEMINI_API_KEY_1": "g",
        "GEMINI_API_KEY_2": "h",
    }
    assert named(read(tmp_path, environment)) == {
        "gemini-1": "g",
        "gemini-2": "h",
        "anthropic-1": "a",
        "openai-1": "o",
    }


# The file.

FULL = """
[[credential]]
name = "work"
provider = "gemini"
key = "from-the-file"
bucket = "project-a"
base_url = "http://there"
model = "pro"
rpm = 10
concurrency = 3

[[credential]]
key_env = "MY_KEY"
enabled = false
"""


def test_the_file_can_set_every_field_of_a_key(tmp_path: Path) -> None:
    first, second = read(tmp_path, {"MY_KEY": "from-a-variable"}, FULL)
    assert (first.name, first.secret.reveal(), first.bucket, first.concurrency) == (
        "work",
        "from-the-file",
        "project-a",
        3,
    )
    assert (first.base_url, first.model, first.enabled) == ("http://there", "pro", True)
    assert (second.name, second.secret.reveal(), second.enabled) == ("key-2", "from-a-variable", False)


@pytest.mark.parametrize(
    ("lines", "rate"),
    [
        (("rpm = 60",), Rate(60.0, 60.0)),
        (("rpm = 60", "window = 10"), Rate(10.0, 10.0)),
        (("rpm = 60", "burst = 5"), Rate(5.0, 5.0)),
    ],
)
def test_window_and_burst_say_in_which_portions_a_limit_is_enforced(
    tmp_path: Path, lines: tuple[str, ...], rate: Rate
) -> None:
    (found,) = read(tmp_path, {}, "\n".join(("[[credential]]", 'key = "x"', *lines)))
    assert dict(found.rates) == {Dimension.REQUESTS: rate}


def test_variables_and_file_are_merged_variables_first(tmp_path: Path) -> None:
    text = '[[credential]]\nkey = "file"\n'
    assert named(read(tmp_path, {"GEMINI_API_KEY_1": "variable"}, text)) == {
        "key-1": "variable",
        "key-2": "file",
    }


def test_duplicate_secrets_become_one_credential(tmp_path: Path) -> None:
    environment = {"GEMINI_API_KEY_1": "same", "GEMINI_API_KEY_2": "same"}
    text = '[[credential]]\nkey = "same"\n[[credential]]\nkey = "same"\n'
    assert named(read(tmp_path, environment, text)) == {"key-1": "same"}


def test_one_secret_for_two_providers_is_two_keys(tmp_path: Path) -> None:
    """Some services accept one key in the formats of several providers."""
    environment = {"ANTHROPIC_API_KEY_1": "same", "OPENAI_API_KEY_1": "same"}
    text = '[[credential]]\nprovider = "openai"\nkey = "same"\nconcurrency = 4\n'
    found = read(tmp_path, environment, text)
    assert [(each.provider, each.concurrency) for each in found] == [("anthropic", 1), ("openai", 4)]
    assert len({each.name for each in found}) == 2


def test_the_file_can_configure_a_key_from_a_variable(tmp_path: Path) -> None:
    environment = {"GEMINI_API_KEY_1": "one", "GEMINI_MODEL_1": "pro", "GEMINI_API_KEY_2": "two"}
    text = '[[credential]]\nname = "work"\nkey_env = "GEMINI_API_KEY_1"\nconcurrency = 4\nenabled = false\n'
    first, second = read(tmp_path, environment, text)
    assert (first.name, first.concurrency, first.enabled, first.model) == ("work", 4, False, "pro")
    assert (second.name, second.enabled) == ("key-2", True)


def test_generated_names_skip_names_already_taken(tmp_path: Path) -> None:
    text = '[[credential]]\nname = "key-1"\nkey = "file"\n'
    found = read(tmp_path, {"GEMINI_API_KEY_1": "a", "GEMINI_API_KEY_2": "b"}, text)
    assert len(named(found)) == 3 and named(found)["key-1"] == "file"


def test_without_file_and_variables_there_are_no_keys(tmp_path: Path) -> None:
    assert read(tmp_path) == []


# For all of them.


def test_the_credential_limit_keeps_the_first_keys(tmp_path: Path) -> None:
    environment = {f"GEMINI_API_KEY_{number}": f"secret-{number}" for number in range(1, 5)}
    assert list(named(read(tmp_path, environment, limit=2))) == ["key-1", "key-2"]


def test_the_concurrency_variable_applies_to_all_keys(tmp_path: Path) -> None:
    found = read(tmp_path, {"MY_KEY": "x"}, FULL, concurrency=5)
    assert [key.concurrency for key in found] == [5, 5]


# What is wrong with a file.


def one_key(*lines: str) -> str:
    return "\n".join(["# keys", "[[credential]]", 'key = "good"', "", "[[credential]]", *lines, ""])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[credential]\n", "line 1"),
        (one_key('key = "x"', "key = "), "line 7"),
        (one_key('key = "x"', 'colour = "blue"'), "line 7: unknown 'colour'; expected one of name, provider"),
        (
            one_key('key = "x"', 'concurrency = "3"'),
            "line 7: concurrency is a quoted string, expected an integer",
        ),
        (
            one_key('key = "x"', "concurrency = true"),
            "line 7: concurrency is true or false, expected an integer",
        ),
        (one_key('key = "x"', "concurrency = 0"), "line 7: concurrency = 0; expected an integer from 1 to "),
        (one_key('key = "x"', f"rpm = {'9' * 400}"), "line 7: rpm = 9999"),
        (one_key('key = "x"', f"rpm = {'9' * 5000}"), "credentials.toml: Exceeds the limit"),
        (one_key('key = "x"', f"rpm = {'[' * 9999}"), "credentials.toml: maximum recursion depth"),
        (
            one_key('key = "x"', 'provider = "acme"'),
            "line 7: unknown provider 'acme'; expected one of gemini",
        ),
        (one_key('key = "x"', 'name = "a b"'), "line 7: a name has up to 32"),
        (one_key('key = "x"', 'key_env = "Y"'), "line 7: both key and key_env are set; keep one"),
        (one_key('key_env = "NOT_SET"'), "line 6: the variable NOT_SET is not set"),
        (one_key('name = "a"'), "line 5: no key: set key, key_env or keyring"),
        (one_key('key = "  "'), "line 6: no key"),
        (
            '[[credential]]\nkey = "a"\nname = "n"\n[[credential]]\nkey = "b"\nname = "n"\n',
            "line 6: duplicate name 'n'",
        ),
        ('[credential]\nkey = "a"\n', "with double brackets"),
        ('[[credentials]]\nkey = "a"\n', "line 1: unknown 'credentials'"),
    ],
)
def test_an_invalid_file_is_reported_with_line_and_problem(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(PreflightError) as caught:
        read(tmp_path, text=text)
    assert str(tmp_path / "credentials.toml") in str(caught.value)
    assert complaint in str(caught.value)


def test_an_error_message_never_contains_a_key(tmp_path: Path) -> None:
    with pytest.raises(PreflightError) as caught:
        read(tmp_path, text='[[credential]]\nkey = "canary-123456"\nconcurrency = -1\n')
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o606])
def test_a_file_readable_by_others_is_refused_with_the_fix(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "credentials.toml"
    file.write_text('[[credential]]\nkey = "x"\n')
    file.chmod(mode)
    with pytest.raises(PreflightError, match=f"chmod 600 {file}"):
        CredentialSource(file, {}).read()


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "credentials.toml").write_bytes(b"\xff")
    (tmp_path / "credentials.toml").chmod(0o600)
    with pytest.raises(PreflightError, match="cannot read"):
        read(tmp_path)


def test_the_stamp_changes_with_the_file(tmp_path: Path) -> None:
    source = CredentialSource(tmp_path / "credentials.toml", {})
    assert source.stamp() is None
    source.file.write_text("")
    before = source.stamp()
    (tmp_path / "new").write_text("# other")
    (tmp_path / "new").rename(source.file)
    assert before is not None and source.stamp() not in (None, before)
