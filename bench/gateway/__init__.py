"""Benchmark: latency that our gateway and LiteLLM's proxy add to a call."""
