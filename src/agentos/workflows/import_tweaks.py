"""Imports what LangGraph brings along for tracing, without building its models: nothing is traced.

Pydantic builds them when they are used, as each model may ask it to (`defer_build`); asking for all of them at once is
possible only where they inherit it from.
"""

import importlib

from pydantic import BaseModel

BaseModel.model_config["defer_build"] = True
try:
    importlib.import_module("langchain_core.tracers.langchain")
finally:
    del BaseModel.model_config["defer_build"]
