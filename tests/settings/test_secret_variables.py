"""Which environment variables count as credentials: every row of the table in docs/how-to/exec.md, and what must pass."""

import re
from pathlib import Path

import pytest

from agentos.config.secret_variables import is_secret_name, is_secret_value, withheld_variables
from agentos.config.settings import program_environment, worker_environment
from agentos.core.text.secrets import Secret

PAGE = Path(__file__).parents[2] / "docs/how-to/exec.md"
NAMES = (
    *("GEMINI_API_KEY_1", "AGENTOS_HOME", "GITHUB_TOKEN", "npm_config__authtoken", "AWS_SECRET_ACCESS_KEY"),
    *("PGPASSWORD", "MYSQL_PWD", "SSH_KEY_PASSPHRASE", "GOOGLE_APPLICATION_CREDENTIALS", "STRIPE_KEY"),
    *("AWS_ACCESS_KEY_ID", "SMTP_PASS", "GITLAB_PAT", "SSH_AUTH_SOCK", "SENTRY_DSN", "SESSION_COOKIE"),
    *("PGPASSFILE", "PGSERVICEFILE", "NETRC", "KUBECONFIG", "DOCKER_CONFIG", "GPG_AGENT_INFO", "CI_JWT"),
)
ORDINARY_NAMES = (
    *("PATH", "HOME", "PWD", "OLDPWD", "LANG", "TERM", "SHELL", "USER", "LOGNAME", "HTTPS_PROXY", "EDITOR"),
    *("DATABASE_URL", "KEYBOARD", "XKEYSYMDB", "PATIENCE", "AUTHOR", "GIT_AUTHOR_NAME", "COMPASS", "MONKEY"),
    *("XDG_SESSION_ID", "PYTHONPATH", "CI", "VIRTUAL_ENV", "LS_COLORS", "DISPLAY", "BYPASS_CACHE"),
)
VALUES = (
    "postgres://app:hunter2@db.internal/app",
    "http://user:pass@proxy:3128",
    "redis://:hunter2@cache:6379/0",
    "https://0123456789abcdef0123@o1.ingest.example/42",
    "Server=db;User Id=app;Password=hunter2;",
    "https://store.example/x?sv=1&sig=abc",
    "https://api.example/v1?api_key=abc",
    "Authorization: Bearer abcdefgh1234",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.x",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nabc",
    *(
        start + "0a1b2c3d4e5f" * 3
        for start in ("sk-", "sk-ant-", "AIza", "AQ.", "ghp_", "glpat-", "AKIA", "hf_")
    ),
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzQ3v8EaWk1",
    "dGhpcyBpcyBhIHNlY3JldCB0aGF0IGlzIGxvbmc5",
)
ORDINARY_VALUES = (
    *(
        "",
        "1",
        "/usr/local/bin:/usr/bin",
        "C.UTF-8",
        "http://proxy:3128",
        "https://user@host/x",
        "xterm-256color",
    ),
    *("ssh://git@github.com/o/r.git", "git@github.com:o/r.git", "d41d8cd98f00b204e9800998ecf8427e"),
    *(
        "unix:path=/run/user/1000/bus,guid=0123456789abcdef",
        "rs=0:di=01;34:*.sig=00;90:*.pem=00",
        "a@b.example",
    ),
    *(
        "2a9e1f54-77a5-4bd0-9f60-7e5a0f4b1c11",
        "/home/User1/Projects/Thing2/Build",
        "Ubuntu-22-LTS-Jammy-Jellyfish",
    ),
    *(
        "postgresql://localhost:5432/app",
        "/tmp/ssh-XXXXabc/agent.123",
        "tasks/skeleton-of-a-long-module-name",
    ),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_a_credential_is_recognised(name: str) -> None:
    assert is_secret_name(name) and is_secret_name(name.lower())


@pytest.mark.parametrize("name", ORDINARY_NAMES)
def test_an_ordinary_name_is_not(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize("value", VALUES)
def test_a_value_in_the_form_of_a_credential_is_recognised_whatever_its_name(value: str) -> None:
    assert is_secret_value(value)
    assert "INNOCENT" not in program_environment((), {"INNOCENT": value})
    assert withheld_variables({"INNOCENT": value, "LANG": "C"}) == ["INNOCENT"]


@pytest.mark.parametrize("value", ORDINARY_VALUES)
def test_an_ordinary_value_is_inherited(value: str) -> None:
    assert not is_secret_value(value)
    assert program_environment((), {"INNOCENT": value})["INNOCENT"] == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ANTHROPIC_MODEL", "claude-opus-5-5"),
        ("ANTHROPIC_DEFAULT_HAIKU_MODEL", "claude-haiku-5-5"),
        ("MAX_THINKING_TOKENS", "12000"),
        ("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "32000"),
        ("GEMINI_CLI_TRUST_WORKSPACE", "true"),
        ("GEMINI_MODEL", "gemini-3.8-flash"),
    ],
)
def test_known_settings_of_agents_are_inherited(name: str, value: str) -> None:
    assert program_environment((), {name: value})[name] == value
    assert withheld_variables({name: value}) == []
    key = "sk-ant-0123456789abcdef"
    assert name not in program_environment((), {name: key}), "a key stays one under any name"
    assert name not in program_environment((Secret(value),), {name: value})


def test_what_is_withheld_is_named_unless_agentos_sets_it_itself() -> None:
    given = {
        "ANTHROPIC_CUSTOM_HEADERS": "x: y",
        "OPENAI_ORG_ID": "org-1",
        "GEMINI_API_KEY_3": "k",
        "ANTHROPIC_BASE_URL": "http://x",
        "AGENTOS_HOME": "/h",
        "LANGSMITH_API_KEY": "k",
        "NPM_TOKEN": "12",
        "MAX_TOKENS_SECRET": "1",
    }
    assert withheld_variables(given) == [
        "ANTHROPIC_CUSTOM_HEADERS",
        "MAX_TOKENS_SECRET",
        "NPM_TOKEN",
        "OPENAI_ORG_ID",
    ]


def test_workers_keep_a_proxy_with_a_password_and_programs_do_not() -> None:
    proxy = {"HTTPS_PROXY": "http://user:pass@proxy:3128"}
    assert worker_environment((), proxy)["HTTPS_PROXY"] and "HTTPS_PROXY" not in program_environment(
        (), proxy
    )


def test_the_names_in_the_documentation_are_withheld() -> None:
    section = PAGE.read_text().partition("## What the program inherits")[2].partition("\n## ")[0]
    names = re.findall(r"`([A-Z_]{4,})`", section.partition("| by value")[0])
    assert len(names) >= 12 and all(map(is_secret_name, names))
    values = re.findall(r"`([^`]+)`", section.partition("| by value")[2].partition("\n\n")[0])
    assert len(values) >= 6 and all(map(is_secret_value, values))
