"""The rule machine that stands in for a language model."""

from agentos.offline.rules.engine import Role, answer_by_rules, item_hint

MODEL_NAME = "offline-rules-1"

__all__ = ["MODEL_NAME", "Role", "answer_by_rules", "item_hint"]
