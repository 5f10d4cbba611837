"""`python -m tests.audits`: both audits; exit code 1 when one of them objects."""

import sys

from . import alignment, security


def main() -> int:
    reports = [security.run(), alignment.run()]
    print("\n\n".join(str(report) for report in reports))
    return 0 if all(report.passed for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
