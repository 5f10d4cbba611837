"""Rate limiting of API calls: usage windows, rate limiter, rate estimators, cooldowns, circuit breakers."""
