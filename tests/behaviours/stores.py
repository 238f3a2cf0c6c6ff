"""Data stores of the tests: manifest keys, and what is in a folder."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.steps import s3 as servers

Setting = Callable[[str, str], None]  # the fixture `setting`


def tree(folder: Path) -> dict[str, str]:
    """The files of a folder by name, each as its digest."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def fill(folder: Path, names: list[str], size: int, dice: random.Random) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(dice.randbytes(size))


def store(endpoint: str, data: str, results: str, kind: str = "s3_datastore", **connection: str) -> dict[str, Any]:
    """The manifest's key for two buckets."""
    login = {"auth_url": endpoint, "user_name": servers.KEY, "password": servers.SECRET}
    return {
        "data_stores": [
            {
                "id": "the-store",
                "type": kind,
                "training_data": {"container": data},
                "training_results": {"container": results},
                "connection": {**login, **connection},
            }
        ]
    }
