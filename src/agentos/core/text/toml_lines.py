"""Line numbers of settings in a TOML file, for error messages."""

import tomllib

MAX_LINES = 2000  # lines of a file that are searched


def line_in(text: str, name: str) -> int | None:
    """Return the line of a top-level setting; None if it is not set, 0 if its line cannot be determined.

    The text is parsed line by line until the setting appears; it starts after the last line up to which the
    text was valid without it.
    """
    lines = text.splitlines()
    if name not in tomllib.loads("\n".join(lines)):
        return None
    last_valid = 0
    for number in range(1, min(len(lines), MAX_LINES) + 1):
        try:
            settings = tomllib.loads("\n".join(lines[:number]))
        except tomllib.TOMLDecodeError:
            continue
        if name in settings:
            return last_valid + 1
        last_valid = number
    return 0
