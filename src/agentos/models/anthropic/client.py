"""Client for Anthropic, through its SDK."""

import json
import time
from typing import Any

import anthropic
from anthropic.types import Message

from agentos.core.errors import BadRequest, CallRefused
from agentos.core.protocol.ports import LeasedKey, ModelRequest, ModelResponse
from agentos.core.protocol.results import Usage
from agentos.models.anthropic.refusals import limits_seen, read_refusal
from agentos.models.client_base import (
    PLACEHOLDER_KEY,
    READ_TIMEOUT,
    RESPONSE_HOOKS,
    VendorClient,
    checked_text,
    error_for,
    lower_case,
    positive_int,
)
from agentos.models.registry import tls_context

MAX_OUTPUT_TOKENS = 16_000


class Anthropic(VendorClient[anthropic.AsyncAnthropic]):
    """Asks for messages."""

    # A body that is not a message, such as a proxy's error page, fails wherever a field is missing.
    failures = (anthropic.APIError, ValueError, AttributeError, TypeError, LookupError, TimeoutError)

    def _connect(self, base_url: str | None) -> anthropic.AsyncAnthropic:
        return anthropic.AsyncAnthropic(
            api_key=PLACEHOLDER_KEY,
            base_url=base_url,
            max_retries=0,
            timeout=READ_TIMEOUT,
            http_client=anthropic.DefaultAsyncHttpxClient(
                event_hooks=RESPONSE_HOOKS, verify=tls_context(), transport=self._transport
            ),
        )

    async def _call(
        self, client: anthropic.AsyncAnthropic, request: ModelRequest, key: LeasedKey
    ) -> ModelResponse:
        messages = client.with_options(api_key=key.secret).messages
        raw = await messages.with_raw_response.create(**_parameters(request, key))
        return _response(await raw.parse(), lower_case(raw.headers))

    def _translate(self, error: Exception) -> CallRefused | BadRequest | None:
        if not isinstance(error, anthropic.APIStatusError):
            return None
        headers = lower_case(error.response.headers)
        refusal = read_refusal(error.status_code, error.body, headers, time.time())
        return error_for(refusal, f"{error.status_code}: {error.message}")


def _parameters(request: ModelRequest, key: LeasedKey) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "model": key.model,
        "max_tokens": MAX_OUTPUT_TOKENS,
        "messages": [{"role": "user", "content": request.prompt}],
    }
    if request.schema is not None:
        schema = _closed(json.loads(request.schema))
        parameters["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    return parameters


def _closed(schema: Any) -> Any:
    """The schema with additional properties forbidden in every object, as Anthropic requires."""
    if isinstance(schema, dict):
        inner = {name: _closed(value) for name, value in schema.items()}
        return {**inner, "additionalProperties": False} if schema.get("type") == "object" else inner
    return [_closed(part) for part in schema] if isinstance(schema, list) else schema


def _response(message: Message, headers: dict[str, str]) -> ModelResponse:
    text = "".join(block.text for block in message.content if block.type == "text")
    if not text:
        raise BadRequest(f"the model returned no text (stop reason: {message.stop_reason})")
    usage = Usage(1, positive_int(message.usage.input_tokens), positive_int(message.usage.output_tokens))
    return ModelResponse(text, checked_text(message.model), usage, limits_seen(headers))
