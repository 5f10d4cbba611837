"""The command that runs the offline model server by itself."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentos.cli.offline_options import OfflineOptions, behaviour_of, check_limits, keys_of

if TYPE_CHECKING:
    from agentos.offline.config import OfflineKey

EPILOG = """\b
Examples:
  agentos offline-server
  agentos offline-server --keys 4 --latency 0.2,0.8 --seed 7
  agentos offline-server --rpm 10 --window fixed --rpd 250
  agentos offline-server --rpm 5 --seconds 1 --window bucket --burst 1
  agentos offline-server --rpm 50 --itpm 30000 --otpm 8000 --per-model
  agentos offline-server --rpm 60 --tpm 40000 --refused-count --no-hints
  agentos offline-server --rpm 60 --limit key-1:rpm=5,tpm=9000,concurrency=2
  agentos offline-server --key one=S3CRET --keys-file keys.txt --bucket one=p1
  agentos offline-server --fault '{"kind": "429-minute", "nth": 3, "retry_delay": 2}'
  agentos offline-server --fault '{"kind": "503", "every": 5, "times": null}'

\b
It speaks, by path and headers:
  Gemini      POST /v1beta/models/MODEL:generateContent, with x-goog-api-key;
              :streamGenerateContent, :countTokens, GET /v1beta/models
  Anthropic   POST /v1/messages (also streamed), with x-api-key or a bearer
              token; /v1/messages/count_tokens, GET /v1/models
  OpenAI      POST /v1/chat/completions or /v1/responses (also streamed),
              with a bearer token; GET /v1/models
A request for JSON (a schema, JSON mode, or a tool that has to be used) is
answered by the reviewer, every other one by the writer.

\b
OfflineLimits hold for a bucket; a key without --bucket has one of its own.
  --rpm --tpm --itpm --otpm   per minute, or per --seconds; --window says how
              they are counted: sliding, fixed (aligned to the clock) or a
              bucket that fills evenly, with room for --burst calls
  tokens      those of the prompt count when the call comes, those of the
              answer once they are written; OpenAI's max_tokens count at once
  --limit     NAME:WORD=VALUE,... for one key, or one bucket; words: rpm rpd
              tpm itpm otpm concurrency burst seconds window; none lifts one
A refusal names the limits as the vendor does: Gemini's quotaId, quotaValue
and retryDelay, Anthropic's anthropic-ratelimit-* and OpenAI's x-ratelimit-*
headers, on answers as well. With --no-hints it is a bare 429.

\b
A fault has a kind, conditions that all have to hold, and what shapes it:
  kinds       429-minute 429-day 429-both 429-tokens 429-bare 429-retry-after
              429-ramp 429-spend 429-insufficient 429-credit 400-spend
              400-key 400 401 402 403 404 500 502 503 504 529
              stream-overload reset reset-midway hang slow drip cut html huge
              hostile blocked safety max-tokens
  conditions  nth (call), nth_of_key, every, key (its name), role (draft or
              review), matching (a regular expression in the prompt);
              times: how often, 1 if not given, null without end
  shape       retry_delay (s), retry_after (any text), limit, message, code,
              seconds (slow, drip), megabytes (huge), payload (hostile: osc52
              csi path prefix injection controls template prose all)
Each vendor has its own words for a kind; code replaces the word (OpenAI's
error.code, Anthropic's details.error_code):
  429-ramp          Anthropic ramp_limit_exceeded, OpenAI slow_down
  429-spend         enforced_spend_limit_reached, project_spend_limit_exceeded
  429-insufficient  Anthropic 402 billing_error, OpenAI insufficient_quota
  429-credit        402 billing_error, credit_balance_exhausted
  400-spend         Anthropic 400, OpenAI organization_usage_limit_exceeded
  400-key           an invalid key: Gemini 400, the others 401
  529               Anthropic overloaded_error; OpenAI, as for 503, 503 with
                    server_is_overloaded
  stream-overload   an error halfway in a stream that began with 200

\b
While it runs:
  curl URL/_offline/ledger                              the last 100,000 calls
  curl URL/_offline/ledger?last=0                       only the counts of all
  curl URL/_offline/faults -d '{"kind": "500"}'         one more fault
  curl URL/_offline/faults -X DELETE                    no more faults
"""


def _run(**words: object) -> None:
    """Answer as Gemini, Anthropic or OpenAI would, on this machine, by fixed rules: no key, no network, no cost.

    Prints one line of JSON on stdout when it is ready, {"url": ..., "keys": [...]}, with the keys that it
    made; keys that were given to it are not repeated. Everything else goes to stderr. SIGTERM or Ctrl-C
    ends it.
    """
    from agentos.offline.server import ListenAddress, run

    given: OfflineOptions = words  # type: ignore[assignment]
    try:
        made, keys = keys_of(given)
        config = behaviour_of(given)
        if not given["any_key"]:
            check_limits(config, keys)
        place = ListenAddress(given["host"], given["port"], given["die_with_parent"])
        run(config, keys, lambda url: _tell(url, made, len(keys)), place)
    except (ValueError, OSError) as error:
        raise click.UsageError(str(error)) from error


def _tell(url: str, made: "tuple[OfflineKey, ...]", number: int) -> None:
    click.echo(f"Offline model server at {url} with {number} keys. Ctrl-C ends it.", err=True)
    print(json.dumps({"url": url, "keys": [key.secret for key in made]}), flush=True)


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
            type=click.FloatRange(min=0, min_open=True),
            show_default=True,
            help="What --rpm and the --tpm family call a minute.",
        ),
        _flag(
            "--window",
            type=click.Choice(["sliding", "fixed", "bucket"]),
            default="sliding",
            show_default=True,
            help="How they are counted; fixed is aligned to the clock.",
        ),
        _flag("--burst", type=_POSITIVE, help="With --window bucket: calls at once."),
        _flag("--concurrency", type=_POSITIVE, help="Calls of a bucket at one time."),
        _flag("--rpd", type=_POSITIVE, help="Calls per day of each bucket."),
        _flag("--tpm", type=_POSITIVE, help="Tokens per minute, prompt and answer together."),
        _flag("--itpm", type=_POSITIVE, help="Tokens of prompts per minute."),
        _flag("--otpm", type=_POSITIVE, help="Tokens of answers per minute."),
        _flag(
            "--limit",
            multiple=True,
            metavar="KEY:LIMITS",
            help="Other limits for a key or a bucket, such as key-1:rpm=5,tpm=9000; repeatable.",
        ),
        _flag("--per-model", is_flag=True, help="OfflineLimits hold for each model of a bucket by itself."),
        _flag("--refused-count", is_flag=True, help="Refused calls count against --rpm and --rpd."),
        _flag("--no-hints", is_flag=True, help="Tell nothing of the limits: no name, no delay, no header."),
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
