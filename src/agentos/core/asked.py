"""What a pool is asked for: of a key's rests, those of these models count."""

from agentos.core.buckets import Buckets
from agentos.core.keys import Keys
from agentos.core.wants import Want


class Asked:
    """A model that only other runs ask for makes no key usable; one that a key was not asked for yet may be."""

    def __init__(self, keys: Keys, buckets: Buckets) -> None:
        self._keys = keys
        self._buckets = buckets
        self._kinds: dict[tuple[tuple[str, ...], tuple[str, ...]], Want] = {}

    def hear(self, want: Want) -> None:
        if want.kind not in self._kinds:
            self._kinds[want.kind] = want
            self._count(want)

    def again(self) -> None:
        """The keys are others now."""
        for want in self._kinds.values():
            self._count(want)

    def _count(self, want: Want) -> None:
        for key in self._keys:
            if key.credential.provider in want.providers:
                model = key.credential.model or want.model(key.credential.provider)
                key.asked_for(self._buckets.of(key.credential, model).rest)
