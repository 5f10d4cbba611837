"""The pool of keys beside what a user would pick instead, counted at the server."""
