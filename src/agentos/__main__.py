"""`python -m agentos`."""

from agentos.cli import main

main()
