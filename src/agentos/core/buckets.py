"""The buckets: what the credentials of one quota share, for each model."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from agentos.core.credentials import Credential
from agentos.core.loads import Dimension
from agentos.core.manners import Manners
from agentos.core.neighbours import BucketRefused
from agentos.core.pacing import Pace
from agentos.core.rests import Rest

EVERY_MODEL = "*"
Moves = Iterable[tuple[Credential, str | None]]


@dataclass(slots=True)
class Bucket:
    """What the credentials of one quota share, for one model."""

    pace: Pace
    rest: Rest = field(default_factory=Rest)

    def count_day(self, now: float) -> bool:
        """Whether the day's calls are used up only now: then it rests until they are back."""
        until = self.pace.day_over_until(now)
        if until is None or until <= self.rest.spent_until:
            return False
        self.rest.recall(0.0, until, f"{self.pace.rates[Dimension.DAY].amount:g} requests a day", now)
        return True


class Buckets:
    """By quota and model; made when first asked for, with what is known of their provider."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Bucket] = {}
        self._rests: dict[str, list[Rest]] = {}
        self._resting: dict[str, BucketRefused] = {}
        self._manners: dict[tuple[str, str | None], Manners] = {}

    def of(self, credential: Credential, model: str) -> Bucket:
        place = (credential.quota, model)
        if place not in self._known:
            pace = Pace(dict(credential.rates), self.manners(credential), credential.midnight)
            self._add(place, Bucket(pace))
            if note := self._resting.get(credential.quota):
                self._known[place].rest.recall(note.until, note.spent_until, note.reason, note.at)
        return self._known[place]

    def manners(self, credential: Credential) -> Manners:
        """Those of the provider behind this address."""
        place = (credential.provider, credential.base_url)
        if place not in self._manners:
            self._manners[place] = Manners()
        return self._manners[place]

    def rests(self, quota: str) -> list[Rest]:
        """Of all its models that were asked for; the list goes on being true."""
        return self._rests.setdefault(quota, [])

    def all(self) -> dict[tuple[str, str], Bucket]:
        return dict(self._known)

    def rest_for_every_model(self, note: BucketRefused) -> None:
        """Also for those that nobody has asked for yet."""
        self._resting[note.bucket] = note
        for rest in self.rests(note.bucket):
            rest.recall(note.until, note.spent_until, note.reason, note.at)

    def carry(self, moves: Moves) -> None:
        """Credentials with the quotas that they had: a bucket rests on as long as one of its keys is there."""
        known, self._known, self._rests = self._known, {}, {}
        for credential, old in moves:
            for (quota, model), bucket in known.items():
                if quota == old:
                    self._carry(credential, model, bucket, quota == credential.quota)

    def _carry(self, credential: Credential, model: str, bucket: Bucket, same: bool) -> None:
        place = (credential.quota, model)
        first = place not in self._known
        if first and same:
            self._add(place, bucket)
        kept = self.of(credential, model)
        if first:
            kept.pace.give(dict(credential.rates))
        rest = bucket.rest
        kept.rest.recall(rest.until, rest.spent_until, rest.reason, rest.refused_at)

    def _add(self, place: tuple[str, str], bucket: Bucket) -> None:
        self._known[place] = bucket
        self.rests(place[0]).append(bucket.rest)
