"""Exports of a run: Markdown, HTML, JUnit and CSV reports, and the comparison of two runs."""
