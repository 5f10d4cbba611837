"""A connection for a program that continues while Postgres restarts or has no connection free."""

from collections.abc import Callable

from psycopg import Connection, OperationalError
from psycopg.rows import DictRow

from agentos.core.errors import PreflightError
from agentos.core.text.secrets import Secret
from agentos.storage.postgres.connecting import address_text, connect, has_none_free, reconnect, refusal_text

RETRY_INTERVAL = 1.0  # seconds


class LastingConnection:
    """A connection that reconnects when it breaks. Not thread-safe.

    `name` is its application name in Postgres. `say` receives one message when reconnecting fails, with the reason.
    """

    def __init__(self, conninfo: Secret, name: str, say: Callable[[str], None]) -> None:
        self._conninfo = conninfo
        self._name = name
        self._say = say
        self._is_waiting = False
        self._connection: Connection[DictRow] | None = None

    @property
    def connection(self) -> Connection[DictRow]:
        if self._connection is None:
            self._connection = connect(self._conninfo, self._name)
        elif self._connection.closed:
            try:
                self._connection = reconnect(self._conninfo, self._name)
            except OperationalError as error:
                self._say_once(refusal_text(error) or "no answer")
                raise
            self._is_waiting = False
        return self._connection

    def wait_for_connection(self, check: Callable[[], None], pause: Callable[[float], None]) -> None:
        """Connect. While Postgres has no free connection, say so once and wait; `check` may raise an error to give up."""
        while True:
            try:
                self.connection  # noqa: B018 - connects
                return
            except PreflightError as error:
                if not has_none_free(error.__cause__):
                    raise
                self._say_once(refusal_text(error))
            check()
            pause(RETRY_INTERVAL)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _say_once(self, reason: str) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            place = address_text(self._conninfo)
            self._say(f"{place} has no connection for this worker ({reason}). Waiting for one...")
