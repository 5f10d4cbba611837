"""Audits: checks of facts about the source and the documentation."""
