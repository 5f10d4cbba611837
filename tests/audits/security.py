"""0809, the security audit: what can be checked on the tree itself."""

from . import code, locks, manners
from .check import Check, Report, audit
from .secrets_in_files import secrets_in_files

CHECKS = (
    Check("no secret stands in a tracked file", secrets_in_files),
    Check("every locked requirement has a hash, and no lock names a registry host", locks.objections),
    Check("only settings.py reads the environment", code.environment_readers),
    Check("no eval, exec, pickle, shell or unsafe YAML in the package", code.dangerous_calls),
    Check("only the command line and the worker print", code.prints),
    Check("only the places listed here start a process", code.process_starters),
    Check("everything in the home is 0600 or 0700, whatever the umask", manners.open_modes),
    Check("workers find no key, token or tracing in their environment", manners.leaky_environment),
    Check("a known secret is masked in every form it may be written in", manners.unmasked_secrets),
    Check("writes stay inside the project, also past links", manners.escaping_writes),
    Check("a home that others could use is refused", manners.accepted_homes),
    Check("a verdict that cannot be read is never an approval", manners.doubtful_approvals),
    Check("an id with a path in it names no item", manners.unsafe_ids),
)


def run() -> Report:
    return audit("0809 security audit", CHECKS)
