"""Whom a call trusts: the certificates, loaded once for all clients of a process and its children."""

import functools
import ssl


@functools.cache
def tls_context() -> ssl.SSLContext | bool:
    """What the SDKs' own HTTP library would load; reading it takes longer than all the rest of a client."""
    try:
        import httpx2
    except ImportError:
        return True
    return httpx2.create_ssl_context()
