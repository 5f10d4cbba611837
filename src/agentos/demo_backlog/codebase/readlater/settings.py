"""Settings of an account."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class AccountSettings:
    """What a person can choose. New settings need a default, so that stored ones stay readable."""

    font_size: int = 18
    time_zone: str = "UTC"
    page_width: int = 640


def load_settings(folder: Path, account: int) -> AccountSettings:
    path = folder / f"{account}.json"
    return AccountSettings(**json.loads(path.read_text())) if path.exists() else AccountSettings()


def save_settings(folder: Path, account: int, settings: AccountSettings) -> None:
    (folder / f"{account}.json").write_text(json.dumps(asdict(settings)))
