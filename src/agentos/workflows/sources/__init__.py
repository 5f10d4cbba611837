"""Sources of items: Markdown files and briefs."""
