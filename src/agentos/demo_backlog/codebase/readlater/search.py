"""Full-text search over the saved articles of an account."""

import re

from .articles import Article, ArticleStore

_TERM = re.compile(r'"([^"]+)"|(\S+)')


def parse_query(query: str) -> list[str]:
    """The words and quoted phrases of a query, in lower case."""
    return [(phrase or word).casefold() for phrase, word in _TERM.findall(query)]


def search_articles(store: ArticleStore, account: int, query: str) -> list[Article]:
    """The articles that contain every term. Scans the whole library."""
    terms = parse_query(query)
    return [article for article in store.all_articles(account) if _matches(article, terms)]


def _matches(article: Article, terms: list[str]) -> bool:
    text = f"{article.title}\n{article.text}".casefold()
    return all(term in text for term in terms)
