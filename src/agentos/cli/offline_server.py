"""The command that runs the offline model server by itself."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

if TYPE_CHECKING:
    from agentos.models.offline import Behaviour, Fault, Key, Latency

EPILOG = """\b
Examples:
  agentos offline-server
  agentos offline-server --keys 4 --latency 0.2,0.8 --seed 7
  agentos offline-server --rpm 10 --window fixed --rpd 250
  agentos offline-server --rpm 5 --seconds 1 --window bucket --burst 1
  agentos offline-server --key one=S3CRET --keys-file keys.txt --bucket one=p1
  agentos offline-server --fault '{"kind": "429-minute", "nth": 3, "retry_delay": 2}'
  agentos offline-server --fault '{"kind": "503", "every": 5, "times": null}'

\b
A fault has a kind, conditions that all have to hold, and what shapes it:
  kinds       429-minute 429-day 429-both 429-bare 429-retry-after 400-key
              400 401 402 403 404 500 502 503 504 529 reset reset-midway hang
              slow drip cut html huge hostile blocked safety max-tokens
  conditions  nth (call), nth_of_key, every, key (its name), role (draft or
              review), matching (a regular expression in the prompt);
              times: how often, 1 if not given, null without end
  shape       retry_delay (s), retry_after (any text), limit, message,
              seconds (slow, drip), megabytes (huge), payload (hostile: osc52
              csi path prefix injection controls template prose all)

\b
While it runs:
  curl URL/_offline/ledger                              every call it saw
  curl URL/_offline/faults -d '{"kind": "500"}'         one more fault
  curl URL/_offline/faults -X DELETE                    no more faults
"""


class Words(TypedDict):
    """The flags as click gives them."""

    host: str
    port: int
    keys: int | None
    key: tuple[str, ...]
    keys_file: Path | None
    bucket: tuple[str, ...]
    any_key: bool
    latency: str
    review_latency: str | None
    seed: int
    rpm: int | None
    seconds: float
    window: str
    burst: int | None
    concurrency: int | None
    rpd: int | None
    fault: tuple[str, ...]
    faults: Path | None
    ledger: Path | None
    die_with_parent: bool


def _run(**words: object) -> None:
    """Answer as Gemini would, on this machine, by fixed rules: no key, no network, no cost.

    Prints one line of JSON on stdout when it is ready, {"url": ..., "keys": [...]}, with the keys that it
    made; keys that were given to it are not repeated. Everything else goes to stderr. SIGTERM or Ctrl-C
    ends it.
    """
    from agentos.models.offline.process import Place, run

    given: Words = words  # type: ignore[assignment]
    try:
        made, keys = _keys(given)
        behaviour = _behaviour(given)
        place = Place(given["host"], given["port"], given["die_with_parent"])
        run(behaviour, keys, lambda url: _tell(url, made, len(keys)), place)
    except (ValueError, OSError) as error:
        raise click.UsageError(str(error)) from error


def _tell(url: str, made: "tuple[Key, ...]", number: int) -> None:
    click.echo(f"Offline model server at {url} with {number} keys. Ctrl-C ends it.", err=True)
    print(json.dumps({"url": url, "keys": [key.secret for key in made]}), flush=True)


def _keys(words: Words) -> "tuple[tuple[Key, ...], tuple[Key, ...]]":
    from agentos.models.offline import make_keys, parse_key

    lines = [*words["key"], *_lines(words["keys_file"])]
    given = tuple(parse_key(line) for line in lines if line.strip() and not line.startswith("#"))
    number = words["keys"] if words["keys"] is not None else (0 if given else 4)
    made = make_keys(number)
    if len({key.name for key in (*given, *made)}) < len(given) + len(made):
        raise ValueError(
            "two keys have one name; made keys are called key-1, key-2, ...: name yours otherwise"
        )
    return made, (*given, *made)


def _lines(file: Path | None) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file else []


def _behaviour(words: Words) -> "Behaviour":
    from agentos.models.offline import Behaviour, Limits, Window

    limits = Limits(
        rate=words["rpm"],
        seconds=words["seconds"],
        window=Window(words["window"]),
        burst=words["burst"],
        concurrency=words["concurrency"],
        per_day=words["rpd"],
    )
    return Behaviour(
        latency=_latency(words["latency"]),
        review_latency=_latency(words["review_latency"]) if words["review_latency"] else None,
        seed=words["seed"],
        limits=limits,
        buckets=dict(_pair(text) for text in words["bucket"]),
        any_key=words["any_key"],
        faults=_faults(words),
        ledger_file=words["ledger"],
    )


def _latency(text: str) -> "Latency":
    from agentos.models.offline import Latency

    low, _, high = text.partition(",")
    try:
        return Latency(float(low), float(high or low))
    except ValueError as error:
        raise ValueError(
            f"a latency is written MIN,MAX in seconds, such as 0.2,0.8; found: {text}"
        ) from error


def _pair(text: str) -> tuple[str, str]:
    name, sign, bucket = text.partition("=")
    if not sign:
        raise ValueError(f"a bucket is written KEY=BUCKET, such as key-1=project-a; found: {text}")
    return name, bucket


def _faults(words: Words) -> "tuple[Fault, ...]":
    from agentos.models.offline import parse_faults

    texts = [
        *words["fault"],
        *([words["faults"].read_text(encoding="utf-8")] if words["faults"] else []),
    ]
    return tuple(fault for text in texts for fault in parse_faults(text))


def _flag(*names: str, **settings: object) -> click.Option:
    return click.Option(names, **settings)  # type: ignore[arg-type]


_POSITIVE = click.IntRange(min=1)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

command = click.Command(
    "offline-server",
    callback=_run,
    help=_run.__doc__,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=[
        _flag(
            "--host",
            default="127.0.0.1",
            show_default=True,
            help="Loopback address; no other is bound.",
        ),
        _flag("--port", default=0, show_default=True, help="0 takes a free one."),
        _flag(
            "--keys",
            type=click.IntRange(min=0),
            help="How many keys to make; 4 if none is given.",
        ),
        _flag(
            "--key",
            multiple=True,
            metavar="NAME=SECRET",
            help="A key to accept; repeatable.",
        ),
        _flag(
            "--keys-file",
            type=_FILE,
            help="Keys to accept, NAME=SECRET a line, out of the process list.",
        ),
        _flag(
            "--bucket",
            multiple=True,
            metavar="KEY=BUCKET",
            help="Keys of one bucket share its limits.",
        ),
        _flag("--any-key", is_flag=True, help="Accept every key, as long as there is one."),
        _flag(
            "--latency",
            default="0,0",
            show_default=True,
            metavar="MIN,MAX",
            help="Seconds to think.",
        ),
        _flag(
            "--review-latency",
            metavar="MIN,MAX",
            help="Seconds for reviews, if they differ.",
        ),
        _flag(
            "--seed",
            default=0,
            show_default=True,
            help="The same prompt and seed take the same time.",
        ),
        _flag("--rpm", type=_POSITIVE, help="Calls per minute of each bucket."),
        _flag(
            "--seconds",
            default=60.0,
            show_default=True,
            help="What --rpm calls a minute.",
        ),
        _flag(
            "--window",
            type=click.Choice(["sliding", "fixed", "bucket"]),
            default="sliding",
            show_default=True,
            help="How --rpm is counted; fixed is aligned to the clock.",
        ),
        _flag("--burst", type=_POSITIVE, help="With --window bucket: calls at once."),
        _flag("--concurrency", type=_POSITIVE, help="Calls of a bucket at one time."),
        _flag("--rpd", type=_POSITIVE, help="Calls per day of each bucket."),
        _flag(
            "--fault",
            multiple=True,
            metavar="JSON",
            help="A scripted fault; repeatable.",
        ),
        _flag("--faults", type=_FILE, help="Scripted faults: a JSON list."),
        _flag(
            "--ledger",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Append a JSON line per call.",
        ),
        _flag("--die-with-parent", is_flag=True, help="End when stdin ends."),
    ],
)
