"""The certificate of a server that other machines use, read again when it is renewed."""

import os
import ssl
from pathlib import Path

from agentos.core.errors import PreflightError


class ServerCertificate:
    """A certificate chain and its private key, in PEM files, as the TLS context of a server.

    `reload_if_changed` uses a renewed certificate for new connections, without a restart.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._stamp = self._read_stamp()
        self._load()

    def reload_if_changed(self) -> bool:
        """Return whether a new certificate was loaded. Raises PreflightError if the changed files cannot be used."""
        stamp = self._read_stamp()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        self._load()
        return True

    def _read_stamp(self) -> tuple[int, ...]:
        found: list[int] = []
        for path in (self._certificate, self._key):
            try:
                status = os.stat(path)
            except OSError as error:
                raise PreflightError(f"cannot read {path}: {error.strerror or error}") from error
            found += [status.st_mtime_ns, status.st_size, status.st_ino]
        return tuple(found)

    def _load(self) -> None:
        try:
            self.context.load_cert_chain(self._certificate, self._key, password=_no_password)
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise PreflightError(
                f"cannot use {self._certificate} with {self._key} ({reason}): expected a certificate chain and "
                "its private key without a password, both in PEM format"
            ) from error


def _no_password() -> str:
    raise ValueError("the key has a password")
