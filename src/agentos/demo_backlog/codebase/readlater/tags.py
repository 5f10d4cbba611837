"""Tags of articles."""

import sqlite3

SCHEMA = "CREATE TABLE IF NOT EXISTS tags (article INTEGER, name TEXT, PRIMARY KEY (article, name))"
MAX_TAGS = 20


class TagStore:
    """The only place that reads and writes tags. A tag exists while an article has it."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._database.execute(SCHEMA)

    def add_tag(self, article_id: int, name: str) -> None:
        if len(self.tags_of(article_id)) >= MAX_TAGS:
            raise ValueError(f"an article has at most {MAX_TAGS} tags")
        with self._database:
            self._database.execute("INSERT OR IGNORE INTO tags VALUES (?, ?)", (article_id, name))

    def tags_of(self, article_id: int) -> list[str]:
        rows = self._database.execute("SELECT name FROM tags WHERE article = ? ORDER BY name", (article_id,))
        return [name for (name,) in rows]

    def articles_with(self, name: str) -> list[int]:
        return [
            number for (number,) in self._database.execute("SELECT article FROM tags WHERE name = ?", (name,))
        ]
