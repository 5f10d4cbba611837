"""Everything that people and files receive from a run: displays, logs, summaries and reports."""
