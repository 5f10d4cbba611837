"""What every test shares: examples may take their time on a busy machine."""

from hypothesis import HealthCheck, settings

settings.register_profile("agentos", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("agentos")
