"""What a command writes: whether that has changed, and whether others of the job can read it."""

from __future__ import annotations

import threading
import time

from ..learner import contract
from .identity import Identity
from .safe_files import make_readable, walk

READABLE_EVERY = 15.0  # seconds between two looks at the modes of what the command has written


def fingerprint() -> tuple[int, int]:
    """Changes when a file in the job's checkpoint folder does."""
    files = [changed for _, _, changed in walk(contract.path(contract.CHECKPOINT_DIR))]
    return len(files), max(files, default=0)


class Written:
    """The folders that the command of a member writes to."""

    def __init__(self, identity: Identity) -> None:
        self._folders = (
            identity.spec.result_dir(identity.job_id),
            *map(contract.path, (contract.CHECKPOINT_DIR, contract.LOG_DIR)),
        )
        self._at = 0.0

    def make_readable(self) -> None:
        for folder in self._folders:
            make_readable(folder)

    def keep_readable(self, now: float) -> None:
        """For shipping, and in case there is no time at the end. In a thread: the files may be many and far away."""
        if now >= self._at:
            self._at = float("inf")
            threading.Thread(target=self._once, name="readable", daemon=True).start()

    def _once(self) -> None:
        began = time.monotonic()
        self.make_readable()
        now = time.monotonic()
        self._at = now + max(READABLE_EVERY, 20 * (now - began))
