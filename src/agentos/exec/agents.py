"""The coding agents that `--agent` knows: the flags and variables that run each of them headless through the
gateway."""

import contextlib
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentos.core.planning.exec_command import has_placeholder
from agentos.regular_files import read_regular
from agentos.storage.files import Folder, private_folder

MAX_SETTINGS_BYTES = 1 << 20
TASK_IN_FILE = "Do the task that is described in the file {item}."


@dataclass(frozen=True, slots=True)
class AgentClient:
    """How to start one agent. `{gateway}` in flags and variables stands for the gateway's address.

    package: what installs the program
    providers: whose APIs it can use; a key for one of them is enough
    connection: flags that lead it to the gateway, since it reads no variable for that
    headless: the subcommand that makes it run without a terminal
    defaults: flags, each with its value; one that the user gives too is left out
    prompt: the flag before the prompt; empty if the prompt is its last argument
    variables: always set
    exec_variables: set by `agentos exec`, which runs several at once, but not for an agent in the user's own terminal
    """

    program: str
    package: str
    providers: tuple[str, ...]
    headless: tuple[str, ...] = ()
    connection: tuple[str, ...] = ()
    defaults: tuple[tuple[str, ...], ...] = ()
    prompt: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    exec_variables: Mapping[str, str] = field(default_factory=dict)

    def command(self, flags: Sequence[str], prompt: str) -> tuple[str, ...]:
        """The command line for a prompt, which may contain placeholders; `flags` are the user's own."""
        given = {flag.partition("=")[0] for flag in flags}
        defaults = [word for default in self.defaults if default[0] not in given for word in default]
        return (self.program, *self.headless, *self.connection, *defaults, *flags, *self.prompt, prompt)

    def environment(self, gateway: str) -> dict[str, str]:
        return {name: value.replace("{gateway}", gateway) for name, value in self.variables.items()}


def _opencode_config() -> str:
    """opencode reads its base URL only from its settings, and expects it to contain the version."""
    paths = {"anthropic": "/anthropic/v1", "openai": "/openai/v1", "google": "/gemini/v1beta"}
    providers = {name: {"options": {"baseURL": f"{{gateway}}{path}"}} for name, path in paths.items()}
    return json.dumps({"provider": providers, "autoupdate": False, "share": "disabled"})


# The defaults let an agent edit the files in its folder and nothing else, because nobody is there to ask.
AGENTS = {
    "claude": AgentClient(
        "claude",
        "npm install -g @anthropic-ai/claude-code",
        ("anthropic",),
        defaults=(("--permission-mode", "acceptEdits"),),
        prompt=("-p",),
        variables={"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"},
    ),
    "codex": AgentClient(
        "codex",
        "npm install -g @openai/codex",
        ("openai",),
        headless=("exec",),
        connection=("-c", 'openai_base_url="{gateway}/openai/v1"'),
        defaults=(("--skip-git-repo-check",), ("--sandbox", "workspace-write")),
    ),
    "gemini": AgentClient(
        "gemini",
        "npm install -g @google/gemini-cli",
        ("gemini",),
        defaults=(("--approval-mode", "auto_edit"),),
        prompt=("-p",),
        variables={"GEMINI_CLI_TRUST_WORKSPACE": "true"},
    ),
    "opencode": AgentClient(
        "opencode",
        "npm install -g opencode-ai",
        ("anthropic", "openai", "gemini"),
        headless=("run",),
        variables={"OPENCODE_CONFIG_CONTENT": _opencode_config(), "OPENCODE_DISABLE_AUTOUPDATE": "1"},
        # Several that create the tables of their common database at the same time fail.
        exec_variables={"OPENCODE_DB": ":memory:"},
    ),
    "aider": AgentClient(
        "aider",
        "pipx install aider-chat",
        ("anthropic", "openai", "gemini"),
        defaults=(
            ("--yes-always",),
            ("--no-check-update",),
            ("--no-show-release-notes",),
            ("--no-analytics",),
            ("--no-pretty",),
        ),
        prompt=("--message",),
        # Its history would become part of the item's branch.
        variables={"AIDER_CHAT_HISTORY_FILE": os.devnull, "AIDER_INPUT_HISTORY_FILE": os.devnull},
    ),
}


def shell_function(client: AgentClient, gateway: str) -> str:
    """A shell function with the program's name that starts it with the flags that lead it to the gateway."""
    if not client.connection:
        return ""
    flags = shlex.join(flag.replace("{gateway}", gateway) for flag in client.connection)
    return f'{client.program}() {{ command {client.program} {flags} "$@"; }}\n'


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """An agent and the arguments that the user passed to it: flags of the agent, then the prompt."""

    name: str
    words: tuple[str, ...]

    @property
    def client(self) -> AgentClient:
        return AGENTS[self.name]

    def command(self, *, items_are_files: bool) -> tuple[str, ...]:
        """The command line, with placeholders. If the prompt is only a file, the task is to do what the file describes."""
        *flags, prompt = self.words
        if prompt.strip() in ("{item}", "{}"):
            prompt = TASK_IN_FILE if items_are_files else "{item}"
        elif not has_placeholder(prompt):
            prompt = f"{prompt} {{item}}"
        return self.client.command(flags, prompt)


def prepare_agent(name: str, folder: Path, user_home: Path) -> dict[str, str]:
    """Write the settings that an agent needs into `folder`; return the variables that make it use them.

    With a base URL in its environment, Gemini CLI chooses a way to authenticate that it then refuses; only its settings
    can override that. Otherwise, the user's own settings are kept.
    """
    if name != "gemini":
        return {}
    settings = _json_object(user_home / ".gemini" / "settings.json")
    security = _mapping(settings.get("security"))
    auth = {**_mapping(security.get("auth")), "selectedType": "gemini-api-key"}
    settings["security"] = {**security, "auth": auth}
    place = private_folder(private_folder(folder / name) / ".gemini")
    with contextlib.suppress(FileExistsError):  # another run is writing the same settings
        Folder(place, file_mode=0o600).write("settings.json", json.dumps(settings, indent=2).encode())
    return {"GEMINI_CLI_HOME": str(folder / name)}


def _json_object(path: Path) -> dict[str, object]:
    try:
        return _mapping(json.loads(read_regular(path, None, MAX_SETTINGS_BYTES)))
    except (OSError, ValueError, RecursionError):
        return {}


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
