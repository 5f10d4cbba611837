"""A fleet on loopback beside the local engine, with real servers: python -m bench.fleet [--only PART ...].

Every line says what was reached and what is wanted. The exit code is 1 if anything falls short.
"""

import argparse
import sys
from collections.abc import Callable

from tests.fleet.servers import MissingServer

from bench.fleet import gateway_load, item_cost, takeover, watching
from bench.fleet.figures import Figure

PARTS: dict[str, Callable[[], list[Figure]]] = {
    "takeover": takeover.measure,
    "items": item_cost.measure,
    "events": watching.measure,
    "gateway": gateway_load.measure,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    is_short = False
    for part in parser.parse_args().only:
        try:
            figures = PARTS[part]()
        except MissingServer as error:
            print(error, file=sys.stderr)
            return 3
        print(*figures, sep="\n", flush=True)
        is_short = is_short or not all(figure.is_reached for figure in figures)
    return int(is_short)


if __name__ == "__main__":
    sys.exit(main())
