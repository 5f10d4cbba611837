"""Parses Markdown into a tree of allowed elements, from which the browser builds nodes; it never parses HTML.

A document may come from a model or from an untrusted repository. Raw HTML in it is shown as text, links may only lead
to the web, and an image is replaced by its description, because loading it would tell its server that somebody is
reading.
"""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

from agentos.core.text.line_assembler import clean
from agentos.core.text.values import with_visible_characters

Node = str | list[object]
"""Text, or an element: its name, its attributes, its children."""
MAX_MARKDOWN = 512 * 1024  # characters; more is shown as plain text
MAX_NESTING = 20
ELEMENTS = {"a", "blockquote", "br", "code", "em", "hr", "li", "ol", "p", "pre", "s", "strong", "ul"}
ELEMENTS |= {"h1", "h2", "h3", "h4", "h5", "h6", "table", "tbody", "td", "th", "thead", "tr"}
LINKS = ("http", "https", "mailto")
FRONT_MATTER = ("---", "+++")
_FIELD = re.compile(r"[A-Za-z_][\w-]* *[:=]")
_PARSER = MarkdownIt(
    "commonmark", {"html": False, "linkify": False, "typographer": False, "maxNesting": MAX_NESTING}
).enable(["table", "strikethrough"])


def parse_markdown(text: str) -> list[Node]:
    """The document as nodes. Never fails: a document that cannot be parsed becomes one block of text."""
    lines = [with_visible_characters(clean(line)) for line in text.splitlines()]
    cleaned = "\n".join(lines)
    if len(cleaned) > MAX_MARKDOWN:
        return [["pre", {}, [cleaned]]]
    end = _front_matter_end(lines)
    try:
        tokens = _PARSER.parse("\n".join(lines[end:]))
    except RecursionError:
        return [["pre", {}, [cleaned]]]
    front: list[Node] = [["pre", {}, ["\n".join(lines[1 : end - 1])]]] if end else []
    return [*front, *_build(iter(tokens))]


def _front_matter_end(lines: list[str]) -> int:
    """The number of lines of front matter, with both fences. Markdown would take YAML for a heading."""
    if len(lines) < 3 or lines[0].rstrip() not in FRONT_MATTER or not _FIELD.match(lines[1]):
        return 0
    closing = (number for number, line in enumerate(lines[1:], 2) if line.rstrip() == lines[0].rstrip())
    return next(closing, 0)


def _build(tokens: Iterator[Token]) -> list[Node]:
    """Build nested nodes from the flat list of opening and closing tokens."""
    nodes: list[Node] = []
    open_lists = [nodes]
    for token in tokens:
        current = open_lists[-1]
        if token.nesting == 1:
            children: list[Node] = []
            if not token.hidden:
                current.append([_name(token), _attributes(token), children])
            open_lists.append(current if token.hidden else children)
        elif token.nesting == -1:
            open_lists.pop()
        else:
            current.extend(_leaf(token))
    return nodes


def _leaf(token: Token) -> list[Node]:
    match token.type:
        case "inline":
            return _build(iter(token.children or ()))
        case "fence" | "code_block":
            return [["pre", {}, [["code", {}, [token.content]]]]]
        case "code_inline":
            return [["code", {}, [token.content]]]
        case "softbreak":
            return ["\n"]
        case "hardbreak":
            return [["br", {}, []]]
        case "hr":
            return [["hr", {}, []]]
        case "image":
            return [f"[image: {token.content or 'no description'}, {token.attrGet('src') or '?'}]"]
    return [token.content] if token.content else []


def _name(token: Token) -> str:
    return token.tag if token.tag in ELEMENTS else "p"


def _attributes(token: Token) -> dict[str, str]:
    """Only a link's target, a list's start and a cell's alignment."""
    if token.tag == "a":
        address = str(token.attrGet("href") or "")
        return {"href": address} if _is_link(address) else {}
    if token.tag == "ol" and str(token.attrGet("start") or "").isdigit():
        return {"start": str(token.attrGet("start"))}
    style = str(token.attrGet("style") or "")
    return {"align": style.removeprefix("text-align:")} if style.startswith("text-align:") else {}


def _is_link(address: str) -> bool:
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme in LINKS and (bool(parts.netloc) or parts.scheme == "mailto")
