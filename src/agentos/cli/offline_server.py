"""`agentos offline-server`: runs the built-in model server on its own."""

import json
from pathlib import Path

import click

from agentos.cli.offline_options import OfflineOptions, ServerKeys, check_limits, server_config, server_keys

EPILOG = """\b
Examples:
  agentos offline-server
  agentos offline-server --keys 4 --latency 0.2,0.8 --seed 7
  agentos offline-server --rpm 10 --window fixed --rpd 250
  agentos offline-server --rpm 5 --seconds 1 --window bucket --burst 1
  agentos offline-server --rpm 50 --itpm 30000 --otpm 8000 --per-model
  agentos offline-server --rpm 60 --tpm 40000 --count-refused --no-hints
  agentos offline-server --rpm 60 --limit key-1:rpm=5,tpm=9000,concurrency=2
  agentos offline-server --key one=S3CRET --keys-file keys.txt --bucket one=p1
  agentos offline-server --fault '{"kind": "429-minute", "nth": 3, "retry_delay": 2}'
  agentos offline-server --fault '{"kind": "503", "every": 5, "times": null}'

\b
APIs, selected by path and headers:
  Gemini      POST /v1beta/models/MODEL:generateContent, with x-goog-api-key;
              :streamGenerateContent, :countTokens, GET /v1beta/models
  Anthropic   POST /v1/messages (also streamed), with x-api-key or a bearer
              token; /v1/messages/count_tokens, GET /v1/models
  OpenAI      POST /v1/chat/completions or /v1/responses (also streamed),
              with a bearer token; GET /v1/models
Requests for JSON (a schema, JSON mode or a required tool) are answered by the
reviewer, all others by the writer.

\b
Limits apply per bucket; a key without --bucket has a bucket of its own.
  --rpm --tpm --itpm --otpm   per minute, or per --seconds; --window selects
              how they are counted: sliding, fixed (aligned to the clock) or a
              token bucket that refills evenly and holds --burst calls
  tokens      prompt tokens count when the call arrives, answer tokens when
              they are written; OpenAI's max_tokens count immediately
  --limit     NAME:FIELD=VALUE,... for one key or bucket; fields: rpm rpd tpm
              itpm otpm concurrency burst seconds window; none removes a limit
Refusals describe the limits as the vendor does: Gemini's quotaId, quotaValue
and retryDelay, Anthropic's anthropic-ratelimit-* and OpenAI's x-ratelimit-*
headers, which successful answers carry too. With --no-hints: a bare 429.

\b
A fault has a kind, conditions (all must hold) and parameters:
  kinds       429-minute 429-day 429-both 429-tokens 429-bare 429-retry-after
              429-ramp 429-spend 429-insufficient 429-credit 400-spend
              400-key 400 401 402 403 404 500 502 503 504 529
              stream-overload reset reset-midway hang slow drip cut html huge
              hostile blocked safety max-tokens
  conditions  nth (call), nth_of_key, every, key (its name), role (draft or
              review), matching (a regular expression in the prompt);
              times: how often (1), null for no limit
  parameters  retry_delay (s), retry_after (any text), limit, message, code,
              seconds (slow, drip), megabytes (huge), payload (hostile: osc52
              csi path prefix injection controls template prose all)
Each vendor has its own name for a kind; code replaces that name (OpenAI's
error.code, Anthropic's details.error_code):
  429-ramp          Anthropic ramp_limit_exceeded, OpenAI slow_down
  429-spend         enforced_spend_limit_reached, project_spend_limit_exceeded
  429-insufficient  Anthropic 402 billing_error, OpenAI insufficient_quota
  429-credit        402 billing_error, credit_balance_exhausted
  400-spend         Anthropic 400, OpenAI organization_usage_limit_exceeded
  400-key           an invalid key: Gemini 400, the others 401
  529               Anthropic overloaded_error; OpenAI, as for 503, 503 with
                    server_is_overloaded
  stream-overload   an error in the middle of a stream that began with 200

\b
While it runs:
  curl URL/_offline/ledger                              the last 100,000 calls
  curl URL/_offline/ledger?last=0                       only the totals
  curl URL/_offline/faults -d '{"kind": "500"}'         add a fault
  curl URL/_offline/faults -X DELETE                    remove all faults
"""


def _run(**parsed: object) -> None:
    """Imitate the Gemini, Anthropic and OpenAI APIs on this machine by fixed rules: no key, no network, no cost.

    When ready, prints one line of JSON on stdout, {"url": ..., "keys": [...]}, with the keys it generated;
    keys passed to it are not repeated. Everything else goes to stderr. Stop it with SIGTERM or Ctrl-C.
    """
    from agentos.offline.server import ListenAddress, run

    options: OfflineOptions = parsed  # type: ignore[assignment]
    try:
        keys = server_keys(options)
        config = server_config(options)
        if not options["any_key"]:
            check_limits(config, keys.all)
        address = ListenAddress(options["host"], options["port"], options["die_with_parent"])
        run(config, keys.all, lambda url: _announce(url, keys), address)
    except (ValueError, OSError) as error:
        raise click.UsageError(str(error)) from error


def _announce(url: str, keys: ServerKeys) -> None:
    click.echo(f"Offline model server at {url} with {len(keys.all)} keys. Stop it with Ctrl-C.", err=True)
    print(json.dumps({"url": url, "keys": [key.secret for key in keys.generated]}), flush=True)


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
            help="Address to listen on; must be loopback.",
        ),
        _flag("--port", default=0, show_default=True, help="Port to listen on; 0 picks a free one."),
        _flag(
            "--keys",
            type=click.IntRange(min=0),
            help="Number of keys to generate (4, or 0 if you pass keys).",
        ),
        _flag(
            "--key",
            multiple=True,
            metavar="NAME=SECRET",
            help="Key to accept; repeatable.",
        ),
        _flag(
            "--keys-file",
            type=_FILE,
            help="File of keys to accept, one NAME=SECRET per line; hides them from the process list.",
        ),
        _flag(
            "--bucket",
            multiple=True,
            metavar="KEY=BUCKET",
            help="Put a key into a bucket; its keys share its limits. Repeatable.",
        ),
        _flag("--any-key", is_flag=True, help="Accept any non-empty key."),
        _flag(
            "--latency",
            default="0,0",
            show_default=True,
            metavar="MIN,MAX",
            help="Seconds before an answer.",
        ),
        _flag(
            "--review-latency",
            metavar="MIN,MAX",
            help="Seconds before a review, if different.",
        ),
        _flag(
            "--seed",
            default=0,
            show_default=True,
            help="Seed of the latencies: same prompt, same time.",
        ),
        _flag("--rpm", type=_POSITIVE, help="Calls per minute for each bucket."),
        _flag(
            "--seconds",
            default=60.0,
            type=click.FloatRange(min=0, min_open=True),
            show_default=True,
            help='Length of the "minute" of --rpm, --tpm, --itpm and --otpm.',
        ),
        _flag(
            "--window",
            type=click.Choice(["sliding", "fixed", "bucket"]),
            default="sliding",
            show_default=True,
            help="How limits are counted; fixed windows are aligned to the clock.",
        ),
        _flag("--burst", type=_POSITIVE, help="With --window bucket: calls allowed at once."),
        _flag("--concurrency", type=_POSITIVE, help="Concurrent calls per bucket."),
        _flag("--rpd", type=_POSITIVE, help="Calls per day for each bucket."),
        _flag("--tpm", type=_POSITIVE, help="Tokens per minute, prompt and answer combined."),
        _flag("--itpm", type=_POSITIVE, help="Prompt tokens per minute."),
        _flag("--otpm", type=_POSITIVE, help="Answer tokens per minute."),
        _flag(
            "--limit",
            multiple=True,
            metavar="KEY:LIMITS",
            help="Limits for one key or bucket, such as key-1:rpm=5,tpm=9000; repeatable.",
        ),
        _flag("--per-model", is_flag=True, help="Apply limits to each model of a bucket separately."),
        _flag("--count-refused", is_flag=True, help="Count refused calls against --rpm and --rpd."),
        _flag(
            "--no-hints", is_flag=True, help="Reveal nothing about the limits: no name, no delay, no header."
        ),
        _flag(
            "--fault",
            multiple=True,
            metavar="JSON",
            help="Scripted fault; repeatable.",
        ),
        _flag("--faults", type=_FILE, help="File of scripted faults, a JSON list."),
        _flag(
            "--ledger",
            type=click.Path(dir_okay=False, path_type=Path),
            help="File to append a JSON line per call to.",
        ),
        _flag("--die-with-parent", is_flag=True, help="Exit when stdin closes."),
    ],
)
