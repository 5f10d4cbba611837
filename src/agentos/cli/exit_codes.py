"""Runs one command and turns its result, or the error it raised, into an exit code and a message."""

import errno
import io
import os
import sys

import click

from agentos.core.errors import AgentosError
from agentos.core.text.values import MORE_PROCESSES

_UNEXPECTED = "This is unexpected: run it with AGENTOS_DEBUG=1 for the traceback, and report it"
_MORE_PROCESSES = f"{MORE_PROCESSES} and run the same command again"


def run_command(command: click.Command, args: list[str], name: str) -> int:
    try:
        result = command.main(args, prog_name=name, standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        from agentos.config.secret_variables import mask_keys
        from agentos.core.text.line_assembler import clean_lines

        text = io.StringIO()
        error.show(text)
        click.echo(mask_keys(clean_lines(text.getvalue())), err=True, nl=False)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except click.exceptions.Exit as error:
        return error.exit_code
    except AgentosError as error:
        _show(str(error))
        return error.exit_code
    except BrokenPipeError:
        return _reader_gone()
    except SystemExit:
        # click turns a broken pipe into exit code 1, which means here that an item failed.
        from agentos.outputs.writer import is_reader_gone

        if is_reader_gone(1):
            return _reader_gone()
        raise
    except Exception as error:
        from agentos.config.settings import wants_traceback

        if wants_traceback():
            raise
        return _explain(error)


def _explain(error: Exception) -> int:
    """One line for an error that no command translated; 3 if the system refused something, else 1."""
    if isinstance(error, OSError):
        _show(_system_error(error))
        try:
            sys.stdout.flush()
        except OSError:
            _drop_output()
        return 3
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        _show(f"{error}: {_MORE_PROCESSES}")
        return 3
    if isinstance(error, MemoryError):
        _show("out of memory: free some, or use fewer workers (--parallel 1), and run the same command again")
        return 3
    text = " ".join(str(error).split())
    _show(f"{type(error).__name__}{f': {text}' if text else ''}. {_UNEXPECTED}")
    return 1


def _system_error(error: OSError) -> str:
    match error.errno:
        case errno.EMFILE | errno.ENFILE:
            return f"{error.strerror}: raise the limit (ulimit -n 256) and run the same command again"
        case errno.ENOSPC | errno.EDQUOT:
            where = f": {error.filename}" if error.filename else ""
            return f"{error.strerror}{where}. Free some space, then run the same command again"
        case errno.EAGAIN if not error.filename:
            return f"{error.strerror} (no process could be started): {_MORE_PROCESSES}"
        case errno.ENOTDIR | errno.EISDIR | errno.ELOOP if error.filename:
            return f"{error.strerror}: {error.filename}. Something on this path is of the wrong type: move it away"
        case errno.EACCES | errno.EPERM | errno.EROFS if error.filename:
            return f"{error.strerror}: {error.filename}. Make it accessible to you, or move it away"
    where = f": {error.filename}" if error.filename else ""
    return f"{error.strerror or error}{where}. {_UNEXPECTED}"


def _show(text: str) -> None:
    from agentos.config.project import with_paths_from_here
    from agentos.config.secret_variables import mask_keys
    from agentos.config.settings import environment
    from agentos.core.text.line_assembler import clean_lines

    click.echo(f"Error: {mask_keys(clean_lines(with_paths_from_here(text, environment())))}", err=True)


def _reader_gone() -> int:
    """The reader of our output, such as head, is gone."""
    _drop_output()
    return 0


def _drop_output() -> None:
    """Drop what could not be written: flushing it at exit must not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
