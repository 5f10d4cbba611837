"""All that a worker is told at its start."""

from dataclasses import dataclass

from agentos.core.gates import Gate
from agentos.core.items import Item


@dataclass(frozen=True, slots=True)
class RoleModel:
    """Who plays a role: providers in the order of preference, and the model to ask each for."""

    role: str
    providers: tuple[str, ...]
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Order:
    run: str
    coordinator: int
    project: str
    workflow: str
    item: Item
    database: str
    max_iterations: int
    models: tuple[RoleModel, ...]
    fresh: bool = False
    redo: bool = False
    gates: tuple[Gate, ...] = ()
