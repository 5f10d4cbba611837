"""Values from outside, such as those of environment variables: read without raising, shown at bounded length."""

import unicodedata
from urllib.parse import SplitResult, urlsplit

MAX_SHOWN = 80  # characters
# Shown as nothing although Unicode does not call them format characters: fillers and the like.
_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


def shortened(value: str) -> str:
    return value if len(value) <= MAX_SHOWN else f"{value[:MAX_SHOWN]}… ({len(value):,} characters)"


def split_url(url: str) -> SplitResult | None:
    """The parts of an address; None if it is not one, such as `http://[`, or has a port that is not a number."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts


def is_web_address(url: str) -> bool:
    """Whether this is an http or https address with a host, in printable ASCII without spaces."""
    parts = split_url(url)
    is_clean = all("!" <= character <= "~" for character in url)
    return parts is not None and is_clean and parts.scheme in ("http", "https") and bool(parts.hostname)


def with_visible_characters(text: str) -> str:
    """Characters that reorder text or cannot be seen, such as U+202E, written as `<U+202E>`."""
    if text.isascii():
        return text
    return "".join(f"<U+{ord(part):04X}>" if _is_invisible(part) else part for part in text)


def _is_invisible(character: str) -> bool:
    return character in _BLANKS or unicodedata.category(character) in ("Cf", "Zl", "Zp")
