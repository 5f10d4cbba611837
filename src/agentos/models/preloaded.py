"""Reads the certificates when it is imported, so that workers, which are forked, need not."""

from agentos.models.tls import tls_context

tls_context()
