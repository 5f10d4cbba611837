"""The tables of a fleet, their migrations, and the fence that keeps an outranked worker from writing.

Every table that a worker writes has a column `thread_id` ("project/item") and a trigger. The trigger compares the
connection's setting `agentos.claim` with the claim in the item's row, in the same transaction and with that row locked
FOR SHARE. LangGraph's tables have the trigger too, so its saver needs no change.
"""

from psycopg import Connection
from psycopg.rows import DictRow

from agentos.core.errors import PreflightError
from agentos.storage.postgres.connecting import OUTRANKED

VERSION = 2
_LOCK = 7_311_905_204  # of the migrations; an arbitrary number that nothing else uses
FENCED = (
    *("checkpoints", "checkpoint_blobs", "checkpoint_writes"),
    *("agentos_notes", "agentos_documents", "agentos_events"),
)

# json, not jsonb: it stores any text unchanged, even what jsonb rejects, such as an escaped NUL.
_TABLES = """
CREATE TABLE agentos_version (version int NOT NULL);
CREATE TABLE agentos_submissions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project text NOT NULL,
    workflow text NOT NULL,
    shared json NOT NULL,
    code text,
    submitted_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE agentos_code (digest text PRIMARY KEY, content bytea NOT NULL);
CREATE TABLE agentos_items (
    thread_id text PRIMARY KEY,
    project text NOT NULL,
    item text NOT NULL,
    workflow text NOT NULL,
    submission bigint NOT NULL REFERENCES agentos_submissions (id),
    digest text NOT NULL,
    task json NOT NULL,
    claim bigint[] NOT NULL DEFAULT '{0,0,0}',
    claimed_by text NOT NULL DEFAULT '',
    state text NOT NULL DEFAULT 'submitted',
    machine text NOT NULL DEFAULT '',
    verdict text,
    verdict_digest text,
    outcome json,
    done_at timestamptz
);
CREATE INDEX ON agentos_items (project, state);
CREATE TABLE agentos_notes (
    thread_id text NOT NULL, name text NOT NULL, text text NOT NULL, PRIMARY KEY (thread_id, name)
);
CREATE TABLE agentos_documents (
    thread_id text NOT NULL,
    path text NOT NULL,
    content bytea,
    earlier text[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (thread_id, path)
);
CREATE TABLE agentos_events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    written xid8 NOT NULL DEFAULT pg_current_xact_id(),
    thread_id text NOT NULL,
    at double precision NOT NULL,
    event json NOT NULL
);
CREATE INDEX ON agentos_events (written, id);
"""
# What each version added to the previous one; version 1 is `_TABLES`.
_MIGRATIONS = {2: "CREATE INDEX ON agentos_events (thread_id, written, id)"}
_FENCE = f"""
CREATE OR REPLACE FUNCTION agentos_check_claim(thread text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM agentos_items
        WHERE thread_id = thread AND claim = nullif(current_setting('agentos.claim', true), '')::bigint[]
        FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the claim on % is outranked', thread USING ERRCODE = '{OUTRANKED}';
    END IF;
END $$;
CREATE OR REPLACE FUNCTION agentos_fence() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM agentos_check_claim(OLD.thread_id);
        RETURN OLD;
    END IF;
    PERFORM agentos_check_claim(NEW.thread_id);
    RETURN NEW;
END $$;
"""


def create_tables(connection: Connection[DictRow]) -> bool:
    """Create or migrate everything; returns whether anything changed. Safe to run concurrently."""
    from langgraph.checkpoint.postgres import PostgresSaver

    with connection.transaction():
        # Held until the end of the transaction; without it, the saver's own set-up would race.
        connection.execute("SET LOCAL lock_timeout = '120s'")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        version = table_version(connection)
        if version > VERSION:
            raise _newer(version)
        for statement in PostgresSaver.MIGRATIONS if version == 0 else ():
            # An index cannot be created concurrently inside a transaction, and need not be: the table is empty.
            connection.execute(statement.replace("CONCURRENTLY", "").encode())
        if version == 0:
            connection.cursor().executemany(
                "INSERT INTO checkpoint_migrations (v) VALUES (%s) ON CONFLICT DO NOTHING",
                [(number,) for number in range(len(PostgresSaver.MIGRATIONS))],
            )
            connection.execute(_TABLES)
        for statement in (text for number, text in _MIGRATIONS.items() if number > version):
            connection.execute(statement.encode())
        if version != VERSION:
            connection.execute("DELETE FROM agentos_version")
            connection.execute("INSERT INTO agentos_version VALUES (%s)", (VERSION,))
        connection.execute(_FENCE.encode())
        for table in FENCED:
            connection.execute(
                f"CREATE OR REPLACE TRIGGER agentos_fence BEFORE INSERT OR UPDATE OR DELETE ON {table} "
                "FOR EACH ROW EXECUTE FUNCTION agentos_fence()".encode()
            )
    return version != VERSION


def check_tables(connection: Connection[DictRow]) -> None:
    """Raise PreflightError if the tables are missing or were made by an older or newer agentos."""
    version = table_version(connection)
    if version == 0:
        raise PreflightError(
            "the fleet's tables are missing in Postgres: create them with agentos fleet init"
        )
    if version > VERSION:
        raise _newer(version)
    if version < VERSION:
        raise PreflightError(
            f"the fleet's tables were made by an older agentos (format {version}; this version needs {VERSION}): "
            "migrate them with agentos fleet init"
        )


def table_version(connection: Connection[DictRow]) -> int:
    """The version of the tables; 0 if there are none."""
    found = connection.execute("SELECT to_regclass('agentos_version') IS NOT NULL AS found").fetchone()
    if not found or not found["found"]:
        return 0
    row = connection.execute("SELECT max(version) AS version FROM agentos_version").fetchone()
    return int(row["version"] or 0) if row else 0


def _newer(version: int) -> PreflightError:
    return PreflightError(
        f"the fleet's tables were made by a newer agentos (format {version}; this version reads up to {VERSION}): "
        "upgrade agentos on this machine"
    )
