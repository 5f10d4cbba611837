"""Takes pictures of the page in four views, light and dark, wide and phone: `make screenshots`.

All of them go to screenshots/, which git ignores; the two of the README are written beside this file. The runs are real
ones of the demo project with the offline server.
"""

import contextlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.page.browser import FLAGS  # noqa: E402
from tests.page.setup_browser import CHROMIUM_HINT, chromium  # noqa: E402

PROGRAMS = Path(sys.executable).parent
SIZES = {"wide": (1280, 800), "phone": (390, 844)}
README = {"run-light-wide": "page-run.png", "decisions-dark-wide": "page-decisions.png"}
VIEWS = ("runs", "run", "item", "decisions")
DONE = 3  # items of the live run that have ended before the pictures are taken
TIMEOUT = 90.0  # seconds


def main() -> None:
    executable = chromium()
    if executable is None:
        sys.exit(CHROMIUM_HINT)
    folder = ROOT / "screenshots"
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        environment = {**os.environ, "HOME": home, "AGENTOS_HOME": f"{home}/.agentos", "NO_COLOR": "1"}
        project = prepare(Path(home), environment)
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        with model_server() as keys, live_run(project, environment | keys), served(environment) as links:
            for scheme in ("light", "dark"):
                for size in SIZES:
                    take(browser, next(links), folder, scheme, size)
        browser.close()
    for name, target in README.items():
        picture = with_palette((folder / f"{name}.png").read_bytes())
        (Path(__file__).parent / target).write_bytes(picture)
        sys.stdout.write(f"docs/images/{target}: {len(picture) // 1000} kB\n")
    sys.stdout.write(f"All pictures: {folder.relative_to(ROOT)}/\n")


def prepare(home: Path, environment: dict[str, str]) -> Path:
    """The demo project after one whole run, and with drafts that wait for a person."""
    project = home / "reader"
    run = [PROGRAMS / "agentos", "demo", project]
    subprocess.run(run, env=environment, check=True, stdout=subprocess.DEVNULL)
    # The demo keeps a home of its own; its run belongs to the list here.
    (project / ".agentos-home").rename(home / ".agentos")
    parked = ["issue-workflow", "--all", "--parallel", "4", "--offline", "--review", "verdict"]
    subprocess.run(
        [PROGRAMS / parked[0], *parked[1:]],
        cwd=project,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return project


@contextlib.contextmanager
def model_server() -> Iterator[dict[str, str]]:
    """A model server that takes its time, and the variables that lead to it."""
    words = ["offline-server", "--die-with-parent", "--keys", "4", "--latency", "2.5,4", "--seed", "7"]
    process = subprocess.Popen(
        [PROGRAMS / "agentos", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin and process.stdout
    ready = json.loads(process.stdout.readline())
    variables = {"AGENTOS_SIMULATE_429": "4"}
    for number, key in enumerate(ready["keys"], 1):
        variables |= {f"GEMINI_API_KEY_{number}": key, f"GEMINI_BASE_URL_{number}": ready["url"]}
    try:
        yield variables
    finally:
        process.stdin.close()
        process.wait(10)


@contextlib.contextmanager
def live_run(project: Path, environment: dict[str, str]) -> Iterator[None]:
    """A run in progress: some items have ended, three are running."""
    words = ["lld-workflow", "--fresh", "40-49", "--parallel", "3", "--display", "none"]
    process = subprocess.Popen(
        [PROGRAMS / words[0], *words[1:]],
        cwd=project,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for_items(environment)
        yield
    finally:
        process.terminate()
        process.wait(30)


def wait_for_items(environment: dict[str, str]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        status = subprocess.run(
            [PROGRAMS / "agentos", "status", "--json"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        record = json.loads(status.stdout) if status.stdout.startswith("{") else {}
        ended = [item for item in record.get("items", ()) if item["outcome"]]
        if record.get("alive") and len(ended) >= DONE:
            return
        time.sleep(0.1)
    sys.exit("the run did not get far enough in time")


@contextlib.contextmanager
def served(environment: dict[str, str]) -> Iterator[Iterator[str]]:
    process = subprocess.Popen(
        [PROGRAMS / "agentos", "page"], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    try:
        yield (line.split()[-1] for line in process.stdout if "/login#" in line)
    finally:
        process.terminate()
        process.wait(10)


def take(browser: Browser, link: str, folder: Path, scheme: str, size: str) -> None:
    width, height = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if scheme == "dark" else "light"
    )
    page = context.new_page()
    page.goto(link)
    page.wait_for_selector("a.run-link")
    run = page.locator("a.run-link").first.get_attribute("href") or ""
    finished = (
        page.locator(".run-card", has_text="10/10").locator("a.run-link").first.get_attribute("href") or ""
    )
    routes = {"runs": "#/", "run": run, "item": f"{finished}/items/LLD-43", "decisions": "#/decisions"}
    for view in VIEWS:
        page.evaluate("route => { location.hash = route; }", routes[view])
        show(page, view)
        page.screenshot(path=folder / f"{view}-{scheme}-{size}.png")
    context.close()


def show(page: Page, view: str) -> None:
    """Wait until the view is complete; the item is shown with what changed."""
    page.wait_for_selector(
        {"runs": ".run-card", "run": "a.item-link", "item": ".document", "decisions": ".decision .document"}[
            view
        ]
    )
    if view == "item":
        page.locator("#tab-changes").click()
        page.wait_for_selector(".diff")
    page.mouse.move(0, 0)
    page.wait_for_timeout(500)


def with_palette(png: bytes) -> bytes:
    """The same picture with at most 256 colours, a third of the size: flat surfaces and smoothed letters need no more."""
    width, height, channels, rows = _decode(png)
    pixels = [tuple(row[at : at + 3]) for row in rows for at in range(0, width * channels, channels)]
    bits = 8
    while True:
        mask = (0xFF << (8 - bits)) & 0xFF
        groups = Counter((red & mask, green & mask, blue & mask) for red, green, blue in pixels)
        if len(groups) <= 256:
            break
        bits -= 1
    # Each group is drawn in its most frequent colour, so that surfaces keep theirs exactly.
    exact: dict[tuple[int, ...], Counter[tuple[int, ...]]] = {}
    for colour, times in Counter(pixels).items():
        exact.setdefault(tuple(part & mask for part in colour), Counter())[colour] += times
    numbers = {group: number for number, group in enumerate(groups)}
    palette = b"".join(bytes(exact[group].most_common(1)[0][0]) for group in groups)
    lines = (
        b"\0" + bytes(numbers[tuple(part & mask for part in pixel)] for pixel in pixels[at : at + width])
        for at in range(0, width * height, width)
    )
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    content = zlib.compress(b"".join(lines), 9)
    chunks = ((b"IHDR", header), (b"PLTE", palette), (b"IDAT", content), (b"IEND", b""))
    return png[:8] + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _decode(png: bytes) -> tuple[int, int, int, list[bytearray]]:
    """Width, height, channels and rows of a picture with 8 bits a channel."""
    at, content, width, height, channels = 8, b"", 0, 0, 3
    while at < len(png):
        (size,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        data = png[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, height, channels = *struct.unpack(">II", data[:8]), {2: 3, 6: 4}[data[9]]
        content += data if kind == b"IDAT" else b""
        at += size + 12
    raw, stride = zlib.decompress(content), width * channels
    rows: list[bytearray] = []
    before = bytearray(stride)
    for number in range(height):
        start = number * (stride + 1)
        before = _unfilter(raw[start], bytearray(raw[start + 1 : start + 1 + stride]), before, channels)
        rows.append(before)
    return width, height, channels, rows


def _unfilter(kind: int, row: bytearray, above: bytearray, step: int) -> bytearray:
    for at in range(len(row)):
        left = row[at - step] if at >= step else 0
        corner = above[at - step] if at >= step else 0
        if kind == 4:
            guess = left + above[at] - corner
            near = sorted(
                (abs(guess - part), order, part) for order, part in enumerate((left, above[at], corner))
            )
            row[at] = (row[at] + near[0][2]) & 0xFF
        else:
            row[at] = (row[at] + (0, left, above[at], (left + above[at]) // 2)[kind]) & 0xFF
    return row


if __name__ == "__main__":
    main()
