"""Packages whose code waits until something of it is asked for, on real packages in a fresh interpreter."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PACKAGE = {
    "whole/__init__.py": """
        import builtins
        builtins.runs = getattr(builtins, "runs", 0) + 1
        from whole.part import small
        LARGE = "large"
        """,
    "whole/part.py": 'small = "small"',
    "whole/circle.py": "from whole import LARGE",
    "whole/inner/__init__.py": 'import builtins; builtins.runs = 100; WORD = "inner"',
    "whole/inner/leaf.py": 'leaf = "leaf"',
    "broken/__init__.py": 'raise OSError("no luck")',
    "slow/__init__.py": "import time; time.sleep(0.2); LATE = 1",
}
BEFORE = """
import builtins, sys, threading
from agentos.engines.lazy_modules import make_lazy
builtins.runs = 0
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    for name, code in PACKAGE.items():
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(textwrap.dedent(code))
    return tmp_path


def said(packages: Path, code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", BEFORE + textwrap.dedent(code)],
        env={"PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_part_is_imported_without_the_whole_until_that_is_asked_for(packages: Path) -> None:
    code = """
        make_lazy(["whole"])
        from whole.part import small
        print(small, builtins.runs)
        import whole
        print(builtins.runs, whole.LARGE, builtins.runs, type(whole).__name__)
        from whole import small
        print(small, builtins.runs)
        """
    assert said(packages, code) == ["small", "0", "0", "large", "1", "module", "small", "1"]


def test_a_package_inside_another_waits_too(packages: Path) -> None:
    code = """
        make_lazy(["whole.inner"])
        from whole.inner.leaf import leaf
        print(leaf, builtins.runs)
        import whole
        print(whole.inner.WORD, builtins.runs)
        """
    assert said(packages, code) == ["leaf", "1", "inner", "100"]


def test_a_part_that_asks_for_the_whole_gets_it(packages: Path) -> None:
    assert said(packages, "make_lazy(['whole'])\nfrom whole.circle import LARGE\nprint(LARGE)") == ["large"]


def test_a_name_that_is_not_there_is_missing_as_ever(packages: Path) -> None:
    code = """
        make_lazy(["whole"])
        import whole
        print(hasattr(whole, "nothing"), builtins.runs)
        """
    assert said(packages, code) == ["False", "1"]


def test_what_is_not_installed_or_imported_already_stays_as_it_is(packages: Path) -> None:
    code = """
        import whole
        make_lazy(["whole", "no_such_package", "no_such.package"])
        print(type(whole).__name__, "no_such_package" in sys.modules, builtins.runs)
        """
    assert said(packages, code) == ["module", "False", "1"]


def test_a_package_that_fails_says_so_each_time(packages: Path) -> None:
    code = """
        make_lazy(["broken"])
        import broken
        for _ in range(2):
            try:
                broken.anything
            except OSError as error:
                print(error)
        """
    assert said(packages, code) == ["no", "luck", "no", "luck"]


def test_a_thread_that_comes_second_waits_for_all_of_it(packages: Path) -> None:
    code = """
        make_lazy(["slow"])
        import slow
        def ask():
            print(slow.LATE)
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        """
    assert said(packages, code) == ["1", "1", "1", "1"]
