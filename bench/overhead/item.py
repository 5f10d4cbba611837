"""Processes one item the way a plain script would: draft, review, and both written to a file.

python item.py ISSUE RESULT, with the keys and the server URL in the environment.
"""

import os
import sys
from pathlib import Path

from google import genai
from google.genai import types

MODEL = "gemini-2.5-pro"


def client() -> genai.Client:
    return genai.Client(
        api_key="given-per-call",
        http_options=types.HttpOptions(base_url=os.environ["GEMINI_BASE_URL_1"]),
    )


def run_item(models: genai.Client, issue: Path, result: Path) -> None:
    """Choose the key by item number, so that all keys get the same load."""
    keys = [value for name, value in sorted(os.environ.items()) if name.startswith("GEMINI_API_KEY_")]
    key = keys[int(issue.stem) % len(keys)]
    draft = _ask(models, key, f"Write a low-level design for this issue:\n\n{issue.read_text()}")
    review = _ask(models, key, f"Review this design; answer APPROVED or REVISE:\n\n{draft}")
    result.parent.mkdir(parents=True, exist_ok=True)
    result.write_text(f"{draft}\n\n{review}\n")


def _ask(models: genai.Client, key: str, prompt: str) -> str:
    options = types.HttpOptions(headers={"x-goog-api-key": key})
    answer = models.models.generate_content(
        model=MODEL, contents=prompt, config=types.GenerateContentConfig(http_options=options)
    )
    return answer.text or ""


if __name__ == "__main__":
    run_item(client(), Path(sys.argv[1]), Path(sys.argv[2]))
