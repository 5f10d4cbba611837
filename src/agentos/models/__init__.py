"""Model providers: the vendors' SDKs behind one interface, each call with a leased key."""

CHARS_PER_TOKEN = 4  # rough estimate for English text
