"""What running items side by side costs: ours beside what else people use for it."""
