"""Reads the certificates when it is imported, so that workers, which are forked, need not."""

from agentos.models.trust import trusted

trusted()
