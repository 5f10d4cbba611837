"""What the keys of one provider find out together."""

from agentos.core.ratelimit.limits import Counting, Dimension
from agentos.core.ratelimit.provider_profile import ProviderProfile

LENGTHS = ((Dimension.REQUESTS, Counting.SLIDING, 10.0),)
ONE, OTHER = 1, 2


def test_a_trial_is_ended_only_by_a_call_of_its_own_key() -> None:
    profile = ProviderProfile()
    profile.start_trial(100.0, ONE)
    assert not profile.end_trial(100.0, OTHER)
    assert profile.end_trial(100.0, ONE)
    assert not profile.end_trial(100.0, ONE)


def test_what_early_trials_find_is_a_new_revision() -> None:
    profile = ProviderProfile()
    revisions = [profile.revision]
    profile.is_trying_early = True
    revisions.append(profile.revision)
    profile.record_shortened(LENGTHS, 2.0)
    revisions.append(profile.revision)
    profile.record_early_share(LENGTHS, 0.2)
    revisions.append(profile.revision)
    profile.record_shortened(LENGTHS, 0.0)
    revisions.append(profile.revision)
    assert len(set(revisions)) == len(revisions)
