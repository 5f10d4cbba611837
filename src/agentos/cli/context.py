"""`agentos context`: shows what a model would see of the project's code for one issue."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentos.cli.json_output import json_option, print_json
from agentos.cli.shell_complete import complete_pending

if TYPE_CHECKING:
    from agentos.run.context_preview import ContextPreview


def _run(item: str, context: tuple[str, ...], repo: Path | None, raw: bool, as_json: bool) -> int:
    from agentos.cli.run import context_files
    from agentos.config.settings import Flags, read_settings
    from agentos.core.text.line_assembler import clean_lines
    from agentos.run.context_preview import preview_context

    settings = read_settings(Flags(repo=repo, context=context_files(context, repo)))
    preview = preview_context(settings, item, lambda text: click.echo(text, err=True))
    if as_json:
        print_json(_as_json(preview, settings.code_tokens))
        return 0
    if not raw:
        for line in _summary(preview, settings.code_tokens):
            click.echo(line)
    click.echo(clean_lines(_sent(preview)))
    return 0


def _summary(preview: "ContextPreview", limit: int) -> list[str]:
    from agentos.core.text.line_assembler import one_line
    from agentos.outputs.format import dollars

    item, context = preview.item, preview.context
    where = (
        f"commit {context.commit[:12]}; changes that are not committed are not seen" if context.commit else ""
    )
    lines = [
        one_line(f"{item.id}  {item.title}"),
        f"Code: {where or 'the files in the folder, which is not under git'}",
        "",
        f"{'tokens':>7}  {'part':<15} why",
    ]
    lines += [
        one_line(f"{part.tokens:>7,}  {part.kind:<15} {f'{part.path}: ' if part.path else ''}{part.why}")
        for part in context.parts
    ]
    prices = "; ".join(f"{dollars(p.cost)} per call of the {p.role} ({p.model})" for p in preview.prices)
    lines += [
        f"{context.tokens:>7,}  in total, of {limit:,} (code_tokens)" + (f": {prices}" if prices else "")
    ]
    if preview.skipped:
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in preview.skipped.items())
        lines.append(f"Left out: {reasons}")
    return [*lines, "", "Sent with every draft and review of this item, enclosed in tags:", ""]


def _sent(preview: "ContextPreview") -> str:
    """The material in the order of the prompt: first what all items share."""
    return "\n\n".join(filter(None, (preview.context.shared_text, preview.context.own_text)))


def _as_json(preview: "ContextPreview", limit: int) -> dict[str, object]:
    context = preview.context
    return {
        "item": preview.item.id,
        "commit": context.commit or None,
        "code_tokens": limit,
        "tokens": context.tokens,
        "parts": [
            {"kind": part.kind, "path": part.path or None, "why": part.why, "tokens": part.tokens}
            for part in context.parts
        ],
        "prices": [{"role": p.role, "model": p.model, "cost": p.cost} for p in preview.prices],
        "left_out": preview.skipped,
        "text": _sent(preview),
    }


command = click.Command(
    "context",
    help="Show exactly what the models would see of the project's code for an issue, why, and what it costs. "
    "Sends nothing.",
    params=[
        click.Argument(["item"], metavar="ITEM", shell_complete=complete_pending),
        click.Option(
            ["--context"],
            multiple=True,
            metavar="PATH",
            help="Show this file whole too; repeatable, as for agentos run.",
        ),
        click.Option(
            ["--repo"],
            type=click.Path(path_type=Path, file_okay=False),
            help="Project folder (default: the current folder or a parent).",
        ),
        click.Option(["--raw"], is_flag=True, help="Print only the text that would be sent."),
        json_option(),
    ],
    callback=_run,
    epilog="\b\nExamples:\n  agentos context LLD-42\n  agentos context 42 --context docs/api.md --raw",
)
