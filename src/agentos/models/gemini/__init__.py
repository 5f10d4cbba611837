"""Gemini, through the google-genai SDK."""
