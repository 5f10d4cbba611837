"""Says which settings of an untrusted project are not used."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from agentos.config.settings import Settings


def warn_held_back(settings: "Settings", workflow: str = "", err: bool = False) -> None:
    """One line where settings are held back; an error where the run would do something else without them."""
    if not settings.held_back:
        return
    names = ", ".join(settings.held_back)
    click.echo(
        f"Not used from agentos.toml, since this project is not trusted: {names}. To allow: agentos trust",
        err=err,
    )
    if "github" not in settings.held_back:
        return
    if workflow == "issue" or (workflow == "lld" and not (settings.project / "issues").is_dir()):
        from agentos.core.errors import PreflightError

        raise PreflightError(
            "this project keeps its issues on GitHub, and your token is not used for a project that you have not "
            "trusted: read its agentos.toml, then type agentos trust (or add --trust for this run alone)"
        )
