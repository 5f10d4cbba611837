"""Gemini, through google-genai; its refusals become ours."""

import asyncio
import json
import time
from typing import Any

from google import genai
from google.genai import errors, types

from agentos.core.errors import BadRequest, CallRefused
from agentos.core.protocol.ports import LeasedKey, ModelRequest, ModelResponse
from agentos.core.protocol.results import Usage
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.models.gemini.refusals import read_refusal
from agentos.models.response_limit import MAX_SECONDS, RESPONSE_HOOKS
from agentos.models.tls import tls_context
from agentos.models.validate import token_count

TIMEOUT_MS = 300_000


class Gemini:
    """One client per base URL serves all its keys: the key goes with each call, in a header."""

    def __init__(self, longest: float = MAX_SECONDS, transport: Any = None) -> None:
        self._longest = longest
        self._transport = {"transport": transport} if transport else {}
        self._clients: dict[str | None, genai.Client] = {}

    async def complete(self, question: ModelRequest, access: LeasedKey) -> ModelResponse:
        client = self._client(access.base_url)
        try:
            async with asyncio.timeout(self._longest):
                response = await client.aio.models.generate_content(
                    model=access.model,
                    contents=question.prompt,
                    config=_config(question, access),
                )
            return _answer(response, access)
        except BadRequest:
            raise
        except errors.APIError as error:
            raise _translate(error) from error
        except Exception as error:
            # The SDK lets its transport's errors through, of whichever HTTP library it was built on.
            raise CallRefused(_broken(error)) from error

    def _client(self, base_url: str | None) -> genai.Client:
        if base_url not in self._clients:
            # `verify` is for its HTTP client, `ssl` for its websockets.
            trust = {"verify": tls_context(), "ssl": tls_context()}
            options = types.HttpOptions(
                base_url=base_url,
                timeout=TIMEOUT_MS,
                client_args=trust,
                async_client_args={**trust, "event_hooks": RESPONSE_HOOKS, **self._transport},
            )
            self._clients[base_url] = genai.Client(api_key="given-per-call", http_options=options)
        return self._clients[base_url]


def _config(question: ModelRequest, access: LeasedKey) -> types.GenerateContentConfig:
    config = types.GenerateContentConfig(
        http_options=types.HttpOptions(headers={"x-goog-api-key": access.secret}, timeout=TIMEOUT_MS)
    )
    if question.schema is not None:
        config.response_mime_type = "application/json"
        config.response_json_schema = json.loads(question.schema)
    return config


def _answer(response: types.GenerateContentResponse, access: LeasedKey) -> ModelResponse:
    counted = response.usage_metadata
    usage = Usage(
        1,
        token_count(counted.prompt_token_count if counted else 0),
        _output_tokens(counted),
    )
    text = response.text
    if not text:
        raise BadRequest(f"the model gave no text ({_why_empty(response)})")
    return ModelResponse(text, response.model_version or access.model, usage)


def _output_tokens(counted: types.GenerateContentResponseUsageMetadata | None) -> int:
    """What the model wrote, its thoughts included: both are paid for."""
    if counted is None:
        return 0
    return token_count(counted.candidates_token_count) + token_count(counted.thoughts_token_count)


def _why_empty(response: types.GenerateContentResponse) -> str:
    if response.prompt_feedback and response.prompt_feedback.block_reason:
        return f"blocked: {response.prompt_feedback.block_reason.value}"
    finish = response.candidates[0].finish_reason if response.candidates else None
    return f"finish reason: {finish.value}" if finish else "no candidate"


def _translate(error: errors.APIError) -> Exception:
    headers: dict[str, str] = {}
    if error.response is not None and hasattr(error.response, "headers"):
        headers = {str(name).casefold(): str(value) for name, value in error.response.headers.items()}
    body: Any = error.details
    refusal = read_refusal(error.code, body, headers, time.time())
    return CallRefused(refusal) if refusal else BadRequest(f"{error.code} {error.status}: {error.message}")


def _broken(error: Exception) -> Refusal:
    return Refusal(RefusalKind.PROVIDER_ERROR, f"no answer: {type(error).__name__}")
