"""Installs what the browser tests need beside .venv: `python -m tests.page.setup_browser`.

Debian's Chromium, where it is missing and this user may install it; and axe-core from npm into .venv, checked against the
hash below. Neither is needed by anything else.
"""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

AXE = Path(sys.prefix) / "axe-core-4.14.0.js"
AXE_PACKAGE = "axe-core@4.14.0"
AXE_SHA512 = "9WTZxEjsZ7b13TH8JPmbV2z8CHbl80/2hm3XPEG4JgNdQLK81IBRXmSxHfMAOkSqQeRxT/0dwNDz2GOm3zzpcQ=="
CHROMIUM_HINT = "the browser tests need Chromium: apt-get install chromium"
AXE_HINT = f"the accessibility tests need {AXE_PACKAGE}: install npm, then make browser"


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


def main() -> int:
    for problem in filter(None, (_install_chromium(), _install_axe())):
        sys.stderr.write(f"{problem}\n")
    return 0


def _install_chromium() -> str | None:
    if chromium():
        return None
    if os.geteuid() == 0 and shutil.which("apt-get"):
        sys.stderr.write("Installing Debian's chromium ...\n")
        install = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "chromium"]
        quiet = {"stdout": subprocess.DEVNULL, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
        if subprocess.run(install, **quiet, check=False).returncode:  # type: ignore[call-overload]
            subprocess.run(["apt-get", "update", "--quiet"], **quiet, check=False)  # type: ignore[call-overload]
            subprocess.run(install, **quiet, check=False)  # type: ignore[call-overload]
    return None if chromium() else CHROMIUM_HINT


def _install_axe() -> str | None:
    if AXE.exists():
        return None
    if not shutil.which("npm"):
        return AXE_HINT
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(
            ["npm", "pack", "--silent", AXE_PACKAGE], cwd=folder, capture_output=True, text=True, check=False
        )
        files = list(Path(folder).glob("*.tgz"))
        if packed.returncode or len(files) != 1:
            return f"npm could not fetch {AXE_PACKAGE}: {packed.stderr.strip()}"
        if base64.b64encode(hashlib.sha512(files[0].read_bytes()).digest()).decode() != AXE_SHA512:
            return f"{AXE_PACKAGE} is not the package that was reviewed: its hash differs"
        with tarfile.open(files[0]) as archive:
            found = archive.extractfile("package/axe.min.js")
            assert found
            AXE.write_bytes(found.read())
    return None


if __name__ == "__main__":
    sys.exit(main())
