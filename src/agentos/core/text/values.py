"""Shows values and errors from outside at bounded length, and parses addresses without raising."""

import re
import signal
import sysconfig
import traceback
import unicodedata
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

MAX_SHOWN = 80  # characters
MAX_TITLE = 120  # characters of a title in a list
MAX_DETAILS = 20  # lines of an error's message
_LIBRARIES = (sysconfig.get_path("stdlib"), str(Path(__file__).parents[2]) + "/")
MORE_PROCESSES = "raise the limit of processes (ulimit -u 256)"
# Invisible, although Unicode does not classify them as format characters: fillers and the like.
_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


def shortened(value: str, most: int = MAX_SHOWN) -> str:
    return value if len(value) <= most else f"{value[:most]}… ({len(value):,} characters)"


def natural_order(text: str) -> list[tuple[int, int, str]]:
    """A sort key that compares numbers by their value: item 2 before item 10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.findall(r"\d+|\D+", text)]


def without_accents(text: str) -> str:
    """The text with accented letters replaced by plain ones, where Unicode can decompose them."""
    return "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))


def split_url(url: str) -> SplitResult | None:
    """The parts of an address; None if it is invalid, such as `http://[`, or its port is not a number."""
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


def exit_cause(status: int) -> str:
    """How a process ended. A negative status is the number of the signal that killed it."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal
        return f"killed by signal {-status}"


def too_many_processes(error: Exception) -> str:
    """Why a process or thread could not be started, and what to change."""
    return f"{getattr(error, 'strerror', None) or error}: {MORE_PROCESSES}"


def error_location(error: BaseException) -> str:
    """An error on one line, with the file and line of the user's code that led to it, or else where it was raised."""
    frame = _own_frame(error)
    is_known = isinstance(error, SyntaxError)  # its message names the place
    location = f" ({Path(frame.filename).name}, line {frame.lineno})" if frame and not is_known else ""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}{location}"


def error_details(error: BaseException) -> tuple[str, ...]:
    """The other lines of the error's message, then the line of the user's code, then where a library raised it."""
    frames, own = traceback.extract_tb(error.__traceback__), _own_frame(error)
    details = str(error).splitlines()[1:MAX_DETAILS]
    if own and not _is_library(own.filename):
        details.append(_frame_line(own))
        if frames[-1] is not own and (frames[-1].filename, frames[-1].lineno) != (own.filename, own.lineno):
            last = Path(frames[-1].filename)
            where = f"{last.parent.name}/{last.name}, line {frames[-1].lineno}"
            details.append(f"raised in {where}; -v shows the frames between")
    return tuple(details)


def calling_line(error: BaseException) -> tuple[str, ...]:
    """The line of the user's code that called what raised the error; nothing if the user's code raised it itself."""
    frames, own = traceback.extract_tb(error.__traceback__), _own_frame(error)
    is_called = own and not _is_library(own.filename) and _is_library(frames[-1].filename)
    return (_frame_line(own),) if own and is_called else ()


def _frame_line(frame: traceback.FrameSummary) -> str:
    return f"{frame.filename}, line {frame.lineno}, in {frame.name}: {frame.line}"


def _own_frame(error: BaseException) -> traceback.FrameSummary | None:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _is_library(frame.filename)]
    found = own or list(frames)
    return found[-1] if found else None


def _is_library(filename: str) -> bool:
    """Whether this file belongs to Python, an installed package or agentos rather than to the user."""
    return filename.startswith(("<", *_LIBRARIES)) or "site-packages" in Path(filename).parts


def with_visible_characters(text: str) -> str:
    """Characters that reorder text or cannot be seen, such as U+202E, written as `<U+202E>`."""
    if text.isascii():
        return text
    return "".join(f"<U+{ord(part):04X}>" if _is_invisible(part) else part for part in text)


def _is_invisible(character: str) -> bool:
    return character in _BLANKS or unicodedata.category(character) in ("Cf", "Zl", "Zp")
