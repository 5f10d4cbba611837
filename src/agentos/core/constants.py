"""What a command line may ask for; small, so that `--help` need not load the core."""

DEFAULT_PARALLEL = 3
MAX_PARALLEL = 10
REVIEWS = ("none", "draft", "verdict", "all")
DISPLAYS = ("auto", "live", "plain", "none")
DAY = 86400.0  # seconds
