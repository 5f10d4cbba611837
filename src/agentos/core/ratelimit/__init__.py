"""Rate limiting: windows, limiters, estimators, cooldowns and circuit breakers."""
