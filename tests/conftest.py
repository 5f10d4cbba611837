"""What every test shares: examples may take their time on a busy machine.

The same tree gives the same examples, so that a change is judged by what it changes; `make long` looks for new ones, and
for more of them.
"""

import signal
import threading

from hypothesis import HealthCheck, settings

# Whoever starts the tests in the background has Ctrl-C ignored, and every command they start would inherit that.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("fresh", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("fresh"), derandomize=True, max_examples=50)
settings.load_profile("same")
