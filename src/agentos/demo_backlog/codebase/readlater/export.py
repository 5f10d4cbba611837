"""Exports articles as one HTML file."""

from collections.abc import Iterable
from html import escape

from .articles import Article


def export_html(articles: Iterable[Article]) -> str:
    """All articles in one page, each with its title and address."""
    return "\n".join(export_chapter(article) for article in articles)


def export_chapter(article: Article) -> str:
    return f"<h2>{escape(article.title)}</h2><p>{escape(article.url)}</p><div>{escape(article.text)}</div>"
