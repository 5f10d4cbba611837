"""OpenAI and compatible servers through the OpenAI SDK."""
