"""Client for Gemini, through the google-genai SDK."""

import json
import time
from typing import Any

from google import genai
from google.genai import errors, types

from agentos.core.errors import BadRequest, CallRefused
from agentos.core.protocol.ports import LeasedKey, ModelRequest, ModelResponse
from agentos.core.protocol.results import Usage
from agentos.models.client_base import (
    PLACEHOLDER_KEY,
    READ_TIMEOUT,
    RESPONSE_HOOKS,
    VendorClient,
    error_for,
    lower_case,
    positive_int,
)
from agentos.models.gemini.refusals import read_refusal
from agentos.models.registry import tls_context

TIMEOUT_MS = int(READ_TIMEOUT * 1000)


class Gemini(VendorClient[genai.Client]):
    """Generates content; the key is sent in a header of each call.

    The SDK does not wrap the exceptions of its HTTP library, so any exception counts as a missing response.
    """

    def _connect(self, base_url: str | None) -> genai.Client:
        # `verify` is for the SDK's HTTP client, `ssl` for its WebSockets.
        tls = {"verify": tls_context(), "ssl": tls_context()}
        transport = {"transport": self._transport} if self._transport else {}
        options = types.HttpOptions(
            base_url=base_url,
            timeout=TIMEOUT_MS,
            client_args=tls,
            async_client_args={**tls, "event_hooks": RESPONSE_HOOKS, **transport},
        )
        return genai.Client(api_key=PLACEHOLDER_KEY, http_options=options)

    async def _call(self, client: genai.Client, request: ModelRequest, key: LeasedKey) -> ModelResponse:
        response = await client.aio.models.generate_content(
            model=key.model, contents=request.prompt, config=_config(request, key)
        )
        return _response(response, key)

    def _translate(self, error: Exception) -> CallRefused | BadRequest | None:
        if not isinstance(error, errors.APIError):
            return None
        # The SDK leaves `response` empty, or sets it to an object of whichever HTTP library it uses.
        headers = lower_case(error.response.headers) if hasattr(error.response, "headers") else {}
        body: Any = error.details
        refusal = read_refusal(error.code, body, headers, time.time())
        return error_for(refusal, f"{error.code} {error.status}: {error.message}")


def _config(request: ModelRequest, key: LeasedKey) -> types.GenerateContentConfig:
    config = types.GenerateContentConfig(
        http_options=types.HttpOptions(headers={"x-goog-api-key": key.secret}, timeout=TIMEOUT_MS)
    )
    if request.schema is not None:
        config.response_mime_type = "application/json"
        config.response_json_schema = json.loads(request.schema)
    return config


def _response(response: types.GenerateContentResponse, key: LeasedKey) -> ModelResponse:
    counted = response.usage_metadata
    usage = Usage(1)
    if counted:
        # Thoughts are billed as output.
        output = positive_int(counted.candidates_token_count) + positive_int(counted.thoughts_token_count)
        usage = Usage(1, positive_int(counted.prompt_token_count), output)
    text = response.text
    if not text:
        raise BadRequest(f"the model returned no text ({_why_empty(response)})")
    return ModelResponse(text, response.model_version or key.model, usage)


def _why_empty(response: types.GenerateContentResponse) -> str:
    if response.prompt_feedback and response.prompt_feedback.block_reason:
        return f"blocked: {response.prompt_feedback.block_reason.value}"
    finish = response.candidates[0].finish_reason if response.candidates else None
    return f"finish reason: {finish.value}" if finish else "no candidate"
