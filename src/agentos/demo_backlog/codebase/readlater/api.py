"""The HTTP endpoints, as functions of a request."""

from collections.abc import Callable
from dataclasses import dataclass

from .articles import ArticleStore
from .search import search_articles


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    account: int
    parameters: dict[str, str]


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: object = None


def save(store: ArticleStore, request: Request) -> Response:
    wanted = request.parameters
    article = store.save_article(
        request.account, wanted["url"], wanted.get("title", ""), wanted.get("text", "")
    )
    return Response(201, article.id)


def search(store: ArticleStore, request: Request) -> Response:
    found = search_articles(store, request.account, request.parameters["q"])
    return Response(200, [article.id for article in found])


ROUTES: dict[tuple[str, str], Callable[[ArticleStore, Request], Response]] = {
    ("POST", "/articles"): save,
    ("GET", "/search"): search,
}


def handle_request(store: ArticleStore, request: Request) -> Response:
    endpoint = ROUTES.get((request.method, request.path))
    return endpoint(store, request) if endpoint else Response(404)
