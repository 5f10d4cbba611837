"""The parallel library, used the way a program would: threads, processes, signals and files."""
