"""The library: threads, processes, signals and files as a program of its own would use them."""
