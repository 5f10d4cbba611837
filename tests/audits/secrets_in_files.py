"""Searches tracked files for strings with the format of a known kind of secret."""

import re
from collections.abc import Iterator

from .tree import ROOT, tracked

FORMATS = {
    "a Google API key": re.compile(rb"\b(?:AIza[0-9A-Za-z_-]{35}|AQ\.[0-9A-Za-z_-]{40})"),
    "an Anthropic key": re.compile(rb"sk-ant-[0-9A-Za-z_-]{24,}"),
    "an OpenAI key": re.compile(rb"sk-(?:proj-)?[0-9A-Za-z]{32,}"),
    "a GitHub token": re.compile(rb"(?:gh[pousr]_|github_pat_)[0-9A-Za-z_]{30,}"),
    "an AWS key": re.compile(rb"AKIA[0-9A-Z]{16}"),
    "a Slack token": re.compile(rb"xox[abprs]-[0-9A-Za-z-]{20,}"),
    "a private key": re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[0-9A-Za-z+/=]{32,}"),
}


def secrets_in_files() -> Iterator[str]:
    names = tracked()
    if len(names) < 50:
        yield f"only {len(names)} files were found to search"
    for name in names:
        content = (ROOT / name).read_bytes()
        for kind, pattern in FORMATS.items():
            if found := pattern.search(content):
                line = content.count(b"\n", 0, found.start()) + 1
                yield f"{name}, line {line}: {kind}"
