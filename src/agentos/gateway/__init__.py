"""An HTTP proxy for LLM agents: forwards Gemini, Anthropic and OpenAI calls, each with a key leased from the pool."""
