"""Limits, defaults and choices that the command line and the settings need without loading the rest of the core."""

DEFAULT_PARALLEL = 3
MAX_PARALLEL = 10  # workers, unless `max_parallel` in the settings says otherwise
HIGHEST_MAX_PARALLEL = 64  # workers
AUTO_PARALLEL = 0  # stands for `--parallel auto` where a number of workers is expected
WORKER_MEMORY = (
    32_000_000  # bytes per worker beyond what it shares; 18 MB measured with the built-in workflows
)
REVIEWS = ("none", "draft", "verdict", "all")
NOTIFICATIONS = ("auto", "none")
DISPLAYS = ("auto", "live", "plain", "none")
DEFAULT_CALL_TIMEOUT = 300.0  # seconds without a token, before the first one and between two
DAY = 86400.0  # seconds
