"""Claude, through Anthropic's own SDK; its refusals become ours."""

import asyncio
import json
import time
from typing import Any

import anthropic
from anthropic.types import Message

from agentos.core.errors import BadRequest, CallRefused
from agentos.core.protocol.ports import LeasedKey, ModelRequest, ModelResponse
from agentos.core.protocol.results import Usage
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.models.anthropic.refusals import limits_seen, read_refusal
from agentos.models.response_limit import MAX_SECONDS, RESPONSE_HOOKS
from agentos.models.tls import tls_context
from agentos.models.validate import checked_text, token_count

TIMEOUT = 300.0
MOST_TOKENS = 16_000


class Anthropic:
    """One client per base URL serves all its keys: the key goes with each call."""

    def __init__(self, longest: float = MAX_SECONDS, transport: Any = None) -> None:
        self._longest = longest
        self._transport = transport
        self._clients: dict[str | None, anthropic.AsyncAnthropic] = {}

    async def complete(self, question: ModelRequest, access: LeasedKey) -> ModelResponse:
        try:
            async with asyncio.timeout(self._longest):
                raw = await self._client(access).messages.with_raw_response.create(**_words(question, access))
            return _answer(await raw.parse(), _lowered(raw.headers))
        except anthropic.APIStatusError as error:
            raise _translate(error) from error
        except (
            anthropic.APIError,
            ValueError,
            AttributeError,
            TypeError,
            LookupError,
            TimeoutError,
        ) as error:
            # The SDK checks no form: what is no message, such as a proxy's page, lacks what one has.
            raise CallRefused(
                Refusal(RefusalKind.PROVIDER_ERROR, f"no answer: {type(error).__name__}")
            ) from error

    def _client(self, access: LeasedKey) -> anthropic.AsyncAnthropic:
        if access.base_url not in self._clients:
            self._clients[access.base_url] = anthropic.AsyncAnthropic(
                api_key="given-per-call",
                base_url=access.base_url,
                max_retries=0,
                timeout=TIMEOUT,
                http_client=anthropic.DefaultAsyncHttpxClient(
                    event_hooks=RESPONSE_HOOKS, verify=tls_context(), transport=self._transport
                ),
            )
        return self._clients[access.base_url].with_options(api_key=access.secret)


def _answer(message: Message, headers: dict[str, str]) -> ModelResponse:
    said = "".join(block.text for block in message.content if block.type == "text")
    if not said:
        raise BadRequest(f"the model gave no text (stop reason: {message.stop_reason})")
    usage = Usage(1, token_count(message.usage.input_tokens), token_count(message.usage.output_tokens))
    return ModelResponse(said, checked_text(message.model), usage, limits_seen(headers))


def _words(question: ModelRequest, access: LeasedKey) -> dict[str, Any]:
    words: dict[str, Any] = {
        "model": access.model,
        "max_tokens": MOST_TOKENS,
        "messages": [{"role": "user", "content": question.prompt}],
    }
    if question.schema is not None:
        schema = _closed(json.loads(question.schema))
        words["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    return words


def _closed(schema: Any) -> Any:
    """The same schema, with every object closed to other names, as Anthropic wants it."""
    if isinstance(schema, dict):
        inner = {name: _closed(value) for name, value in schema.items()}
        return {**inner, "additionalProperties": False} if schema.get("type") == "object" else inner
    return [_closed(part) for part in schema] if isinstance(schema, list) else schema


def _translate(error: anthropic.APIStatusError) -> Exception:
    refusal = read_refusal(error.status_code, error.body, _lowered(error.response.headers), time.time())
    return CallRefused(refusal) if refusal else BadRequest(f"{error.status_code}: {error.message}")


def _lowered(headers: Any) -> dict[str, str]:
    return {str(name).casefold(): str(value) for name, value in headers.items()}
