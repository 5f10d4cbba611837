"""Flags, then environment, then the project's file, then the user's: the one reader of all four."""

import contextlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from agentos.config.file import FILE_KEYS, read_file
from agentos.config.trust import NEEDS_TRUST, VettedSettings, is_trusted, vet
from agentos.core.constants import DISPLAYS
from agentos.core.errors import PreflightError, UsageError
from agentos.core.planning.model_roles import resolve_role
from agentos.core.planning.worker_task import RoleModel
from agentos.core.quota.budget import Price, PriceList
from agentos.core.scheduling.run_limits import Limits
from agentos.core.text.secrets import Secret

PROJECT_FILE = "agentos.toml"
ROLES = ("drafter", "reviewer")
ENGINES = ("process", "inline")
GITHUB_URL = "https://api.github.com"
_TRACING = ("LANGSMITH_", "LANGCHAIN_")
_UNTRACED = {"LANGSMITH_TRACING_V2": "false", "LANGGRAPH_STRICT_MSGPACK": "true"}
_SECRETIVE = ("GEMINI_", "GOOGLE_", "ANTHROPIC_", "OPENAI_", *_TRACING, "AGENTOS_")


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for one command, after all sources are read."""

    home: Path
    project: Path
    drafter: tuple[str, ...] = ()
    reviewer: tuple[str, ...] = ()
    budget: float | None = None
    prices: tuple[tuple[str, Price], ...] = ()
    max_iterations: int = 5
    timeout: float = 1800.0
    retries: int = 2
    max_wait: float = 3600.0
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

    def role_models(self, providers: tuple[str, ...]) -> tuple[RoleModel, ...]:
        return tuple(resolve_role(role, getattr(self, role), providers) for role in ROLES)

    def limits(self, prices: PriceList) -> Limits:
        return Limits(self.parallel, self.retries, self.timeout, self.max_wait, self.budget, prices)


@dataclass(frozen=True, slots=True)
class Flags:
    """What was said on the command line; None is not said."""

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
    env = os.environ if environment is None else environment
    home = found_home(env)
    project = (flags.repo or Path.cwd()).absolute()
    if not project.is_dir():
        raise PreflightError(
            f"{project} is not a folder: expected a project folder; name one with --repo PATH"
        )
    user = read_file(home / "config.toml")
    vetted = _project_settings(home, project, user, bool(flags.trust) or _switch(env, "AGENTOS_TRUST"))
    merged = {**user, **vetted.settings}
    said = {name: value for name in FILE_KEYS if (value := getattr(flags, name, None)) is not None}
    return Settings(
        home=home,
        project=project,
        database=Path(env["AGENTOS_WORKFLOW_DB"]).absolute() if env.get("AGENTOS_WORKFLOW_DB") else None,
        credential_limit=_number(env, "AGENTOS_CREDENTIAL_LIMIT"),
        key_concurrency=_number(env, "AGENTOS_KEY_CONCURRENCY"),
        simulate_429=simulated_refusal(env, at_once=2),
        step_summary=Path(env["GITHUB_STEP_SUMMARY"]) if env.get("GITHUB_STEP_SUMMARY") else None,
        engine=_engine(env),
        github_url=_api_url(env),
        held_back=vetted.held_back,
        **{**merged, **_display(env), **said},
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
        raise UsageError(f"invalid {name}={value}: expected 1 or 0")
    return value in ("1", "true", "yes")


def home_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Where the home is, for commands that need nothing else."""
    env = os.environ if environment is None else environment
    named = env.get("AGENTOS_HOME") or "~/.agentos"
    first, _, rest = named.partition("/")
    return (Path(env.get("HOME", "~")).expanduser() / rest if first == "~" else Path(named)).absolute()


def found_home(environment: Mapping[str, str] | None = None) -> Path:
    """The same for commands that look into it: it may be missing, but not be something else."""
    home = home_folder(environment)
    cure = "expected a folder of yours; set AGENTOS_HOME to one"
    try:
        if not stat.S_ISDIR(home.stat().st_mode):
            raise PreflightError(f"the home {home} is not a folder: {cure}")
        os.listdir(home)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise PreflightError(f"the home {home} cannot be used: {error.strerror}; {cure}") from error
    return home


def moved_home(home: Path) -> str:
    """The home, if AGENTOS_HOME has to be said to find it; empty if not."""
    usual = home_folder({"HOME": os.environ.get("HOME", "~")})
    return "" if home == usual else str(home)


def current_folder() -> str:
    """Where the command was typed; empty where that folder is gone."""
    with contextlib.suppress(OSError):
        return os.getcwd()
    return ""


def worker_environment(
    secrets: tuple[Secret, ...] = (), environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """What workers find around them: no key, no tracing."""
    env = os.environ if environment is None else environment
    hidden = [secret.reveal() for secret in secrets]
    kept = {
        name: value
        for name, value in env.items()
        if not is_secretive(name) and not any(secret in value for secret in hidden)
    }
    return {**kept, **_UNTRACED, "PYTHONUNBUFFERED": "1"}


def trace_nothing() -> None:
    """For workers in this very process: what a worker of its own would not find is taken away here."""
    for name in [name for name in os.environ if name.upper().startswith(_TRACING)]:
        del os.environ[name]
    os.environ.update(_UNTRACED)


@dataclass(frozen=True, slots=True)
class TerminalSettings:
    """What the environment says about the terminal; `colours` is None when it says nothing."""

    colours: bool | None
    simple: bool
    rewraps: bool


def terminal_settings(environment: Mapping[str, str] | None = None) -> TerminalSettings:
    env = os.environ if environment is None else environment
    forced = env.get("FORCE_COLOR", "") not in ("", "0")
    return TerminalSettings(
        colours=False if env.get("NO_COLOR") else (True if forced else None),
        simple=env.get("TERM", "dumb") in ("", "dumb") or env.get("CI", "") not in ("", "0", "false"),
        # These keep lines as they are when they become narrower; others wrap them anew.
        rewraps="XTERM_VERSION" not in env and env.get("TERM") not in ("linux", "vt100", "screen"),
    )


def environment() -> Mapping[str, str]:
    return os.environ


def is_secretive(name: str) -> bool:
    upper = name.upper()
    return upper.startswith(_SECRETIVE) or any(
        word in upper for word in ("API_KEY", "TOKEN", "SECRET", "PASSWORD")
    )


def _api_url(env: Mapping[str, str]) -> str:
    """The token is sent there, so it has to be a place that nobody can listen to."""
    url = env.get("GITHUB_API_URL") or GITHUB_URL
    parts = urlsplit(url)
    if parts.scheme == "https" or (
        parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")
    ):
        return url.rstrip("/")
    raise UsageError(f"GITHUB_API_URL={url} is not an address that begins with https://")


def _number(env: Mapping[str, str], name: str) -> int | None:
    value = env.get(name, "")
    if not value:
        return None
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise UsageError(f"{name}={value} is not a whole number over 0")
    return int(value)


def _engine(env: Mapping[str, str]) -> str:
    value = env.get("AGENTOS_ENGINE", "") or "process"
    if value not in ENGINES:
        raise UsageError(f"AGENTOS_ENGINE={value} is no engine; expected {' or '.join(ENGINES)}")
    return value


def _display(env: Mapping[str, str]) -> dict[str, str]:
    value = env.get("AGENTOS_DISPLAY", "")
    if value and value not in DISPLAYS:
        raise UsageError(f"AGENTOS_DISPLAY={value} is no display; expected one of {', '.join(DISPLAYS)}")
    return {"display": value} if value else {}


def simulated_refusal(env: Mapping[str, str], at_once: int) -> int | None:
    """After how many calls one is refused; `at_once` if no number is said."""
    value = env.get("AGENTOS_SIMULATE_429", "").casefold()
    if value in ("", "0", "false", "no"):
        return None
    if value in ("true", "yes"):
        return at_once
    if value.isascii() and value.isdigit():
        return int(value)
    raise UsageError(f"AGENTOS_SIMULATE_429={value} is neither true nor a number of calls")
