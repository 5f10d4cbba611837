"""The security audit: rules that can be checked on the source and on the package's own functions."""

from . import behaviour, code, locks, portability
from .check import Check, Report, audit
from .secrets_in_files import secrets_in_files

CHECKS = (
    Check("no tracked file contains a secret", secrets_in_files),
    Check("every locked requirement has a hash, and no lock file names a host", locks.problems),
    Check("only config/settings.py reads the environment", code.environment_readers),
    Check("no eval, exec, pickle, shell or unsafe YAML in the package", code.dangerous_calls),
    Check("only the offline-server command and the worker call print", code.prints),
    Check("only the listed modules start processes", code.process_starters),
    Check("files of a project and of the home are opened by regular_files only", code.file_openers),
    Check("only platform_support makes calls that only Linux has", portability.linux_only_calls),
    Check("files in the home are 0600 and folders 0700, whatever the umask", behaviour.open_modes),
    Check("the environment of a worker has no key, no token and no tracing", behaviour.leaking_environment),
    Check("a known secret is redacted in every encoding", behaviour.unredacted_secrets),
    Check("writes stay inside the project, even through symbolic links", behaviour.escaping_writes),
    Check("a home that other users control is refused", behaviour.accepted_homes),
    Check("a verdict that cannot be parsed is never an approval", behaviour.invalid_approvals),
    Check("an id that contains a path is refused", behaviour.unsafe_ids),
)


def run() -> Report:
    return audit("Security audit", CHECKS)
