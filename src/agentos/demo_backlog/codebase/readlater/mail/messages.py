"""The texts of the mails that are sent."""


def welcome_message(name: str) -> tuple[str, str]:
    """Subject and body of the first mail."""
    return "Welcome", f"Hello {name},\n\nsave your first article with the button in your browser.\n"


def password_message(link: str) -> tuple[str, str]:
    return "Your new password", f"Choose a new password: {link}\n"
