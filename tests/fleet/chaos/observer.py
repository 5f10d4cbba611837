"""What the campaign's own triggers in Postgres saw: each is written in the transaction that it records, and never undone."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import psycopg

_TRIGGERS = """
CREATE TABLE chaos_log (
    id bigint GENERATED ALWAYS AS IDENTITY, at timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind text NOT NULL, thread text NOT NULL, detail text NOT NULL, other text NOT NULL DEFAULT ''
);
CREATE FUNCTION chaos_item() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.claim <> OLD.claim THEN
        INSERT INTO chaos_log (kind, thread, detail, other)
            VALUES ('claim', NEW.thread_id, NEW.claim::text, NEW.machine);
    END IF;
    IF NEW.done_at IS DISTINCT FROM OLD.done_at THEN
        INSERT INTO chaos_log (kind, thread, detail) VALUES ('done', NEW.thread_id, NEW.verdict);
    END IF;
    IF NEW.outcome IS NOT NULL AND NEW.outcome::text IS DISTINCT FROM OLD.outcome::text THEN
        INSERT INTO chaos_log (kind, thread, detail, other)
            VALUES ('outcome', NEW.thread_id, NEW.outcome->>'ending', NEW.outcome::text);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER chaos AFTER UPDATE ON agentos_items FOR EACH ROW EXECUTE FUNCTION chaos_item();
CREATE FUNCTION chaos_checkpoint() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos_log (kind, thread, detail, other)
        VALUES ('step', NEW.thread_id, NEW.checkpoint_ns || ':' || (NEW.metadata->>'step'), NEW.checkpoint_id);
    RETURN NULL;
END $$;
CREATE TRIGGER chaos AFTER INSERT ON checkpoints FOR EACH ROW EXECUTE FUNCTION chaos_checkpoint();
CREATE FUNCTION chaos_document() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos_log (kind, thread, detail, other)
        VALUES ('document', NEW.thread_id, NEW.path, coalesce(encode(sha256(NEW.content), 'hex'), 'removed'));
    RETURN NULL;
END $$;
CREATE TRIGGER chaos AFTER INSERT OR UPDATE ON agentos_documents FOR EACH ROW EXECUTE FUNCTION chaos_document();
CREATE FUNCTION chaos_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.event->>'type' = 'item_retried' THEN
        INSERT INTO chaos_log (kind, thread, detail, other)
            VALUES ('retried', NEW.thread_id, NEW.event->>'reason', NEW.event::text);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER chaos AFTER INSERT ON agentos_events FOR EACH ROW EXECUTE FUNCTION chaos_event();
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """One row of the log: `kind` says what `detail` and `other` are."""

    at: datetime
    kind: str
    item: str
    detail: str
    other: str


def install(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(_TRIGGERS)


def observed(url: str) -> list[Seen]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT at, kind, thread, detail, other FROM chaos_log ORDER BY id")
        return [
            Seen(at, kind, thread.partition("/")[2], detail, other)
            for at, kind, thread, detail, other in rows
        ]


def of_kind(seen: list[Seen], kind: str) -> Iterator[Seen]:
    return (entry for entry in seen if entry.kind == kind)
