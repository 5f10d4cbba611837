"""Search finds words and quoted phrases."""

from pathlib import Path

from readlater.articles import ArticleStore
from readlater.search import parse_query, search_articles


def test_a_query_has_words_and_phrases() -> None:
    assert parse_query('slow "Deep Work"') == ["slow", "deep work"]


def test_an_article_is_found_by_its_text(tmp_path: Path) -> None:
    store = ArticleStore(tmp_path / "articles.db")
    saved = store.save_article(1, "https://example.org", "On trees", "Oaks grow slowly.")
    assert search_articles(store, 1, "oaks") == [saved]
    assert search_articles(store, 2, "oaks") == []
