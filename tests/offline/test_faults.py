"""The fault script: its conditions and its JSON."""

import pytest

from agentos.offline.faults import CallInfo, FaultKind, FaultScript, parse_faults


def met(script: str, calls: list[CallInfo]) -> list[str | None]:
    running = FaultScript(parse_faults(script))
    found = [running.next_fault(call) for call in calls]
    return [fault.kind.value if fault else None for fault in found]


DRAFT = CallInfo("key-1", "draft", "dark mode")
REVIEW = CallInfo("key-2", "review", "light mode")


def test_a_fault_applies_to_the_nth_call_once() -> None:
    assert met('{"kind": "503", "nth": 2}', [DRAFT] * 3) == [None, "503", None]


def test_the_nth_call_is_counted_per_key_on_request() -> None:
    calls = [REVIEW, DRAFT, REVIEW, DRAFT]
    assert met('{"kind": "503", "nth_of_key": 2, "key": "key-1"}', calls) == [None, None, None, "503"]


def test_a_fault_can_apply_to_every_nth_call() -> None:
    assert met('{"kind": "500", "every": 2, "times": null}', [DRAFT] * 4) == [None, "500", None, "500"]


def test_role_and_text_must_both_match() -> None:
    script = '{"kind": "hang", "role": "review", "matching": "l.ght", "times": 2}'
    assert met(script, [DRAFT, REVIEW, REVIEW, REVIEW]) == [None, "hang", "hang", None]


def test_the_first_matching_fault_applies() -> None:
    assert met('[{"kind": "500"}, {"kind": "503", "times": 2}]', [DRAFT] * 4) == ["500", "503", "503", None]


@pytest.mark.parametrize("kind", list(FaultKind))
def test_every_kind_has_its_name_in_json(kind: FaultKind) -> None:
    assert parse_faults(f'[{{"kind": "{kind}"}}]')[0].kind is kind


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "invalid faults: expected a JSON object"),
        ("[3]", "invalid fault 3: expected an object"),
        ('{"kind": "418"}', "choose one of 429-minute"),
        ('{"kind": "500", "nht": 3}', "unknown field in a fault: nht"),
        ('{"kind": "500", "nth": "3"}', "invalid nth in a fault"),
        ('{"kind": "500", "nth": true}', "invalid nth in a fault"),
        ('{"kind": "500", "every": 0}', "invalid every in a fault"),
        ('{"kind": "500", "matching": "("}', "is not a regular expression"),
        ('{"kind": "429-retry-after", "retry_after": "1\\n2"}', "characters that a header cannot have"),
    ],
)
def test_a_wrong_fault_is_explained(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_faults(text)
