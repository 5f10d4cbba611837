"""Detects changes to the credentials file during a run."""

from collections.abc import Callable

from agentos.core.errors import NoCredentials, PreflightError
from agentos.core.protocol.events import CredentialsRejected
from agentos.core.quota.credentials import Credential
from agentos.storage.credentials.reader import CredentialSource


class CredentialWatch:
    """Each call returns the credentials if the file has changed since the last call, and None otherwise.

    `usable` selects the credentials that the run can use. A file that cannot be read gives CredentialsRejected.
    """

    def __init__(
        self,
        source: CredentialSource,
        usable: Callable[[list[Credential]], list[Credential]],
    ) -> None:
        self._source = source
        self._usable = usable
        self._stamp = source.stamp()

    def __call__(self) -> list[Credential] | CredentialsRejected | None:
        stamp = self._source.stamp()
        if stamp == self._stamp:
            return None
        self._stamp = stamp
        try:
            return self._usable(self._source.read())
        except (PreflightError, NoCredentials) as error:
            return CredentialsRejected(str(error).splitlines()[0])
