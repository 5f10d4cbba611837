"""Keeps a server to this machine."""

import asyncio
import ipaddress
from collections.abc import Iterable

LOCAL_NAMES = ("localhost", "::1")


def loopback(host: str) -> str:
    """The address to bind; a ValueError for one that others can reach."""
    address = "127.0.0.1" if host == "localhost" else host
    try:
        if ipaddress.ip_address(address).is_loopback:
            return address
    except ValueError:
        pass
    raise ValueError(f"this server binds loopback addresses only, such as 127.0.0.1; found: {host}")


def names_loopback(headers: Iterable[tuple[str, str]]) -> bool:
    """A page in a browser whose own name was made to point here names another host."""
    host = next((value for name, value in headers if name == "host"), "")
    name = host.strip().rsplit(":", 1)[0].strip("[]")
    return name in LOCAL_NAMES or _is_local_address(name)


def url_of(server: asyncio.Server) -> str:
    host, port = server.sockets[0].getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _is_local_address(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
