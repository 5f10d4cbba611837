"""Words in, exit code out."""

import sys

import click

from agentos.cli.group import LazyGroup
from agentos.core.errors import AgentosError
from agentos.signals import ignore_from_now_on


def main() -> None:
    """The command `agentos`."""
    _finish(LazyGroup(), sys.argv[1:], "agentos")


def lld_workflow() -> None:
    """The command `lld-workflow`: `agentos run lld`."""
    from agentos.cli.run import workflow_command

    _finish(workflow_command("lld"), sys.argv[1:], "lld-workflow")


def issue_workflow() -> None:
    """The command `issue-workflow`: `agentos run issue`."""
    from agentos.cli.run import workflow_command

    _finish(workflow_command("issue"), sys.argv[1:], "issue-workflow")


def _finish(command: click.Command, words: list[str], name: str) -> None:
    code = _code(command, words, name)
    ignore_from_now_on()
    sys.exit(code)


def _code(command: click.Command, words: list[str], name: str) -> int:
    try:
        result = command.main(words, prog_name=name, standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except click.exceptions.Exit as error:
        return error.exit_code
    except AgentosError as error:
        click.echo(f"Error: {error}", err=True)
        return error.exit_code
    except BrokenPipeError:
        return _reader_gone()


def _reader_gone() -> int:
    """The reader of our output has closed it, as head does: nothing more is to be said."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0
