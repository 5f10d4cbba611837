"""GPT and every server that speaks its language, through OpenAI's own SDK."""

import asyncio
import json
import time
from typing import Any

import openai
from openai.types.chat import ChatCompletion

from agentos.core.errors import BadRequest, CallRefused
from agentos.core.protocol.ports import LeasedKey, ModelRequest, ModelResponse
from agentos.core.protocol.results import Usage
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.models.openai.address import ensure_version
from agentos.models.openai.refusals import limits_seen, read_refusal
from agentos.models.response_limit import MAX_SECONDS, RESPONSE_HOOKS
from agentos.models.tls import tls_context
from agentos.models.validate import checked_text, token_count

TIMEOUT = 300.0


class OpenAI:
    """One client per base URL serves all its keys: the key goes with each call."""

    def __init__(self, longest: float = MAX_SECONDS, transport: Any = None) -> None:
        self._longest = longest
        self._transport = transport
        self._clients: dict[str | None, openai.AsyncOpenAI] = {}

    async def complete(self, question: ModelRequest, access: LeasedKey) -> ModelResponse:
        try:
            async with asyncio.timeout(self._longest):
                raw = await self._client(access).chat.completions.with_raw_response.create(
                    **_words(question, access)
                )
            return _answer(raw.parse(), _lowered(raw.headers))
        except openai.APIStatusError as error:
            raise _translate(error) from error
        except (openai.APIError, ValueError, AttributeError, TypeError, LookupError, TimeoutError) as error:
            # The SDK checks no form: what is no completion, such as a proxy's page, lacks what one has.
            raise CallRefused(
                Refusal(RefusalKind.PROVIDER_ERROR, f"no answer: {type(error).__name__}")
            ) from error

    def _client(self, access: LeasedKey) -> openai.AsyncOpenAI:
        if access.base_url not in self._clients:
            self._clients[access.base_url] = openai.AsyncOpenAI(
                api_key="given-per-call",
                base_url=access.base_url and ensure_version(access.base_url),
                max_retries=0,
                timeout=TIMEOUT,
                http_client=openai.DefaultAsyncHttpxClient(
                    event_hooks=RESPONSE_HOOKS, verify=tls_context(), transport=self._transport
                ),
            )
        return self._clients[access.base_url].with_options(api_key=access.secret)


def _answer(completion: ChatCompletion, headers: dict[str, str]) -> ModelResponse:
    choice = completion.choices[0] if completion.choices else None
    if choice is None or not choice.message.content:
        raise BadRequest(f"the model gave no text (finish reason: {choice.finish_reason if choice else '?'})")
    counted = completion.usage
    spent = (counted.prompt_tokens, counted.completion_tokens) if counted else (0, 0)
    usage = Usage(1, token_count(spent[0]), token_count(spent[1]))
    return ModelResponse(
        checked_text(choice.message.content), checked_text(completion.model), usage, limits_seen(headers)
    )


def _words(question: ModelRequest, access: LeasedKey) -> dict[str, Any]:
    words: dict[str, Any] = {
        "model": access.model,
        "messages": [{"role": "user", "content": question.prompt}],
    }
    if question.schema is not None:
        form = {"name": "verdict", "schema": json.loads(question.schema)}
        words["response_format"] = {"type": "json_schema", "json_schema": form}
    return words


def _translate(error: openai.APIStatusError) -> Exception:
    refusal = read_refusal(error.status_code, error.body, _lowered(error.response.headers), time.time())
    return CallRefused(refusal) if refusal else BadRequest(f"{error.status_code}: {error.message}")


def _lowered(headers: Any) -> dict[str, str]:
    return {str(name).casefold(): str(value) for name, value in headers.items()}
