"""Where a setting stands in a TOML file."""

import tomllib

# Lines of a file that are looked through for where a setting stands.
MOST_LINES = 2000


def line_in(text: str, name: str) -> int | None:
    """The line where a setting stands; None if it does not, 0 if only the parser can tell.

    The text is read line by line until the parser sees the setting: it begins after the last line
    up to which the text was complete without it.
    """
    lines = text.splitlines()
    if name not in tomllib.loads("\n".join(lines)):
        return None
    complete = 0
    for number in range(1, min(len(lines), MOST_LINES) + 1):
        try:
            found = tomllib.loads("\n".join(lines[:number]))
        except tomllib.TOMLDecodeError:
            continue
        if name in found:
            return complete + 1
        complete = number
    return 0
