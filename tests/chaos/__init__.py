"""A bounded campaign of kills and freezes against real runs, judged independently of what the runs report."""
