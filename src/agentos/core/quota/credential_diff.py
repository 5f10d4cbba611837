"""What an edit of the credentials has changed, by the names of keys."""

from collections.abc import Iterable
from dataclasses import replace

from agentos.core.protocol.events import KeysChanged
from agentos.core.quota.credentials import Credential


def diff_credentials(before: Iterable[Credential], after: Iterable[Credential]) -> KeysChanged | None:
    """The secret, not the name, is the key: one that is called otherwise has not changed."""
    old = {credential.secret: credential for credential in before}
    new = {credential.secret: credential for credential in after}
    both = [(old[secret], credential) for secret, credential in new.items() if secret in old]
    change = KeysChanged(
        added=tuple(credential.name for secret, credential in new.items() if secret not in old),
        removed=tuple(credential.name for secret, credential in old.items() if secret not in new),
        disabled=tuple(now.name for was, now in both if was.enabled and not now.enabled),
        enabled=tuple(now.name for was, now in both if now.enabled and not was.enabled),
        changed=tuple(
            now.name for was, now in both if replace(was, name=now.name, enabled=now.enabled) != now
        ),
    )
    return None if change == KeysChanged((), ()) else change
