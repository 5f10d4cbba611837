"""Settings shared by all tests.

Hypothesis generates the same examples for the same code, so that a change is judged by what it changes;
`make long` generates more, and new ones. No example has a deadline: the machine may be busy.
"""

import signal
import threading

from hypothesis import HealthCheck, settings

# A shell ignores SIGINT in the jobs it starts in the background; the commands under test would inherit that.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("fresh", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("fresh"), derandomize=True, max_examples=50)
settings.load_profile("same")
