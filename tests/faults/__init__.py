"""What the machine does to a run: full and broken disks, power cuts, limits, clocks, other users."""
