"""Answers a prompt by rules, text in, text out."""

from enum import StrEnum
from functools import lru_cache
from typing import assert_never

from agentos.offline.rules.issue_reviewer import review_issue
from agentos.offline.rules.issue_writer import write_issue
from agentos.offline.rules.lld_reviewer import review_lld
from agentos.offline.rules.lld_writer import write_lld
from agentos.offline.rules.markdown import read_document
from agentos.offline.rules.prompt import DocumentKind, Prompt, read_prompt
from agentos.offline.rules.verdict import BlockingIssue, Severity, as_json

NOTHING = "# Nothing to draft\n\n`offline-rules-1` is a rule machine, not a language model."
UNREADABLE = "The request holds neither an <issue> nor a <brief> on lines of their own."


class Role(StrEnum):
    DRAFT = "draft"
    REVIEW = "review"


# a benchmark asks the same thing over and over, and pays for the server's time
@lru_cache(maxsize=256)
def answer_by_rules(role: Role, text: str) -> str:
    prompt = read_prompt(text)
    match role:
        case Role.DRAFT:
            return draft(prompt)
        case Role.REVIEW:
            return review(prompt)
        case _:
            assert_never(role)


def draft(prompt: Prompt) -> str:
    match prompt.work:
        case DocumentKind.LLD:
            return write_lld(prompt)
        case DocumentKind.ISSUE:
            return write_issue(prompt)
        case DocumentKind.UNKNOWN:
            return f"{NOTHING} {UNREADABLE}\n"
        case _:
            assert_never(prompt.work)


def review(prompt: Prompt) -> str:
    match prompt.work:
        case DocumentKind.LLD:
            return review_lld(prompt)
        case DocumentKind.ISSUE:
            return review_issue(prompt)
        case DocumentKind.UNKNOWN:
            return as_json([BlockingIssue("Document", Severity.CRITICAL, UNREADABLE)])
        case _:
            assert_never(prompt.work)


@lru_cache(maxsize=256)
def item_hint(text: str) -> str:
    """The first heading of the source: tells a reader of the ledger whose call it was."""
    source = read_prompt(text).source
    return read_document(source).title[:120] if source else ""
