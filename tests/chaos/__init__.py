"""A bounded campaign of kills and freezes against real runs, judged by an independent server."""
