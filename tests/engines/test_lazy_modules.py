"""Lazy packages, tested on real packages in a fresh interpreter."""

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
PRELUDE = """
import builtins, sys, threading
from agentos.engines.lazy_modules import make_lazy
builtins.runs = 0
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    for name, code in PACKAGE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(code))
    return tmp_path


def output(packages: Path, code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code)],
        env={"PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_submodule_is_imported_without_running_the_package_until_an_attribute_is_accessed(
    packages: Path,
) -> None:
    code = """
        make_lazy(["whole"])
        from whole.part import small
        print(small, builtins.runs)
        import whole
        print(builtins.runs, whole.LARGE, builtins.runs, type(whole).__name__)
        from whole import small
        print(small, builtins.runs)
        """
    assert output(packages, code) == ["small", "0", "0", "large", "1", "module", "small", "1"]


def test_a_nested_package_can_be_lazy_too(packages: Path) -> None:
    code = """
        make_lazy(["whole.inner"])
        from whole.inner.leaf import leaf
        print(leaf, builtins.runs)
        import whole
        print(whole.inner.WORD, builtins.runs)
        """
    assert output(packages, code) == ["leaf", "1", "inner", "100"]


def test_a_submodule_that_imports_from_its_lazy_package_gets_the_attribute(packages: Path) -> None:
    assert output(packages, "make_lazy(['whole'])\nfrom whole.circle import LARGE\nprint(LARGE)") == ["large"]


def test_a_missing_attribute_raises_as_usual(packages: Path) -> None:
    code = """
        make_lazy(["whole"])
        import whole
        print(hasattr(whole, "nothing"), builtins.runs)
        """
    assert output(packages, code) == ["False", "1"]


def test_missing_and_already_imported_packages_are_left_alone(packages: Path) -> None:
    code = """
        import whole
        make_lazy(["whole", "no_such_package", "no_such.package"])
        print(type(whole).__name__, "no_such_package" in sys.modules, builtins.runs)
        """
    assert output(packages, code) == ["module", "False", "1"]


def test_a_package_that_fails_to_load_raises_at_every_access(packages: Path) -> None:
    code = """
        make_lazy(["broken"])
        import broken
        for _ in range(2):
            try:
                broken.anything
            except OSError as error:
                print(error)
        """
    assert output(packages, code) == ["no", "luck", "no", "luck"]


def test_a_second_thread_waits_until_the_package_is_loaded(packages: Path) -> None:
    code = """
        make_lazy(["slow"])
        import slow
        def access():
            print(slow.LATE)
        threads = [threading.Thread(target=access) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        """
    assert output(packages, code) == ["1", "1", "1", "1"]


def test_a_module_that_is_left_out_is_not_found_until_the_end_of_the_block(packages: Path) -> None:
    code = """
        from agentos.engines.lazy_modules import without_modules
        import whole.inner
        with without_modules(["whole.circle", "whole.inner"]):
            for name in ("whole.circle", "whole.inner"):
                try:
                    print(__import__(name).__name__)
                except ImportError:
                    print("absent")
        from whole.circle import LARGE
        print(LARGE)
        """
    assert output(packages, code) == ["absent", "whole", "large"]
