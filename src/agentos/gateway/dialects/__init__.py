"""Wire formats of the gateway, by provider."""

from agentos.gateway.dialects import anthropic, gemini, openai
from agentos.gateway.dialects.base import GatewayDialect

DIALECTS: dict[str, GatewayDialect] = {
    dialect.provider: dialect for dialect in (gemini.DIALECT, anthropic.DIALECT, openai.DIALECT)
}
