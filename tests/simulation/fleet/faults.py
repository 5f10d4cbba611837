"""What happens to an imagined fleet. Each fault finds its victim when it happens."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .life import Life


def _kill(life: "Life") -> None:
    if living := life.living:
        victim = life.random.choice(living)
        life.fault("killed", victim)
        victim.machine.kill()


def _freeze(life: "Life") -> None:
    """Often for long enough that its items are taken over before it is thawed."""
    running = [worker for worker in life.living if worker.machine.process.runs]
    if running:
        victim = life.random.choice(running)
        life.fault("frozen", victim)
        victim.machine.freeze()
        life.loop.call_later(life.random.choice((5.0, 35.0, 90.0)), victim.machine.thaw)


def _cut(life: "Life") -> None:
    if living := life.living:
        victim = life.random.choice(living)
        services = ["postgres", "temporal", "gateway"]
        cut = life.random.choice((services, services, ["postgres"], ["temporal"], ["gateway"]))
        life.fault("partitioned", victim)
        victim.machine.cut(*cut)
        life.loop.call_later(life.random.choice((3.0, 20.0, 70.0)), victim.machine.heal)


def _drain(life: "Life") -> None:
    draining = [worker for worker in life.living if not worker.is_draining and worker.machine.process.runs]
    if draining:
        victim = life.random.choice(draining)
        life.fault("drained", victim)
        victim.sigterm()


def _stop_postgres(life: "Life") -> None:
    if life.postgres.is_up:
        life.fault("postgres away")
        life.postgres.stop()
        life.loop.call_later(life.random.choice((1.0, 10.0, 60.0)), life.postgres.start)


def _stop_temporal(life: "Life") -> None:
    if life.temporal.is_up:
        life.fault("temporal away")
        life.temporal.stop()
        life.loop.call_later(life.random.choice((1.0, 10.0, 60.0)), life.temporal.restart)


def _kill_gateway(life: "Life") -> None:
    if life.gateway.is_up:
        life.fault("gateway killed")
        life.gateway.kill()
        life.loop.call_later(life.random.uniform(0.5, 5.0), life.gateway.start)


def _add_worker(life: "Life") -> None:
    life.add_worker()


FAULTS = (
    *(_kill, _freeze, _cut, _drain),
    *(_kill, _freeze, _stop_postgres, _stop_temporal, _kill_gateway, _add_worker),
)
