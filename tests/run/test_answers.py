"""What may be typed as the answer to a graph's question, and what is said about everything else."""

from types import SimpleNamespace
from typing import Any

import pytest

from agentos.core.errors import UsageError
from agentos.core.planning.gates import Question
from agentos.review.answers import read_answers

FIRST, SECOND = "a" * 32, "b" * 32


def waiting(*ids: str) -> Any:
    questions = tuple(Question(each, "ask", '"How?"') for each in ids)
    return SimpleNamespace(
        is_question=True,
        request=SimpleNamespace(questions=questions, is_breakpoint=False),
        parked_item=SimpleNamespace(item="T-1"),
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" true", True),
        ('{"a": [1, null]}', {"a": [1, None]}),
        ('"a=b"', "a=b"),
        ('1="ja, Überfluß"', "ja, Überfluß"),
        (f'{FIRST}="x"', "x"),
    ],
)
def test_json_is_the_answer_to_the_only_question(text: str, value: object) -> None:
    assert read_answers(waiting(FIRST), [text]) == {FIRST: value}


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (["{bad"], r"invalid answer '{bad': not JSON \(.* column 2"),
        (["yes"], """a text needs quotes: '"yes"'"""),
        ([""], "not JSON"),
        (["NaN"], "NaN is not a JSON value"),
        (["[-Infinity]"], "-Infinity is not a JSON value"),
        (['"\\ud800"'], "surrogates not allowed"),
        (["[" * 100_000], r"invalid answer '\[{80}\.\.\.': not JSON \(nested too deeply\)"),
        (['2="x"'], f"T-1 has no question 2: expected 1, {FIRST}"),
        ([f'{SECOND}="x"'], "T-1 has no question bbb"),
        (["1", "2"], "T-1 has two answers to one question: expected one"),
        (["1=1", f"{FIRST}=2"], "two answers to one question"),
    ],
)
def test_anything_else_is_refused_with_what_to_type(texts: list[str], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        read_answers(waiting(FIRST), texts)


def test_several_questions_need_their_numbers_or_ids() -> None:
    both = waiting(FIRST, SECOND)
    assert read_answers(both, ["2=2", f"{FIRST}=1"]) == {FIRST: 1, SECOND: 2}
    with pytest.raises(UsageError, match="asks 2 questions: expected --answer NUMBER=JSON"):
        read_answers(both, ["true"])
    with pytest.raises(UsageError, match="has no question 3"):
        read_answers(both, ["3=1"])
