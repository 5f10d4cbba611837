"""What an answer must be made of, since no SDK checks it."""


def checked_text(value: object) -> str:
    """A text; anything else is no answer."""
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} where a text was expected")
    return value


def token_count(value: object) -> int:
    """A number of tokens; what is none counts as none."""
    return value if type(value) is int and value > 0 else 0
