"""Signatures that the fork server determines once for all workers."""

import functools
import inspect

from agentos.worker.kept_signatures import keep_signatures


class Base:
    def __init__(self, given: int) -> None:
        self.given = given

    def method(self, text: str, *, count: int = 1) -> str:
        return text * count


class Derived(Base):
    def __init__(self, other: str) -> None:
        super().__init__(len(other))


def looked_up(text: str, count: int = 1) -> str:
    return text * count


@functools.wraps(looked_up)
def wrapper(*args: str) -> str:
    return looked_up("".join(args))


def test_a_signature_is_kept_on_its_function_and_stays_the_same() -> None:
    before = [inspect.signature(each) for each in (looked_up, Base(1).method, Base, Derived)]
    with keep_signatures():
        for each in (looked_up, Base(1).method, Base, Derived):
            inspect.signature(each)
    after = [inspect.signature(each) for each in (looked_up, Base(1).method, Base, Derived)]
    assert after == before
    assert inspect.signature(looked_up) is inspect.signature(looked_up)
    assert inspect.signature(Base.method) is inspect.signature(Base.method)


def test_a_class_derived_from_one_that_was_looked_up_has_its_own_signature() -> None:
    with keep_signatures():
        inspect.signature(Base)
    assert list(inspect.signature(Derived).parameters) == ["other"]
    assert list(inspect.signature(Base).parameters) == ["given"]


def test_wrappers_and_later_functions_are_left_alone() -> None:
    def later() -> None: ...

    with keep_signatures():
        inspect.signature(wrapper)
    inspect.signature(later)
    assert not hasattr(wrapper, "__signature__")
    assert not hasattr(later, "__signature__")
    assert inspect.signature.__module__ == "inspect"
