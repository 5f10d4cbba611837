"""The definitions that are recognised in each language."""

import pytest

from agentos.codebase.signatures import definitions, is_supported, language_of

SOURCES = {
    "a.py": (
        b"LIMIT = 3\n@d\nclass A(B):\n    x: int = 0\n    async def m(self, a: int,\n        b=2) -> str:\n        self.y = 1\n",
        {
            "LIMIT": "LIMIT = 3",
            "A": "class A(B)",
            "A.m": "async def m(self, a: int, b=2) -> str",
            "A.m.y": "",
        },
    ),
    "a.js": (
        b"export const f = async (a, b) => { };\nclass A extends B { m(x) { } }",
        {"f": "f = async (a, b)", "A.m": "m(x)"},
    ),
    "a.ts": (
        b"export interface I { b(x: number): void }\nexport class C<T> { m(a: string): Promise<void> { } }",
        {"I.b": "b(x: number): void", "C": "class C<T>", "C.m": "m(a: string): Promise<void>"},
    ),
    "a.tsx": (
        b"export function App(p: P): JSX.Element { return <b/> }",
        {"App": "function App(p: P): JSX.Element"},
    ),
    "a.go": (b"package a\nfunc (s *S) M(x int) error { return nil }", {"M": "func (s *S) M(x int) error"}),
    "a.rs": (
        b"pub struct S { a: i32 }\nimpl S { pub fn m(&self) -> i32 { 1 } }",
        {"S.m": "pub fn m(&self) -> i32", "S.a": ""},
    ),
    "a.java": (b"public class A { public void m(int a) { } }", {"A.m": "public void m(int a)"}),
    "a.c": (b"static int f(int a) { return 1; }", {"f": "static int f(int a)"}),
    "a.cpp": (b"class A { public: int m(int x) { return 1; } };", {"A.m": "int m(int x)"}),
    "a.cs": (b"namespace N { public class A { public void M(int a) { } } }", {"A.M": "public void M(int a)"}),
    "a.rb": (b"class A < B\n  def m(a, b = 2)\n  end\nend\n", {"A": "class A < B", "A.m": "def m(a, b = 2)"}),
    "a.php": (
        b"<?php class A { public function m(int $a): string { return ''; } }",
        {"A.m": "public function m(int $a): string"},
    ),
}


@pytest.mark.parametrize("path", SOURCES)
def test_definitions_have_their_signature(path: str) -> None:
    content, expected = SOURCES[path]
    language = language_of(path)

    assert is_supported(language)
    found = {definition.name: definition.signature for definition in definitions(content, language)}
    assert expected.items() <= found.items()


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe\x00(((((", b"def f(:\n  class", b"(" * 500, b"class A:\n" * 200]
)
def test_no_content_breaks_the_extraction(content: bytes) -> None:
    for path in SOURCES:
        definitions(content, language_of(path))


def test_a_file_without_a_known_ending_has_no_definitions() -> None:
    assert language_of("Makefile") == "" and language_of("a.b/readme") == ""
    assert definitions(b"def f(): ...", "") == []
