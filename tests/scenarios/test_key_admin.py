"""`agentos keys add` and `agentos keys remove`."""

import tomllib
from pathlib import Path

import pytest

from .harness import KEYS, RunHarness
from .keyrings import credentials, keys, line, table

GOOGLE_KEY = f"AIza{'Sy-0_' * 7}"
NO_SERVER = "http://127.0.0.1:9"


def tables(harness: RunHarness) -> list[dict[str, object]]:
    path = harness.home / "credentials.toml"
    found: list[dict[str, object]] = tomllib.loads(path.read_text())["credential"] if path.exists() else []
    return found


@pytest.mark.parametrize(
    ("key", "provider"),
    [
        ("AIzaSyExample-1", "gemini"),
        ("AQ.Ab8RN6Example", "gemini"),
        ("sk-ant-api03-example", "anthropic"),
        ("sk-proj-example", "openai"),
    ],
)
def test_the_provider_is_recognised_by_the_form_of_the_key(
    harness: RunHarness, key: str, provider: str
) -> None:
    added = keys(harness, "add", "--no-check", typed=key)
    assert added.code == 0 and f"Added key-1 ({provider}) to " in added.out, added.err
    assert key not in added.out + added.err
    assert tables(harness) == [{"name": "key-1", "provider": provider, "key": key}]


def test_a_check_without_any_key_exits_as_without_a_usable_one(harness: RunHarness) -> None:
    harness.keys = ()
    checked = keys(harness, "check")
    assert checked.code == 4 and "no key to check; add one with: agentos keys add" in checked.err


def test_quotes_around_a_pasted_key_do_not_belong_to_it(harness: RunHarness) -> None:
    assert keys(harness, "add", "--no-check", typed='"AIzaSyExample-1"').code == 0
    assert [table["key"] for table in tables(harness)] == ["AIzaSyExample-1"]


def test_a_stored_key_keeps_its_name_when_keys_of_another_provider_arrive(harness: RunHarness) -> None:
    harness.keys = ()
    assert "Added key-1 " in keys(harness, "add", "--no-check", typed="AIzaSyExample-1").out
    assert "Added anthropic-1 " in keys(harness, "add", "--no-check", typed="sk-ant-api03-example").out
    assert "Added gemini-2 " in keys(harness, "add", "--no-check", typed="AIzaSyExample-2").out
    assert [row.split()[0] for row in keys(harness).lines] == ["key-1", "anthropic-1", "gemini-2"]
    assert keys(harness, "remove", "anthropic-1").code == 0
    variables = keys(harness, GEMINI_API_KEY_1="AIzaSyExample-3")
    assert [row.split()[0] for row in variables.lines] == ["key-2", "key-1", "gemini-2"]


def test_a_key_whose_sdk_is_missing_is_stored_with_a_warning(harness: RunHarness) -> None:
    (harness.root / "site").mkdir()
    (harness.root / "site/sitecustomize.py").write_text("import sys\nsys.modules['anthropic'] = None\n")
    for words in ((), ("--no-check", "--name", "second")):
        typed = f"sk-ant-api03-example{len(words)}"
        added = keys(harness, "add", *words, typed=typed, PYTHONPATH=str(harness.root / "site"))
        assert added.code == 0 and "It works" not in added.out, added.err
        assert "pip install 'agentos-runner[anthropic]'" in added.err and added.err.count("\n") == 1


def test_a_key_of_another_provider_is_not_taken(harness: RunHarness) -> None:
    refused = keys(harness, "add", "--provider", "gemini", "--no-check", typed="sk-ant-api03-example")
    assert refused.code == 2 and "looks like a key for anthropic, not for gemini" in refused.err
    assert "--provider anthropic" in refused.err and tables(harness) == []


@pytest.mark.parametrize("key", ["of-no-known-form", "sk-or-v1-of-openrouter"])
def test_where_nobody_can_be_asked_the_flag_to_give_is_named(harness: RunHarness, key: str) -> None:
    refused = keys(harness, "add", typed=key)
    assert refused.code == 2 and "--provider gemini|anthropic|openai" in refused.err
    assert tables(harness) == []


def test_a_new_key_is_checked_with_one_call_and_stored_with_its_limits(harness: RunHarness) -> None:
    server = harness.server(keys=KEYS[:1])
    harness.keys = ()
    words = ("--provider", "gemini", "--name", "work", "--base-url", server.url, "--rpm", "150")
    limits = ("--tpm", "2000000", "--rpd", "1000", "--concurrency", "2", "--bucket", "team")
    added = keys(harness, "add", *words, *limits, typed=KEYS[0])
    assert added.code == 0, added.err
    assert "Added work (gemini, 150 " in added.out and "bucket team" in added.out and "It works." in added.out
    assert len(server.answered()) == 1
    assert tables(harness) == [
        {
            "name": "work",
            "provider": "gemini",
            "key": KEYS[0],
            "base_url": server.url,
            "bucket": "team",
            "rpm": 150,
            "tpm": 2000000,
            "rpd": 1000,
            "concurrency": 2,
        }
    ]
    assert "of 150 " in line(keys(harness), "work") or "bucket team" in line(keys(harness), "work")


@pytest.mark.slow
def test_a_key_that_the_provider_rejects_is_not_stored(harness: RunHarness) -> None:
    server = harness.server(keys=KEYS[:1])
    harness.keys = ()
    words = ("add", "--provider", "gemini", "--base-url", server.url)
    refused = keys(harness, *words, typed=KEYS[1])
    assert refused.code == 4 and "gemini rejects this key" in refused.err and "--no-check" in refused.err
    assert tables(harness) == []
    assert keys(harness, *words, "--no-check", typed=KEYS[1]).code == 0
    assert [table["key"] for table in tables(harness)] == [KEYS[1]]


def test_a_key_that_cannot_be_checked_now_is_stored_with_a_warning(harness: RunHarness) -> None:
    added = keys(harness, "add", "--provider", "gemini", "--base-url", NO_SERVER, typed=KEYS[0])
    assert added.code == 0 and "Added key-1" in added.out and "It works" not in added.out
    assert "could not be checked" in added.err and "agentos keys check key-1" in added.err
    assert len(tables(harness)) == 1


@pytest.mark.parametrize("key", [GOOGLE_KEY, "of-no-known-form"])
def test_a_key_given_as_an_argument_is_refused_and_not_shown(harness: RunHarness, key: str) -> None:
    refused = keys(harness, "add", key)
    assert refused.code == 2 and "shell's history" in refused.err and "prompt" in refused.err
    assert key not in refused.err and tables(harness) == []


@pytest.mark.parametrize("verb", ["check", "remove", "enable", "cooldown", "forget"])
@pytest.mark.parametrize(
    "key", ["AIzaSyExample", "sk-proj-example", "a-key-of-no-known-form-0123456789-0123456789"]
)
def test_a_key_in_place_of_a_name_is_not_shown(harness: RunHarness, verb: str, key: str) -> None:
    credentials(harness, NO_SERVER, table(1))
    refused = keys(harness, verb, key)
    assert refused.code == 5 and "the keys are: key-1" in refused.err and "shell's history" in refused.err
    assert key not in refused.err


@pytest.mark.parametrize(
    "words", [("{key}",), ("add", "--name", "{key}"), ("add", "--provider", "{key}"), ("list", "{key}")]
)
def test_a_key_in_a_wrong_place_is_masked_in_the_error(harness: RunHarness, words: tuple[str, ...]) -> None:
    refused = keys(harness, *(word.format(key=GOOGLE_KEY) for word in words), typed="AIzaSyExample")
    assert refused.code == 2 and "[secret]" in refused.err and GOOGLE_KEY not in refused.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--base-url", "example.org"), "invalid address 'example.org': expected one such as https://"),
        (("--base-url", "http://[::1"), "invalid address"),
        (("--rpm", "0"), "--rpm"),
        (("--concurrency", "two"), "--concurrency"),
        (("--provider", "mistral"), "--provider"),
    ],
)
def test_flags_that_cannot_be_used_are_refused(
    harness: RunHarness, words: tuple[str, str], says: str
) -> None:
    refused = keys(harness, "add", *words, "--no-check", typed="AIzaSyExample")
    assert refused.code == 2 and says in refused.err and tables(harness) == []


def test_a_removed_key_leaves_everything_else_as_the_person_wrote_it(harness: RunHarness) -> None:
    path = credentials(harness, NO_SERVER, table(1), table(2, "# mine", "rpm = 5"), table(3))
    text = "# All my keys\n" + path.read_text().replace(
        '[[credential]]\nbase_url = "http://127.0.0.1:9"\nname = "key-3"',
        '# The third\n[[credential]]\nbase_url = "http://127.0.0.1:9"\nname = "key-3"',
    )
    path.write_text(text)
    removed = keys(harness, "remove", "key-2")
    assert removed.code == 0 and "Removed key-2" in removed.out
    begin, end = (
        text.index('[[credential]]\nbase_url = "http://127.0.0.1:9"\nname = "key-2"'),
        text.index("# The"),
    )
    assert [row for row in path.read_text().splitlines() if row] == [
        row for row in (text[:begin] + text[end:]).splitlines() if row
    ]
    assert path.stat().st_mode & 0o777 == 0o600
    assert [row.split()[0] for row in keys(harness).lines] == ["key-1", "key-3"]
    assert keys(harness, "remove", "key-1").code == keys(harness, "remove", "key-3").code == 0
    assert "No keys." in keys(harness).out


def test_a_key_that_is_in_the_file_twice_is_removed_from_both_places(harness: RunHarness) -> None:
    twice = table(1).replace("key-1", "again")
    path = credentials(harness, NO_SERVER, table(1), twice, table(2))
    assert keys(harness, "remove", "key-1").code == 0
    assert KEYS[0] not in path.read_text() and KEYS[1] in path.read_text()


def test_the_key_that_is_disabled_is_the_one_that_was_named(harness: RunHarness) -> None:
    credentials(harness, NO_SERVER, table(1), table(1).replace("key-1", "again"), table(2))
    assert keys(harness, "disable", "key-2").code == 0
    assert [found.get("enabled", True) for found in tables(harness)] == [True, True, False]


def test_what_cannot_be_removed_says_why(harness: RunHarness) -> None:
    path: Path = credentials(harness, NO_SERVER, table(1))
    before = path.read_bytes()
    unknown = keys(harness, "remove", "nobody")
    assert unknown.code == 5 and "no key is named 'nobody'; the keys are: key-1" in unknown.err
    variable = keys(harness, "remove", "key-2", GEMINI_API_KEY_7=KEYS[1])
    assert variable.code == 2 and "comes from the environment" in variable.err
    assert path.read_bytes() == before
    both = keys(harness, "remove", "key-1", GEMINI_API_KEY_7=KEYS[0])
    assert both.code == 0 and "unset it as well" in both.err
