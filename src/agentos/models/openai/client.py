"""Client for OpenAI and compatible servers, through the OpenAI SDK."""

import json
import time
from typing import Any

import openai
from openai.types.chat import ChatCompletion

from agentos.core.errors import BadRequest, CallRefused
from agentos.core.protocol.ports import LeasedKey, ModelRequest, ModelResponse
from agentos.core.protocol.results import Usage
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
from agentos.models.openai import ensure_version
from agentos.models.openai.refusals import limits_seen, read_refusal, status_in_body
from agentos.models.refusal_base import error_object
from agentos.models.registry import tls_context


class OpenAI(VendorClient[openai.AsyncOpenAI]):
    """Asks for chat completions."""

    # A body that is not a completion, such as a proxy's error page, fails wherever a field is missing.
    failures = (openai.APIError, ValueError, AttributeError, TypeError, LookupError, TimeoutError)

    def _connect(self, base_url: str | None) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(
            api_key=PLACEHOLDER_KEY,
            base_url=base_url and ensure_version(base_url),
            max_retries=0,
            timeout=READ_TIMEOUT,
            http_client=openai.DefaultAsyncHttpxClient(
                event_hooks=RESPONSE_HOOKS, verify=tls_context(), transport=self._transport
            ),
        )

    async def _call(self, client: openai.AsyncOpenAI, request: ModelRequest, key: LeasedKey) -> ModelResponse:
        completions = client.with_options(api_key=key.secret).chat.completions
        raw = await completions.with_raw_response.create(**_parameters(request, key))
        completion, headers = raw.parse(), lower_case(raw.headers)
        if not completion.choices and (body := error_object(completion.model_extra)):
            # Some servers report an error inside a response with status 200.
            refusal = read_refusal(status_in_body(body), {"error": body}, headers, time.time())
            raise error_for(refusal, str(body.get("message", "error without a message")))
        return _response(completion, headers)

    def _translate(self, error: Exception) -> CallRefused | BadRequest | None:
        if not isinstance(error, openai.APIStatusError):
            return None
        headers = lower_case(error.response.headers)
        refusal = read_refusal(error.status_code, error.body, headers, time.time())
        return error_for(refusal, f"{error.status_code}: {error.message}")


def _parameters(request: ModelRequest, key: LeasedKey) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "model": key.model,
        "messages": [{"role": "user", "content": request.prompt}],
    }
    if request.schema is not None:
        schema = {"name": "verdict", "schema": json.loads(request.schema)}
        parameters["response_format"] = {"type": "json_schema", "json_schema": schema}
    return parameters


def _response(completion: ChatCompletion, headers: dict[str, str]) -> ModelResponse:
    choice = completion.choices[0] if completion.choices else None
    if choice is None or not choice.message.content:
        finish = choice.finish_reason if choice else "?"
        raise BadRequest(f"the model returned no text (finish reason: {finish})")
    counted = completion.usage
    tokens = (counted.prompt_tokens, counted.completion_tokens) if counted else (0, 0)
    usage = Usage(1, positive_int(tokens[0]), positive_int(tokens[1]))
    return ModelResponse(
        checked_text(choice.message.content), checked_text(completion.model), usage, limits_seen(headers)
    )
