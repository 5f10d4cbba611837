"""Runs one command and turns its result, or the error it raised, into an exit code and a message."""

import errno

import click

from agentos.core.errors import AgentosError


def run_command(command: click.Command, args: list[str], name: str) -> int:
    try:
        result = command.main(args, prog_name=name, standalone_mode=False)
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
        _discard_stdout()
        return 0
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        click.echo(
            f"Error: {error.strerror}: raise the limit (ulimit -n 256) and run the same command again",
            err=True,
        )
        return 3


def _discard_stdout() -> None:
    """The reader of our output (such as head) is gone: flushing at exit must not fail."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
