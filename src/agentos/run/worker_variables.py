"""Additional environment variables of a workflow's workers: those passed by name, and those of the run's gateway."""

import contextlib
from collections.abc import Callable, Iterable, Mapping

from agentos.config.secret_variables import withheld_from_workers
from agentos.config.settings import Settings, environment
from agentos.core.errors import PreflightError, UsageError
from agentos.core.planning.worker_task import Variable
from agentos.core.protocol.ports import Engine
from agentos.core.text.secrets import Redactor, Secret
from agentos.engines.gateway_events import GatewayAwareEngine
from agentos.gateway.child import GatewayChild, start_gateway
from agentos.workflows.plugin import Plugin
from agentos.workflows.registry import BUILT_IN

Say = Callable[[str], None]


class WorkerVariables:
    """The additional variables of each item's worker.

    `passed` are the variables that the user passed by name. Models that the nodes create themselves find a gateway in
    the variables that their SDKs read, with a token of the item: their calls are paced, counted and within the budget.
    """

    def __init__(self, workflow: Plugin, passed: Mapping[str, str], redact: Redactor, say: Say) -> None:
        self._workflow = workflow
        self._passed = {**_declared(workflow), **passed}
        self._redact = redact
        self._say = say
        self._gateway: GatewayChild | None = None
        redact.add(Secret(value) for value in self._passed.values() if value)

    @property
    def gateway_url(self) -> str:
        return self._gateway.url if self._gateway else ""

    def of(self, item: str) -> tuple[Variable, ...]:
        found = dict(self._gateway.environment(item)) if self._gateway else {}
        found |= self._passed
        return tuple(Variable(name, Secret(value)) for name, value in found.items())

    def check(self, secrets: Iterable[Secret]) -> None:
        """Refuse to pass a key of the pool, which no worker may have, and report once what is withheld."""
        keys = {secret.reveal() for secret in secrets}
        if taken := [name for name, value in self._passed.items() if value in keys]:
            raise UsageError(
                f"{taken[0]} is a key of the pool, which is not passed to workers: leave it out; models that "
                "the graph creates use the run's gateway instead"
            )
        withheld = [name for name in withheld_from_workers(environment()) if name not in self._passed]
        if withheld and self._workflow.origin not in BUILT_IN.values():
            self._say(
                f"Not passed to the workers, because they look like credentials: {', '.join(withheld)}. "
                f"To pass one: --env {withheld[0]}"
            )

    def with_gateway(
        self,
        engine: Engine,
        settings: Settings,
        items: Iterable[str],
        stack: contextlib.ExitStack,
        *,
        offline: bool,
    ) -> Engine:
        """Start the gateway if the workflow uses one; the returned engine reports the gateway's calls as the items'."""
        if not self._workflow.uses_gateway or settings.engine != "process":
            return engine
        arguments = ("--repo", str(settings.project), "--max-wait", f"{settings.max_wait:g}s")
        self._gateway = start_gateway(
            environment(),
            (*arguments, *(("--offline",) if offline else ())),
            self._redact,
            self._say,
            settings.budget,
        )
        stack.callback(self._gateway.close)
        return GatewayAwareEngine(engine, self._gateway.events(), items, self._gateway.settle)


def _declared(workflow: Plugin) -> dict[str, str]:
    """The variables that the workflow says its nodes need."""
    known = environment()
    if missing := [name for name in workflow.env if name not in known]:
        raise PreflightError(
            f"the workflow at {workflow.origin} needs the environment variable {missing[0]}, which is not set: "
            f"export {missing[0]}=..."
        )
    return {name: known[name] for name in workflow.env}
