"""Pods of one job run as different users: our steps as one without rights, learners as their image says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ffdl.learner import contract
from tests.steps.volume import Job, tree

OURS, LEARNER, ANOTHER, GROUP = 65532, 1000, 1001, 65532
LIBRARY = """
import os, sys
from ffdl.learner import checkpoint, encoding
root, step = sys.argv[1:]
taken = encoding.encode({"step": int(step)})
for _ in range(2):
    checkpoint.write(root, int(step), taken.document(), taken.contents, generation=1, epoch=1, world_size=1)
checkpoint.prune(root, 1)
assert [found.step for found in checkpoint.committed(root)] == [int(step)]
"""
SECRETIVE = """
import os, sys
os.umask(0o077)
for folder in sys.argv[1:]:
    os.makedirs(f"{folder}/mine", exist_ok=True)
    for name in ("private", f"of-{os.getuid()}"):
        with open(f"{folder}/mine/{name}", "a") as stream:
            stream.write("x")
"""
WIDENED = "import sys; from ffdl.steps.safe_files import make_readable; [make_readable(f) for f in sys.argv[1:]]"


class Shared(Job):
    """Its steps run as OURS, on a volume that belongs to nobody in particular."""

    def start(self, step: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        variables = self.environment | {contract.ROOT_ENV: str(self.root), contract.JOB_ID_ENV: "training-abcdefghij"}
        program = f"from ffdl.steps import {step}; {step}.main()"
        return as_user(OURS, program, list(arguments), variables | environment)

    def learner(self, user: int, program: str, *arguments: object) -> None:
        process = as_user(user, program, list(map(str, arguments)), {})
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, output + errors


def as_user(user: int, program: str, arguments: list[str], variables: dict[str, str]) -> subprocess.Popen[str]:
    """Imports as root, for the Python that runs the tests may lie in a folder that is closed to others."""
    begin = "import os, ffdl.steps.download, ffdl.steps.store_results, ffdl.steps.folder_store, ffdl.learner.encoding\n"
    begin += "import codecs; codecs.lookup('cp437')\n"  # an import, too
    begin += f"os.umask(0o022); os.setgroups([{GROUP}]); os.setgid({user}); os.setuid({user})\n"
    return subprocess.Popen(
        [sys.executable, "-c", begin + program, *arguments], env={**os.environ, **variables}, cwd="/",
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.fixture
def folder() -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("needs root to be several users")
    made = Path(tempfile.mkdtemp(prefix="ffdl-users-"))  # pytest's own folders are closed to other users
    made.chmod(0o755)
    try:
        yield made
    finally:
        shutil.rmtree(made)


def volume(root: Path, mode: int) -> Shared:
    """A job's volume as the kubelet leaves it: sub-folders with the mode of the volume's root."""
    job = Shared(root)
    for sub_path in (contract.JOB_DIR, contract.DATA_ROOT, contract.RESULTS_ROOT, contract.HELPER_DIR,
                     contract.JOURNAL_DIR, contract.STORE_DIR):  # fmt: skip
        os.chown(job.path(sub_path), 0, 0 if mode == 0o777 else GROUP)
        job.path(sub_path).chmod(mode)
    return job


@pytest.mark.parametrize("mode", [0o777, 0o2775])
def test_users_share_a_volume(folder: Path, mode: int) -> None:
    """A learner may write wherever FfDL let it, its private files are stored, and the next job goes on from them."""
    first = volume(folder / "first", mode)
    first.good("download")
    first.learner(LEARNER, LIBRARY, first.checkpoints, 7)
    places = [first.result_dir, first.checkpoints, first.model, first.logs / "learner-1", first.path(contract.JOB_DIR)]
    places.append(first.path(contract.DATA_ROOT))
    first.learner(LEARNER, SECRETIVE, *places)
    first.learner(LEARNER, WIDENED, first.result_dir, first.checkpoints, first.logs)
    first.good("store_results")
    stored = tree(first.stored)
    assert stored["mine/private"] == stored["learner-1/mine/private"] == b"x"
    assert "checkpoints/step-7/COMMITTED" in stored

    second = volume(folder / "second", mode)
    shutil.rmtree(second.path(contract.STORE_DIR))
    os.rename(first.path(contract.STORE_DIR), second.path(contract.STORE_DIR))
    assert "restored the checkpoint of step 7" in second.good("download")
    second.learner(ANOTHER, SECRETIVE, second.checkpoints)
    second.learner(LEARNER, LIBRARY, second.checkpoints, 7)  # halted at once: the restored step again
    second.learner(LEARNER, LIBRARY, second.checkpoints, 8)
