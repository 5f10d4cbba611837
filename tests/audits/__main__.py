"""`python -m tests.audits` runs both audits; exit code 1 when a check fails."""

import sys

from . import documentation, security


def main() -> int:
    reports = [security.run(), documentation.run()]
    print("\n\n".join(str(report) for report in reports))
    return 0 if all(report.passed for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
