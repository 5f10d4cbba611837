"""TLS certificates, loaded once for all clients of a process and its forked children."""

import functools
import ssl


@functools.cache
def tls_context() -> ssl.SSLContext | bool:
    """The context that the SDKs' HTTP library would create for each client; loading it dominates a client's start."""
    try:
        import httpx2
    except ImportError:
        return True
    return httpx2.create_ssl_context()
