"""Stores saved articles in SQLite."""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

SCHEMA = """
CREATE TABLE IF NOT EXISTS articles (
    id INTEGER PRIMARY KEY, account INTEGER NOT NULL, url TEXT NOT NULL, title TEXT NOT NULL,
    text TEXT NOT NULL, saved_at TEXT NOT NULL, read_at TEXT
)
"""


@dataclass(frozen=True, slots=True)
class Article:
    """One saved article of one account; `read_at` is None while it is unread."""

    id: int
    account: int
    url: str
    title: str
    text: str
    saved_at: str
    read_at: str | None = None


class ArticleStore:
    """The only place that reads and writes articles."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path)
        self._database.execute(SCHEMA)

    def save_article(self, account: int, url: str, title: str, text: str) -> Article:
        saved_at = datetime.now(UTC).isoformat()
        with self._database:
            cursor = self._database.execute(
                "INSERT INTO articles (account, url, title, text, saved_at) VALUES (?, ?, ?, ?, ?)",
                (account, url, title, text, saved_at),
            )
        return Article(cursor.lastrowid or 0, account, url, title, text, saved_at)

    def load_article(self, article_id: int) -> Article | None:
        row = self._database.execute("SELECT * FROM articles WHERE id = ?", (article_id,)).fetchone()
        return Article(*row) if row else None

    def all_articles(self, account: int) -> Iterator[Article]:
        """Every article of an account, newest first."""
        query = "SELECT * FROM articles WHERE account = ? ORDER BY saved_at DESC"
        return (Article(*row) for row in self._database.execute(query, (account,)))

    def unread_articles(self, account: int, limit: int) -> list[Article]:
        unread = (article for article in self.all_articles(account) if article.read_at is None)
        return [article for article, _ in zip(unread, range(limit), strict=False)]

    def remove_article(self, article_id: int) -> None:
        with self._database:
            self._database.execute("DELETE FROM articles WHERE id = ?", (article_id,))
