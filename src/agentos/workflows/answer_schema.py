"""Checks a structured answer against the requested schema, and builds the request for a corrected one."""

from dataclasses import dataclass, replace
from string import Template
from typing import Any

from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, ValidationError

from agentos.core.protocol.ports import ChatTurn, ModelRequest, ModelResponse
from agentos.core.text.json_schema import schema_problem
from agentos.workflows.chat_messages import parsed_arguments
from agentos.workflows.node_context import load_prompt_file

MAX_ERRORS = 3  # validation errors quoted in the request for a corrected answer


@dataclass(frozen=True, slots=True)
class AnswerSchema:
    """The schema of a structured answer: the parameters of the single tool that the model must call."""

    name: str
    parameters: dict[str, Any]
    model: type[BaseModel] | None

    @classmethod
    def of(cls, schema: Any) -> "AnswerSchema":
        function = convert_to_openai_tool(schema)["function"]
        is_model = isinstance(schema, type) and issubclass(schema, BaseModel)
        return cls(function["name"], function.get("parameters") or {}, schema if is_model else None)

    def problem(self, response: ModelResponse) -> str:
        """Why the answer violates the schema, in a few words; empty if it does not."""
        calls = [call for call in response.tool_calls if call.name == self.name]
        if not calls:
            return f"it does not call {self.name}"
        arguments = parsed_arguments(calls[0])
        if arguments is None:
            return "its arguments are not a JSON object"
        if self.model is None:
            return schema_problem(arguments, self.parameters)
        try:
            self.model.model_validate(arguments)
        except ValidationError as error:
            return "; ".join(_located(found) for found in error.errors()[:MAX_ERRORS])
        return ""

    def better_request(self, request: ModelRequest, response: ModelResponse) -> ModelRequest | None:
        """The conversation extended by the answer and what is wrong with it; None if the answer is valid."""
        if not (problem := self.problem(response)):
            return None
        words = Template(load_prompt_file("tool_again.md")).safe_substitute(problem=problem, name=self.name)
        calls = tuple(
            call if parsed_arguments(call) is not None else replace(call, arguments="{}")
            for call in response.tool_calls
        )
        answer = (ChatTurn("assistant", response.text, calls),) if calls or response.text else ()
        results = tuple(ChatTurn("tool", words.strip(), call_id=call.id, tool=call.name) for call in calls)
        question = () if results else (ChatTurn("user", words.strip()),)
        return replace(request, turns=(*request.turns, *answer, *results, *question))


def _located(error: Any) -> str:
    where = ".".join(map(str, error["loc"]))
    return f"{where}: {error['msg']}" if where else str(error["msg"])
