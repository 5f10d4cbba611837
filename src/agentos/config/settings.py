"""Settings: flags, then environment, then the project's file, then the user's file.

The only module that reads the environment.
"""

import contextlib
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agentos.config.file import FILE_KEYS, read_file
from agentos.config.project import PROJECT_FILE, find_project, working_folder
from agentos.config.trust import NEEDS_TRUST, VettedSettings, is_trusted, vet
from agentos.core.constants import DISPLAYS
from agentos.core.errors import PreflightError, UsageError
from agentos.core.quota.budget import Limits, Price, PriceList
from agentos.core.text.secrets import Secret
from agentos.core.text.values import shortened, split_url

ENGINES = ("process", "inline")
_NUMBER = re.compile(r"[0-9]{1,9}")
GITHUB_URL = "https://api.github.com"
_TRACING_PREFIXES = ("LANGSMITH_", "LANGCHAIN_")
_NO_TRACING = {"LANGSMITH_TRACING_V2": "false", "LANGGRAPH_STRICT_MSGPACK": "true"}
_SECRET_PREFIXES = ("GEMINI_", "GOOGLE_", "ANTHROPIC_", "OPENAI_", *_TRACING_PREFIXES, "AGENTOS_")
_SECRET_WORDS = ("API_KEY", "TOKEN", "SECRET", "PASSWORD")


@dataclass(frozen=True, slots=True)
class Settings:
    """The effective settings of one command."""

    home: Path
    project: Path
    drafter: tuple[str, ...] = ()
    reviewer: tuple[str, ...] = ()
    budget: float | None = None
    prices: tuple[tuple[str, Price], ...] = ()
    max_iterations: int = 5
    timeout: float = 1800.0  # seconds
    retries: int = 2
    max_wait: float = 3600.0  # seconds
    parallel: int = 1
    keep_runs: int = 50
    review: str = "none"
    display: str = "auto"
    github: str = ""
    github_url: str = GITHUB_URL
    database: Path | None = None
    credential_limit: int | None = None
    key_concurrency: int | None = None
    simulate_429: int | None = None
    step_summary: Path | None = None
    engine: str = "process"
    held_back: tuple[str, ...] = ()

    def limits(self, prices: PriceList) -> Limits:
        return Limits(self.parallel, self.retries, self.timeout, self.max_wait, self.budget, prices)


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags of a command line; None means not given."""

    repo: Path | None = None
    max_iterations: int | None = None
    timeout: float | None = None
    retries: int | None = None
    max_wait: float | None = None
    parallel: int | None = None
    budget: float | None = None
    review: str | None = None
    display: str | None = None
    trust: bool | None = None


def read_settings(flags: Flags, environment: Mapping[str, str] | None = None) -> Settings:
    """Merge all sources; raises PreflightError or UsageError for a value that cannot be used."""
    env = os.environ if environment is None else environment
    home = usable_home(env)
    project = flags.repo.absolute() if flags.repo else find_project(working_folder(), env)
    if not project.is_dir():
        raise PreflightError(
            f"{project} is not a folder: expected a project folder; name one with --repo PATH"
        )
    user = read_file(home / "config.toml")
    vetted = _project_settings(home, project, user, bool(flags.trust) or _switch(env, "AGENTOS_TRUST"))
    merged = {**user, **vetted.settings}
    given = {name: value for name in FILE_KEYS if (value := getattr(flags, name, None)) is not None}
    return Settings(
        home=home,
        project=project,
        database=Path(env["AGENTOS_WORKFLOW_DB"]).absolute() if env.get("AGENTOS_WORKFLOW_DB") else None,
        credential_limit=_number(env, "AGENTOS_CREDENTIAL_LIMIT"),
        key_concurrency=_number(env, "AGENTOS_KEY_CONCURRENCY"),
        simulate_429=calls_before_429(env, default=2),
        step_summary=Path(env["GITHUB_STEP_SUMMARY"]) if env.get("GITHUB_STEP_SUMMARY") else None,
        engine=_engine(env),
        github_url=_api_url(env),
        held_back=vetted.held_back,
        **{**merged, **_display(env), **given},
    )


def home_folder(environment: Mapping[str, str] | None = None) -> Path:
    """The path of the home, whether it exists or not."""
    env = os.environ if environment is None else environment
    named = env.get("AGENTOS_HOME") or "~/.agentos"
    first, _, rest = named.partition("/")
    return (Path(env.get("HOME", "~")).expanduser() / rest if first == "~" else Path(named)).absolute()


def usable_home(environment: Mapping[str, str] | None = None) -> Path:
    """The path of the home; raises PreflightError if something is there that is not a readable folder."""
    home = home_folder(environment)
    fix = "expected a folder of yours; set AGENTOS_HOME to one"
    try:
        if not stat.S_ISDIR(home.stat().st_mode):
            raise PreflightError(f"the home {home} is not a folder: {fix}")
        os.listdir(home)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise PreflightError(f"the home {home} cannot be used: {error.strerror}; {fix}") from error
    return home


def moved_home(home: Path) -> str:
    """The home if AGENTOS_HOME is needed to find it, else empty."""
    default = home_folder({"HOME": os.environ.get("HOME", "~")})
    return "" if home == default else str(home)


def current_folder() -> str:
    """The current folder; empty if it no longer exists."""
    with contextlib.suppress(OSError):
        return os.getcwd()
    return ""


def worker_environment(
    secrets: tuple[Secret, ...] = (), environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of workers: no keys, no tracing."""
    env = os.environ if environment is None else environment
    revealed = [secret.reveal() for secret in secrets]
    kept = {
        name: value
        for name, value in env.items()
        if not is_secret_name(name) and not any(secret in value for secret in revealed)
    }
    return {**kept, **_NO_TRACING, "PYTHONUNBUFFERED": "1"}


def disable_tracing() -> None:
    """Disable tracing in this process, for workers that are its threads."""
    for name in [name for name in os.environ if name.upper().startswith(_TRACING_PREFIXES)]:
        del os.environ[name]
    os.environ.update(_NO_TRACING)


@dataclass(frozen=True, slots=True)
class TerminalInfo:
    """What the environment says about the terminal.

    colours: forced on or off; None if the environment does not say.
    is_simple: no cursor movement: a dumb terminal or a CI log.
    reflows: whether lines are wrapped anew when the terminal becomes narrower.
    """

    colours: bool | None = None
    is_simple: bool = False
    reflows: bool = True


def terminal_info(environment: Mapping[str, str] | None = None) -> TerminalInfo:
    env = os.environ if environment is None else environment
    is_forced = env.get("FORCE_COLOR", "") not in ("", "0")
    return TerminalInfo(
        colours=False if env.get("NO_COLOR") else (True if is_forced else None),
        is_simple=env.get("TERM", "dumb") in ("", "dumb") or env.get("CI", "") not in ("", "0", "false"),
        reflows="XTERM_VERSION" not in env and env.get("TERM") not in ("linux", "vt100", "screen"),
    )


def wants_traceback() -> bool:
    """Whether errors that nobody expected are shown with their traceback."""
    return os.environ.get("AGENTOS_DEBUG", "").casefold() not in ("", "0", "false", "no")


def environment() -> Mapping[str, str]:
    return os.environ


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name is likely to hold a secret, or must not reach a worker."""
    upper = name.upper()
    return upper.startswith(_SECRET_PREFIXES) or any(word in upper for word in _SECRET_WORDS)


def calls_before_429(env: Mapping[str, str], default: int) -> int | None:
    """The number of calls before the simulated 429; `default` for "true", None for no simulation."""
    value = env.get("AGENTOS_SIMULATE_429", "").casefold()
    if value in ("", "0", "false", "no"):
        return None
    if value in ("true", "yes"):
        return default
    if _NUMBER.fullmatch(value):
        return int(value)
    raise UsageError(
        f"invalid AGENTOS_SIMULATE_429={shortened(value)}: expected true, false or a number of calls"
    )


def _project_settings(home: Path, project: Path, user: dict[str, object], trusted: bool) -> VettedSettings:
    """The settings of the project file that hold for this user."""
    path = project / PROJECT_FILE
    found = read_file(path, project)
    if not trusted and not NEEDS_TRUST.keys().isdisjoint(found) and not is_trusted(home, project, path):
        from agentos.config.prices import price_list

        own = user.get("prices", ())
        assert isinstance(own, tuple)
        vetted = vet(found, user, price_list(own).of)
    else:
        vetted = VettedSettings(found)
    if "prices" in user and "prices" in vetted.settings:
        prices = {**dict(user["prices"]), **dict(vetted.settings["prices"])}  # type: ignore[call-overload]
        vetted.settings["prices"] = tuple(prices.items())
    return vetted


def _switch(env: Mapping[str, str], name: str) -> bool:
    value = env.get(name, "").casefold()
    if value not in ("", "0", "false", "no", "1", "true", "yes"):
        raise UsageError(f"invalid {name}={shortened(value)}: expected 1 or 0")
    return value in ("1", "true", "yes")


def _api_url(env: Mapping[str, str]) -> str:
    """The token is sent there, so it has to be HTTPS or this machine."""
    url = env.get("GITHUB_API_URL") or GITHUB_URL
    parts = split_url(url)
    if parts and (
        parts.scheme == "https"
        or (parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost"))
    ):
        return url.rstrip("/")
    raise UsageError(
        f"invalid GITHUB_API_URL={shortened(url)}: expected an address that begins with https://"
    )


def _number(env: Mapping[str, str], name: str) -> int | None:
    value = env.get(name, "")
    if not value:
        return None
    if not _NUMBER.fullmatch(value) or int(value) < 1:
        raise UsageError(f"invalid {name}={shortened(value)}: expected a whole number from 1 to 999999999")
    return int(value)


def _engine(env: Mapping[str, str]) -> str:
    value = env.get("AGENTOS_ENGINE", "") or "process"
    if value not in ENGINES:
        raise UsageError(f'invalid AGENTOS_ENGINE={shortened(value)}: choose "process" or "inline"')
    return value


def _display(env: Mapping[str, str]) -> dict[str, str]:
    value = env.get("AGENTOS_DISPLAY", "")
    if value and value not in DISPLAYS:
        raise UsageError(f"invalid AGENTOS_DISPLAY={shortened(value)}: choose one of {', '.join(DISPLAYS)}")
    return {"display": value} if value else {}
