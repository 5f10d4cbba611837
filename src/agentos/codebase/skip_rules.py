"""Decides which files of a project are kept out of its index: secrets, binaries, generated and huge files."""

import re
from enum import StrEnum

MAX_FILE = 512 * 1024  # bytes; larger files are data, or nobody reads them
_BINARY_PROBE = 8000  # bytes, as git does
_HEADER = 1024  # bytes in which a generator's mark is expected
_LONG_LINE = 5000  # characters on average: minified


class FileSkip(StrEnum):
    SENSITIVE = "may hold secrets"
    BINARY = "binary"
    GENERATED = "generated"
    HUGE = "larger than 512 KiB"
    UNREADABLE = "not readable"


_SECRET_NAMES = re.compile(
    r"(^|/)(\.env(?!\.(example|sample|template|dist)$)(\..*)?|\.?(netrc|pgpass|htpasswd|pypirc|npmrc|dockercfg|git-credentials)|"
    r"id_(rsa|dsa|ecdsa|ed25519)|[^/]*credentials[^/]*\.(json|toml|ya?ml|ini|txt|csv)|"
    r"[^/]*secrets?[^/]*\.(json|toml|ya?ml|ini|txt|env)|service[-_]?account[^/]*\.json|"
    r"[^/]*\.(pem|key|p12|pfx|jks|keystore|kdbx|asc|gpg|tfstate|tfvars|ovpn))$",
    re.IGNORECASE,
)
_SECRET_TEXT = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/=]{40}|\bAKIA[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{35}\b|"
    rb"\bAQ\.[0-9A-Za-z_-]{40}|"
    rb"\bsk-ant-[0-9A-Za-z_-]{24}|\bsk-(?:proj-)?[0-9A-Za-z]{32}|\bgh[pousr]_[0-9A-Za-z]{36}\b|"
    rb"\bgithub_pat_[0-9A-Za-z_]{40}|\bxox[abpr]-[0-9A-Za-z-]{20}|\bglpat-[0-9A-Za-z_-]{20}\b"
)
_GENERATED_NAMES = re.compile(
    r"(^|/)(node_modules|bower_components|vendor|third_party|\.git|\.venv|venv|__pycache__|site-packages|"
    r"\.tox|\.mypy_cache|\.ruff_cache|\.pytest_cache|\.gradle|\.idea)/|"
    r"\.min\.(js|css)$|\.(map|lock|snap|svg|pyc)$|_pb2(_grpc)?\.pyi?$|\.pb\.(go|cc|h)$|\.g\.(cs|dart)$|\.designer\.cs$|"
    r"(^|/)(package-lock\.json|pnpm-lock\.yaml|npm-shrinkwrap\.json|go\.sum|Cargo\.lock|poetry\.lock|uv\.lock)$",
    re.IGNORECASE,
)
_BINARY_NAMES = re.compile(
    r"\.(png|jpe?g|gif|ico|webp|bmp|tiff?|pdf|zip|gz|xz|bz2|zst|7z|tar|jar|war|class|so|o|a|dll|dylib|exe|"
    r"woff2?|ttf|eot|otf|mp[34]|wav|ogg|mov|avi|sqlite3?|db|parquet|npy|npz|pkl|h5|dcm|whl)$",
    re.IGNORECASE,
)
_GENERATED_TEXT = re.compile(
    rb"@generated\b|\bcode generated\b.*\bdo not edit\b|\b(?:auto-?generated|generated) (?:by|from|file|code)\b[^\n]{0,80}"
    rb"(?:do not (?:edit|modify)|by hand)|this file is auto-?generated",
    re.IGNORECASE,
)
# Documents that a workflow reads or writes itself: otherwise an item would be its own best match.
_OWN_DOCUMENTS = re.compile(r"^(issues/[^/]+\.md$|ideas/|docs/(lld|lineage|issues)/|\.agentos/|\.locks/)")


def is_own_document(path: str) -> bool:
    """Whether agentos reads or writes this file itself, as an item or a document."""
    return bool(_OWN_DOCUMENTS.search(path))


def skip_by_name(path: str, size: int) -> FileSkip | None:
    """Why a file is not even opened."""
    if _SECRET_NAMES.search(path):
        return FileSkip.SENSITIVE
    if _GENERATED_NAMES.search(path):
        return FileSkip.GENERATED
    if _BINARY_NAMES.search(path):
        return FileSkip.BINARY
    return FileSkip.HUGE if size > MAX_FILE else None


def skip_by_content(content: bytes) -> FileSkip | None:
    """Why a file that was opened is not indexed."""
    if b"\0" in content[:_BINARY_PROBE]:
        return FileSkip.BINARY
    if _SECRET_TEXT.search(content):
        return FileSkip.SENSITIVE
    is_minified = len(content) > _LONG_LINE and len(content) / (content.count(b"\n") + 1) > _LONG_LINE
    return FileSkip.GENERATED if is_minified or _GENERATED_TEXT.search(content[:_HEADER]) else None
