"""Writes a span for each call that the gateway forwards, as a child of the caller's span."""

import secrets
from collections.abc import Callable

from agentos.core.protocol.trace_context import SpanContext, read_traceparent
from agentos.gateway.usage import CallRecord
from agentos.outputs.span_export import FinishedSpan, SpanRole


def write_call_span(write: Callable[[FinishedSpan], None], record: CallRecord, at: float) -> None:
    """Without a span of the caller, the call starts a new trace."""
    parent = read_traceparent(record.traceparent)
    context = SpanContext(parent.trace if parent else secrets.token_hex(16), secrets.token_hex(8))
    failed = record.status >= 400 or record.status == 0
    write(
        FinishedSpan(
            f"gateway {record.provider} {record.model}".rstrip(),
            context,
            parent,
            at - record.seconds,
            at,
            SpanRole.SERVER,
            {
                "gen_ai.provider.name": record.provider,
                "gen_ai.request.model": record.model,
                "gen_ai.usage.input_tokens": record.usage.input_tokens,
                "gen_ai.usage.output_tokens": record.usage.output_tokens,
                "http.response.status_code": record.status,
                "agentos.token": record.item,
                "agentos.key": record.key,
                "agentos.waited_seconds": record.waited,
                "agentos.refusals": record.refused,
                "agentos.failures": record.failed,
            },
            f"{record.status}, {record.ending.value}" if failed else "",
        )
    )
