"""Where servers that speak OpenAI's language are found."""


def ensure_version(base_url: str) -> str:
    """The version belongs in it; people leave it out."""
    if base_url.rstrip("/").rpartition("/")[2].startswith("v"):
        return base_url
    return f"{base_url.rstrip('/')}/v1"
