"""agentos turns a backlog into reviewed documents."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

__version__ = "0.1.0"


def model(role: str = "drafter", **options: Any) -> "BaseChatModel":
    """A LangChain chat model for the nodes of your graph: the model that the settings give to `role`.

    Each call leases a key of the run's pool, counts for its item and its budget, and is kept in the item's checkpoint.
    Options: `temperature`, `max_tokens`, `effort`.

        llm = agentos.model("drafter")
        llm.invoke("Write a haiku about snow.")
    """
    # By name: every module imports this package for its version, and few of them may import workflows.
    chat_model = importlib.import_module("agentos.workflows.chat_model")
    found: BaseChatModel = chat_model.leased_chat_model(role, options)
    return found
