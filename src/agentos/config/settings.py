"""Settings, merged from flags, environment, the project's file and the user's file, in this order of precedence.

This is the only module that reads the environment.
"""

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agentos.config.file import FILE_KEYS, FleetSettings, NamedValue, OwnRole, read_file
from agentos.config.project import PROJECT_FILE, find_project, working_folder
from agentos.config.secret_variables import TRACING_PREFIXES, is_harmless, is_secret_name, is_secret_value
from agentos.config.trust import NEEDS_TRUST, VettedSettings, is_trusted, vet
from agentos.core.constants import DEFAULT_CALL_TIMEOUT, DISPLAYS, HIGHEST_MAX_PARALLEL, MAX_PARALLEL
from agentos.core.errors import PreflightError, UsageError
from agentos.core.quota.budget import Limits, Price, PriceList
from agentos.core.text.secrets import Secret
from agentos.core.text.values import shortened, split_url

_TERMS_WITH_TITLE = (
    "xterm",
    "tmux",
    "screen",
    "rxvt",
    "alacritty",
    "foot",
    "konsole",
    "gnome",
    "vte",
    "wezterm",
    "iterm",
)
ENGINES = ("process", "inline")
PORTABLE = "AGENTOS_PORTABLE"
DEFAULT_OUTPUT_TOKENS = 16_000  # of one answer, thoughts included
_NUMBER = re.compile(r"[0-9]{1,9}")
DEBUG = "AGENTOS_DEBUG"
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
GITHUB_URL = "https://api.github.com"
CLIENT_KEYS = ("GEMINI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY")
"""The variables in which the vendors' SDKs look for a key."""
PLACEHOLDER_KEY = "no-key-of-this-provider-in-the-run"
_NO_FLEET = FleetSettings()
_NO_TRACING = {"LANGSMITH_TRACING_V2": "false", "LANGGRAPH_STRICT_MSGPACK": "true"}


@dataclass(frozen=True, slots=True)
class Settings:
    """The effective settings of one command."""

    home: Path
    project: Path
    drafter: tuple[str, ...] = ()
    reviewer: tuple[str, ...] = ()
    roles: tuple[OwnRole, ...] = ()
    budget: float | None = None
    prices: tuple[tuple[str, Price], ...] = ()
    max_output_tokens: tuple[NamedValue, ...] = (NamedValue("", DEFAULT_OUTPUT_TOKENS),)
    effort: tuple[NamedValue, ...] = ()
    call_timeout: tuple[NamedValue, ...] = (
        NamedValue("", int(DEFAULT_CALL_TIMEOUT)),
    )  # seconds without a token
    max_iterations: int = 5
    timeout: float = 1800.0  # seconds
    retries: int = 2
    max_wait: float = 3600.0  # seconds
    parallel: int = 1
    max_parallel: int = MAX_PARALLEL
    keep_runs: int = 50
    review: str = "none"
    display: str = "auto"
    on_done: str = ""
    notify: str = "auto"
    github: str = ""
    code_tokens: int = 8000
    context: tuple[str, ...] = ()
    github_url: str = GITHUB_URL
    database: Path | None = None
    credential_limit: int | None = None
    key_concurrency: int | None = None
    simulate_429: int | None = None
    step_summary: Path | None = None
    engine: str = "process"
    fleet: FleetSettings = _NO_FLEET
    held_back: tuple[str, ...] = ()

    def limits(self, prices: PriceList) -> Limits:
        longest_call = max(self.call_timeouts().values())
        return Limits(
            self.parallel,
            self.retries,
            self.timeout,
            self.max_wait,
            self.budget,
            prices,
            longest_call,
            self.max_parallel,
        )

    def call_timeouts(self) -> dict[str, float]:
        """How many seconds a call may go without a token, by model; "" stands for all other models."""
        default = {"": DEFAULT_CALL_TIMEOUT}
        return default | {entry.name: float(entry.value) for entry in self.call_timeout}

    def output_limit(self, role: str) -> int:
        """The most tokens that one answer of the role may have."""
        found = _for_role(self.max_output_tokens, role)
        return found if isinstance(found, int) else DEFAULT_OUTPUT_TOKENS

    def effort_of(self, role: str) -> str:
        """The reasoning effort of the role's model; empty for the provider's default."""
        return str(_for_role(self.effort, role) or "")


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
    on_done: str | None = None
    context: tuple[str, ...] | None = None
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
    if flags.context:
        given["context"] = (*merged.get("context", ()), *flags.context)  # type: ignore[misc]
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
        **{**merged, **_display(env), **_max_parallel(env), **given},
    )


def _for_role(entries: tuple[NamedValue, ...], role: str) -> int | str | None:
    """The value for the role, else the one for all roles, else None."""
    found = {entry.name: entry.value for entry in entries}
    return found.get(role, found.get(""))


def home_folder(environment: Mapping[str, str] | None = None) -> Path:
    """The path of the home, whether it exists or not."""
    env = os.environ if environment is None else environment
    named = env.get("AGENTOS_HOME") or "~/.agentos"
    first, _, rest = named.partition("/")
    return (Path(env.get("HOME", "~")).expanduser() / rest if first == "~" else Path(named)).absolute()


def set_home(home: Path) -> None:
    """Use this home in the rest of the process, as if AGENTOS_HOME had been set to it."""
    os.environ["AGENTOS_HOME"] = str(home)


def usable_home(environment: Mapping[str, str] | None = None) -> Path:
    """The path of the home, which may not exist yet. Raises PreflightError if it is not a readable folder."""
    home = home_folder(environment)
    fix = "expected a folder that you own; set AGENTOS_HOME to one"
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
    """The home if a command needs AGENTOS_HOME to find it; empty if it is the default."""
    default = home_folder({"HOME": os.environ.get("HOME", "~")})
    return "" if home == default else str(home)


_reader_folder: str | None = None


def enter_folder(folder: str) -> None:
    """Change to another folder to run a command there, while the user who reads its output remains in this one."""
    global _reader_folder
    here = current_folder()
    os.chdir(folder)
    _reader_folder = here


def reader_folder() -> str | None:
    """Where the user will type the commands that we print; None if that folder was deleted."""
    return _reader_folder or current_folder() or None


def current_folder() -> str:
    """The current folder; empty if it no longer exists."""
    with contextlib.suppress(OSError):
        return os.getcwd()
    return ""


def worker_environment(
    secrets: tuple[Secret, ...] = (), environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of workers, without keys and with tracing switched off."""
    env = os.environ if environment is None else environment
    revealed = [secret.reveal() for secret in secrets]
    kept = {
        name: value
        for name, value in env.items()
        if name == DEBUG or (not is_secret_name(name) and not any(secret in value for secret in revealed))
    }
    portable = {PORTABLE: env[PORTABLE]} if env.get(PORTABLE) else {}
    return {**kept, **portable, **_NO_TRACING, **direct_loopback(env), "PYTHONUNBUFFERED": "1"}


def program_environment(
    secrets: tuple[Secret, ...], environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of programs under `agentos exec`: like that of workers, but without credential-like values."""
    env = os.environ if environment is None else environment
    found = {name: value for name, value in env.items() if is_harmless(name, value)}
    found |= worker_environment(secrets, env)
    revealed = [secret.reveal() for secret in secrets]
    return {
        name: value
        for name, value in found.items()
        if not is_secret_value(value) and not any(secret in value for secret in revealed)
    }


def user_home() -> Path:
    """The user's home folder, where other programs keep their settings."""
    return Path(os.environ.get("HOME") or "~").expanduser()


def direct_loopback(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that keep calls to this machine away from a proxy, which would see keys and prompts."""
    if not any(name.casefold() in ("http_proxy", "https_proxy", "all_proxy") for name in env):
        return {}
    direct = env.get("no_proxy") or env.get("NO_PROXY") or ""
    hosts = dict.fromkeys([*(host.strip() for host in direct.split(",") if host.strip()), *LOOPBACK_HOSTS])
    return dict.fromkeys(("NO_PROXY", "no_proxy"), ",".join(hosts))


def reach_loopback_directly() -> None:
    """Keep calls that this process makes to this machine away from a proxy."""
    os.environ.update(direct_loopback(os.environ))


@contextlib.contextmanager
def placeholder_keys() -> Iterator[None]:
    """Set placeholder keys while a user's module is loaded: SDK clients that it creates would refuse to start without one.

    In a worker, the variables lead to the run's gateway. The coordinator only asks a workflow for its items and never uses
    a key. A call to a provider without a key sends the placeholder, whose text says what is missing.
    """
    missing = [name for name in CLIENT_KEYS if not os.environ.get(name)]
    os.environ.update(dict.fromkeys(missing, PLACEHOLDER_KEY))
    try:
        yield
    finally:
        for name in missing:
            if os.environ.get(name) == PLACEHOLDER_KEY:
                del os.environ[name]


def set_variables(variables: Mapping[str, str]) -> None:
    """Set environment variables of this process, which must be a worker."""
    os.environ.update(variables)


def disable_tracing() -> None:
    """Disable tracing in this process, for workers that are its threads."""
    for name in [name for name in os.environ if name.upper().startswith(TRACING_PREFIXES)]:
        del os.environ[name]
    os.environ.update(_NO_TRACING)
    reach_loopback_directly()


@dataclass(frozen=True, slots=True)
class TerminalInfo:
    """What the environment says about the terminal.

    colours: forced on or off; None if the environment does not say.
    is_simple: no cursor movement: a dumb terminal or a CI log.
    reflows: whether lines are rewrapped when the terminal becomes narrower.
    titles: whether its title can be set, and restored.
    progress: whether it shows progress, in the task bar or a tab (OSC 9;4).
    bell: whether it should ring when a long run ends.
    """

    colours: bool | None = None
    is_simple: bool = False
    reflows: bool = True
    titles: bool = False
    progress: bool = False
    bell: bool = True

    def without_notifications(self) -> "TerminalInfo":
        return replace(self, titles=False, progress=False, bell=False)


def terminal_info(environment: Mapping[str, str] | None = None) -> TerminalInfo:
    env = os.environ if environment is None else environment
    is_forced = env.get("FORCE_COLOR", "") not in ("", "0")
    is_simple = env.get("TERM", "dumb") in ("", "dumb") or env.get("CI", "") not in ("", "0", "false")
    return TerminalInfo(
        colours=False if env.get("NO_COLOR") else (True if is_forced else None),
        is_simple=is_simple,
        reflows="XTERM_VERSION" not in env and env.get("TERM") not in ("linux", "vt100", "screen"),
        titles=not is_simple and env.get("TERM", "").startswith(_TERMS_WITH_TITLE),
        progress=not is_simple and _shows_progress(env),
        bell=not is_simple,
    )


def _shows_progress(env: Mapping[str, str]) -> bool:
    """Only terminals known to show it: others display the same sequence as a notification. tmux and screen drop it."""
    if env.get("TERM", "").startswith(("tmux", "screen")):
        return False
    vte = env.get("VTE_VERSION", "")
    return (
        "WT_SESSION" in env
        or env.get("ConEmuANSI") == "ON"
        or env.get("TERM_PROGRAM") in ("ghostty", "WezTerm")
        or (vte.isascii() and vte.isdigit() and int(vte) >= 7900)
    )


@dataclass(frozen=True, slots=True)
class FleetAccess:
    """What the environment says about a fleet: the connection string of Postgres, the gateway and its token."""

    postgres: Secret
    gateway: str
    token: Secret | None


def fleet_access(environment: Mapping[str, str] | None = None) -> FleetAccess:
    """Read the access to a fleet. With an empty connection string, libpq uses its own variables and files (PGHOST, ...)."""
    env = os.environ if environment is None else environment
    token = env.get("AGENTOS_GATEWAY_TOKEN", "").strip()
    return FleetAccess(
        Secret(env.get("AGENTOS_POSTGRES", "")),
        env.get("AGENTOS_GATEWAY", "").rstrip("/"),
        Secret(token) if token else None,
    )


def wants_traceback() -> bool:
    """Whether unexpected errors are shown with their traceback."""
    return os.environ.get(DEBUG, "").casefold() not in ("", "0", "false", "no")


def show_tracebacks() -> None:
    """Act as with `AGENTOS_DEBUG=1`, in this process and those that it starts."""
    os.environ[DEBUG] = "1"


def wants_portable_calls() -> bool:
    """Whether to avoid Linux-only calls, as on another system."""
    return _switch(os.environ, PORTABLE)


def environment() -> Mapping[str, str]:
    return os.environ


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
    """The settings of the project file that apply for this user."""
    path = project / PROJECT_FILE
    found = read_file(path, project)
    if not trusted and not NEEDS_TRUST.keys().isdisjoint(found) and not is_trusted(home, project, path):
        from agentos.config.file import price_list

        own = user.get("prices", ())
        assert isinstance(own, tuple)
        vetted = vet(found, user, price_list(own).of)
    else:
        vetted = VettedSettings(found)
    if "prices" in user and "prices" in vetted.settings:
        prices = {**dict(user["prices"]), **dict(vetted.settings["prices"])}  # type: ignore[call-overload]
        vetted.settings["prices"] = tuple(prices.items())
    own, shared = user.get("fleet"), vetted.settings.get("fleet")
    if isinstance(own, FleetSettings) and isinstance(shared, FleetSettings):
        vetted.settings["fleet"] = FleetSettings(shared.project or own.project, shared.gateway or own.gateway)
    return vetted


def _switch(env: Mapping[str, str], name: str) -> bool:
    value = env.get(name, "").casefold()
    if value not in ("", "0", "false", "no", "1", "true", "yes"):
        raise UsageError(f"invalid {name}={shortened(value)}: expected 1 or 0")
    return value in ("1", "true", "yes")


def _api_url(env: Mapping[str, str]) -> str:
    """The GitHub API's address. The token is sent there, so it must be HTTPS or on this machine."""
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


def _number(env: Mapping[str, str], name: str, most: int = 999999999) -> int | None:
    value = env.get(name, "")
    if not value:
        return None
    if not _NUMBER.fullmatch(value) or not 1 <= int(value) <= most:
        raise UsageError(f"invalid {name}={shortened(value)}: expected a whole number from 1 to {most}")
    return int(value)


def _max_parallel(env: Mapping[str, str]) -> dict[str, int]:
    value = _number(env, "AGENTOS_MAX_PARALLEL", HIGHEST_MAX_PARALLEL)
    return {} if value is None else {"max_parallel": value}


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
