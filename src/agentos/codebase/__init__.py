"""What a design gets to see of the project's code: collected, indexed, ranked for an issue, and checked against."""
