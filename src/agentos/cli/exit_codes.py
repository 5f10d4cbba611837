"""Carries one command out; whatever comes of it becomes an exit code and a word."""

import errno

import click

from agentos.core.errors import AgentosError


def run_command(command: click.Command, words: list[str], name: str) -> int:
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
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        click.echo(f"Error: {error.strerror}: allow more (ulimit -n 256), and type the same again", err=True)
        return 3


def _reader_gone() -> int:
    """The reader of our output has closed it, as head does: nothing more is to be said."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0
