"""How a run would go: the same brain, on a clock that is not waited for."""

from dataclasses import dataclass, replace

from agentos.core.bounds import MAX_PARALLEL
from agentos.core.experience import Experience
from agentos.core.neighbours import BucketLearnt
from agentos.core.results import Usage
from agentos.core.secrets import Secret
from agentos.core.trial import Bottleneck, Scene, Trial


@dataclass(frozen=True, slots=True)
class Forecast:
    """None is not known; `ended` counts the items that a run would get to before it stops.

    `runs` and `lives` say what it is drawn from; without an exit code the run would last for days.
    """

    usage: Usage | None = None
    cost: float | None = None
    seconds: float | None = None
    items: int = 0
    ended: int = 0
    exit_code: int | None = None
    bottleneck: Bottleneck | None = None
    one_more_worker: float | None = None
    one_more_key: float | None = None
    lives: int = 0
    runs: int = 0


def forecast(scene: Scene, experience: Experience) -> Forecast:
    """What would come of it, as far as earlier runs tell."""
    known = experience.whole()
    if not known.lives or not any(credential.enabled for credential in scene.credentials):
        return Forecast(items=len(scene.entries), runs=experience.runs)
    tried = Trial(scene, known).live()
    more_workers = replace(scene.limits, parallel=scene.limits.parallel + 1)
    at_most = scene.limits.parallel >= MAX_PARALLEL
    return Forecast(
        usage=tried.usage,
        cost=tried.cost,
        seconds=tried.seconds,
        items=len(scene.entries),
        ended=tried.ended,
        exit_code=tried.exit_code,
        bottleneck=tried.bottleneck,
        one_more_worker=None if at_most else Trial(replace(scene, limits=more_workers), known).live().seconds,
        one_more_key=Trial(_with_one_more_key(scene), known).live().seconds,
        lives=len(known.lives),
        runs=known.runs,
    )


def _with_one_more_key(scene: Scene) -> Scene:
    """One like the first usable, with a quota of its own."""
    model = next(credential for credential in scene.credentials if credential.enabled)
    more = replace(model, name="one-more", secret=Secret("one more key, imagined"), bucket="")
    learnt = [
        replace(note, bucket=more.quota)
        for note in scene.notes
        if isinstance(note, BucketLearnt) and note.bucket == model.quota
    ]
    return replace(scene, credentials=(*scene.credentials, more), notes=(*scene.notes, *learnt))
