"""OpenAI and compatible servers, through the OpenAI SDK."""


def ensure_version(base_url: str) -> str:
    """Append /v1 to a base URL that does not end with a version; people often leave it out."""
    if base_url.rstrip("/").rpartition("/")[2].startswith("v"):
        return base_url
    return f"{base_url.rstrip('/')}/v1"
