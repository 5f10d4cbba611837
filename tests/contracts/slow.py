"""A module whose import takes a minute."""

import time

time.sleep(60)
