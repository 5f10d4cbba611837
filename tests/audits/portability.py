"""Calls that only Linux has stand in two modules: beside a portable version of each, or where none is needed."""

import ast
from collections.abc import Iterator

from .tree import modules

PLATFORM_MODULES = ("platform_support.py", "process_memory.py")
LINUX_ONLY = {
    "os": {
        *(
            "eventfd",
            "getrandom",
            "memfd_create",
            "pidfd_open",
            "pipe2",
            "setns",
            "splice",
            "unshare",
            "waitid",
        ),
        *("copy_file_range", "getxattr", "listxattr", "setxattr", "posix_fadvise", "posix_fallocate"),
        *("sched_getaffinity", "sched_setaffinity", "O_PATH", "O_TMPFILE", "O_DIRECT", "P_PIDFD"),
    },
    "select": {"epoll"},
    "selectors": {"EpollSelector"},
    "signal": {
        "pidfd_send_signal",
        "sigtimedwait",
        "sigwaitinfo",
        "SIGPWR",
        "SIGPOLL",
        "SIGRTMIN",
        "SIGRTMAX",
    },
    "socket": {"SO_PEERCRED", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "SOCK_SEQPACKET", "AF_NETLINK", "AF_VSOCK"},
    "time": {"CLOCK_BOOTTIME", "CLOCK_TAI"},
    "fcntl": {"F_SETPIPE_SZ", "F_OFD_SETLK", "F_ADD_SEALS", "F_NOTIFY"},
}
SYSTEM_FOLDERS = ("/proc/", "/sys/", "/proc", "/sys", "/dev/shm")


def linux_only_calls() -> Iterator[str]:
    for name, tree in modules().items():
        found = [
            (getattr(node, "lineno", 0), call) for node in ast.walk(tree) if (call := linux_only_call(node))
        ]
        if name not in PLATFORM_MODULES:
            yield from (f"{name}, line {line}: {call}; use platform_support" for line, call in found)
        elif not found:
            yield f"{name} was expected to make the calls that only Linux has"


def linux_only_call(node: ast.AST) -> str | None:
    """The call that only Linux has, if the node is one."""
    match node:
        case ast.Attribute(value=ast.Name(id=module), attr=name) if name in LINUX_ONLY.get(module, ()):
            return f"{module}.{name}"
        case ast.ImportFrom(module=str(module), names=names):
            found = [alias.name for alias in names if alias.name in LINUX_ONLY.get(module, ())]
            return f"{module}.{found[0]}" if found else None
        case ast.Import(names=names) if any(alias.name.partition(".")[0] == "ctypes" for alias in names):
            return "ctypes"
        # A path, not a sentence that mentions one.
        case ast.Constant(value=str(text)) if text.startswith(SYSTEM_FOLDERS) and " " not in text:
            return f"the path {text}"
    return None
