"""Text helpers without I/O: line assembly, redaction of secrets, checks of values from outside."""
