"""Renders the reader page of an article."""

from html import escape

from .articles import Article
from .settings import AccountSettings

STYLESHEET = "/static/reader.css"


def page_head(title: str) -> str:
    return f'<head><title>{escape(title)}</title><link rel="stylesheet" href="{STYLESHEET}"></head>'


def render_page(article: Article, settings: AccountSettings) -> str:
    """The whole page: a white one, whatever the device prefers."""
    style = f"font-size: {settings.font_size}px; max-width: {settings.page_width}px"
    paragraphs = "".join(f"<p>{escape(text)}</p>" for text in article.text.split("\n\n"))
    return f'<html>{page_head(article.title)}<body style="{style}"><h1>{escape(article.title)}</h1>{paragraphs}</body></html>'


def render_offline_notice() -> str:
    return "<html><body><p>You are offline.</p></body></html>"
