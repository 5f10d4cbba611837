"""What the fork server loads and a warm-up item calls: counts, which do not depend on how busy the machine is.

python -m bench.overhead.calls
"""

import cProfile
import gc
import importlib
import pstats
import sys
from pathlib import Path

from agentos.engines.lazy_modules import make_lazy, without_modules
from agentos.models.warmup import http_library
from agentos.run.prestart import LAZY_PACKAGES, LEFT_OUT

VENDOR = "gemini"
PAGE = 4  # KB


def main() -> None:
    gc.disable()  # as the fork server does
    make_lazy(LAZY_PACKAGES)
    with without_modules(LEFT_OUT):
        importlib.import_module(f"agentos.models.{VENDOR}.client")
    importlib.import_module("agentos.worker.main").warm_up()
    print(f"modules before the first fork:   {len(sys.modules):>7,}")
    resident = int(Path("/proc/self/statm").read_text().split()[1])
    print(f"memory before the first fork:    {resident * PAGE / 1000:>7.1f} MB")
    items = importlib.import_module("agentos.worker.warm_up_items")
    library = http_library(VENDOR)
    for _ in items.run_warm_up_items():
        pass
    profile = cProfile.Profile()
    profile.enable()
    items.run_warm_up_item(VENDOR, library)
    profile.disable()
    print(f"function calls of an item:       {pstats.Stats(profile).total_calls:>7,}")  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
