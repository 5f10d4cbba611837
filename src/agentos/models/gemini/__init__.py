"""Gemini through google-genai."""
