"""A module that takes a minute to load."""

import time

time.sleep(60)
