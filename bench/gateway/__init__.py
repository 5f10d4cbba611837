"""What a gateway adds to a call, ours beside LiteLLM's proxy."""
