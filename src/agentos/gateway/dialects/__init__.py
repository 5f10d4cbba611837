"""The wire formats that the gateway speaks, by provider."""

from agentos.gateway.dialects import anthropic, gemini, openai
from agentos.gateway.dialects.dialect import Dialect

DIALECTS: dict[str, Dialect] = {
    dialect.provider: dialect for dialect in (gemini.DIALECT, anthropic.DIALECT, openai.DIALECT)
}
