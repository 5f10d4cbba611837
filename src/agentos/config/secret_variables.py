"""Recognises environment variables that hold a credential, or lead to one, by their name or by the form of their value.

Workers inherit no variable with such a name. Programs under `agentos exec` are third-party code, so for them the value
is checked too: a database URL contains a password whatever its variable is called.
"""

import itertools
import re
from collections.abc import Mapping

from agentos.core.text.secrets import MASK

TRACING_PREFIXES = ("LANGSMITH_", "LANGCHAIN_")
# Variables that agentos sets for workers itself: its own settings, those of the providers and of tracing.
OWN_PREFIXES = ("GEMINI_", "GOOGLE_", "ANTHROPIC_", "OPENAI_", *TRACING_PREFIXES, "AGENTOS_")
_PARTS_OF_NAMES = ("API_KEY", "APIKEY", "TOKEN", "SECRET", "PASSW", "PASSPHRASE", "CREDENTIAL")
# Only as a whole word between underscores: PWD and SSH_TTY are not secrets, MYSQL_PWD is.
_WORDS_OF_NAMES = frozenset(("KEY", "KEYS", "PASS", "PAT", "AUTH", "DSN", "COOKIE", "COOKIES", "JWT"))
_WHOLE_NAMES = frozenset(
    ("PGPASSFILE", "PGSERVICEFILE", "NETRC", "KUBECONFIG", "DOCKER_CONFIG", "GPG_AGENT_INFO", "BOTO_CONFIG")
)
# Settings of agents and SDKs that hold nothing secret: the model, the effort, logging, trust in a folder.
_HARMLESS = re.compile(
    r"ANTHROPIC_(?:DEFAULT_\w+_)?(?:SMALL_FAST_)?MODEL(?:_NAME)?|(?:GEMINI|OPENAI|GOOGLE)_MODEL|OPENAI_REASONING_EFFORT"
    r"|GEMINI_CLI_TRUST_WORKSPACE|GEMINI_SANDBOX|GEMINI_CLI_NO_RELAUNCH|GEMINI_SYSTEM_MD|GEMINI_TELEMETRY_ENABLED"
    r"|ANTHROPIC_LOG|OPENAI_LOG"
)
_OWN_VARIABLES = re.compile(
    r"(?:GEMINI|GOOGLE|ANTHROPIC|OPENAI)_(?:GEMINI_)?(?:API_KEY|BASE_URL|API_BASE|MODEL)(?:_[0-9]+)?"
)
_TOKEN_LIMIT = re.compile(r"\w+_TOKENS")
_CREDENTIAL_FORMS = re.compile(
    "|".join(
        (
            r"[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@",  # a URL with a password
            r"https?://[^/\s:@]{16,}@",  # a URL with a token as its user
            r"-----BEGIN [A-Z ]*PRIVATE KEY",
            r"\b(password|passwd|pwd|secret|token|api_?key|account_?key|access_?key)=[^\s;&]",
            r"[?&]sig=[^\s&]",
            r"\b(basic|bearer)\s+[\w.~+/=-]{8,}",
            r"\beyJ[\w-]{8,}\.[\w-]{8,}\.",  # a JSON Web Token
        )
    ),
    re.IGNORECASE,
)
# Prefixes of the keys of well-known services.
_KEY_FORMS = re.compile(
    r"(?<![A-Za-z0-9])(sk-|sk_live_|rk_live_|AIza|AQ\.|AKIA|ASIA|gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|hf_|npm_|pypi-|dop_v1_)"
    r"[\w-]{16,}"
)
_RANDOM_WORD = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[A-Za-z0-9+_-][A-Za-z0-9+/_-]{23,}={0,2}")


def is_secret_name(name: str) -> bool:
    """Whether a variable with this name probably holds a secret or leads to one, or must not reach a worker."""
    upper = name.upper()
    words = upper.split("_")
    return (
        upper.startswith(OWN_PREFIXES)
        or any(part in upper for part in _PARTS_OF_NAMES)
        or not _WORDS_OF_NAMES.isdisjoint(words)
        or (len(words) > 1 and words[-1] == "PWD")
        or upper in _WHOLE_NAMES
    )


def is_secret_value(value: str) -> bool:
    """Whether a value has the form of a credential, or contains one: a URL with a password, a key, a random-looking word."""
    return bool(
        _CREDENTIAL_FORMS.search(value)
        or _KEY_FORMS.search(value)
        or (_RANDOM_WORD.fullmatch(value) and _is_mixed(value))
    )


def mask_keys(text: str) -> str:
    """The text without keys of well-known services, such as one that was typed as an argument."""
    return _KEY_FORMS.sub(MASK, text)


def _is_mixed(word: str) -> bool:
    """Whether upper case, lower case and digits alternate as often as in a random key, unlike in a name."""
    kinds = [part.isdigit() + 2 * part.isupper() for part in word if part.isalnum()]
    return sum(kind != following for kind, following in itertools.pairwise(kinds)) * 3 >= len(word)


def is_harmless(name: str, value: str) -> bool:
    """Whether a variable is a known, harmless setting of agents, although its name looks like that of a secret."""
    is_limit = _TOKEN_LIMIT.fullmatch(name) is not None and value.isdigit() and len(value) < 10
    return (is_limit or _HARMLESS.fullmatch(name) is not None) and not is_secret_value(value)


def withheld_variables(environment: Mapping[str, str]) -> list[str]:
    """The variables that a program does not inherit, except those that agentos replaces with its own."""
    return sorted(
        name
        for name, value in environment.items()
        if (is_secret_name(name) or is_secret_value(value))
        and not is_harmless(name, value)
        and not _is_replaced(name.upper())
    )


def _is_replaced(name: str) -> bool:
    """Whether agentos reads the variable itself: its own settings, tracing, and keys with their addresses and models."""
    return name.startswith((*TRACING_PREFIXES, "AGENTOS_")) or _OWN_VARIABLES.fullmatch(name) is not None


def withheld_from_workers(environment: Mapping[str, str]) -> list[str]:
    """The variables that a worker does not inherit because of their name, except those that agentos replaces."""
    return sorted(name for name in environment if is_secret_name(name) and not _is_replaced(name.upper()))


def credential_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that may hold a credential, with their values; settings of agentos are left out."""
    return {
        name: value
        for name, value in environment.items()
        if not name.upper().startswith("AGENTOS_") and (is_secret_name(name) or is_secret_value(value))
    }
