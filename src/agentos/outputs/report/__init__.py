"""A run as a document: Markdown, a page, JUnit, a table."""
