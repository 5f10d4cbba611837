"""What every test shares: examples may take their time on a busy machine.

The same tree gives the same examples, so that a change is judged by what it changes; `make long` looks for new ones.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("fresh", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("fresh"), derandomize=True)
settings.load_profile("same")
