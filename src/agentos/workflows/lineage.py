"""What becomes of an item's lineage when the item is over."""

from agentos.core.protocol.ports import Documents

ACTIVE, DONE = "docs/lineage/active", "docs/lineage/done"


def retire(documents: Documents, name: str) -> None:
    """Moves a lineage from active to done, beside those of earlier times."""
    if documents.exists(f"{ACTIVE}/{name}"):
        documents.move(f"{ACTIVE}/{name}", f"{DONE}/{_free_name(documents, name)}")


def _free_name(documents: Documents, name: str) -> str:
    taken = set(documents.names(DONE))
    number = 1
    while (candidate := name if number == 1 else f"{name}-{number}") in taken:
        number += 1
    return candidate
