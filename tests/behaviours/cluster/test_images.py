"""A learner's image is the user's: whatever is in it, and whatever is not, the agent runs there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.behaviours.cluster_user import ClusterUser
from tests.cluster import build
from tests.cluster.images import Image, archive

SHELL = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **arguments) {
    char path[4096];
    snprintf(path, sizeof path, "%s/said", getenv("RESULT_DIR"));
    FILE *out = fopen(path, "w");
    fprintf(out, "%s|%s|%d|%s\n", arguments[1], arguments[2], (int)getuid(), getenv("LD_LIBRARY_PATH"));
    return fclose(out);
}
"""
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
SCRIPT = """
import os, sys
import numpy
from ffdl import learner

with learner.session() as job:
    state = {"step": 0, "weights": numpy.zeros(3)}
    for step in range(3):
        state["step"] = step + 1
        job.step(step + 1, of=3, state=state)
with open(os.environ["RESULT_DIR"] + "/said", "w") as out:
    print(*sys.version_info[:2], os.getuid(), os.environ["LD_PRELOAD"], file=out)
"""


def run(user: ClusterUser, image: Image, command: str, **files: str) -> str:
    """What a job with that image says, once it has completed."""
    cluster = user.tenant.cluster
    # a whole release is kept, as the cluster's own images are; a program made just now is not
    cluster.load(archive(image, cluster.place.cache / "images" if image.root else user.folder / "images"))
    folder = user.job(framework={"name": "custom", "version": image.name, "command": command})
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    job = user.train(folder)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert "the image has no bash" in user.ffdl("logs", job).stdout or image.root
    return (user.results(job) / "said").read_text()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc and a static C library: apt install gcc libc6-dev")
def test_an_image_with_one_static_program(user: ClusterUser, tmp_path: Path) -> None:
    """Not even a shell or a C library that the agent could use; and a user with no name and no rights."""
    (tmp_path / "shell.c").write_text(SHELL)
    shell = tmp_path / "sh"
    subprocess.run(["gcc", "-static", "-Os", "-o", shell, tmp_path / "shell.c"], check=True)
    settings = {"Env": ["PATH=/bin", "LD_LIBRARY_PATH=/bin", "PYTHONHOME=/nowhere"], "User": "1234:1234"}
    bare = Image("localhost/ffdl-test-bare:1", {"bin/sh": shell}, config=settings)
    assert run(user, bare, "what to do") == "-c|what to do|1234|/bin\n"


def test_an_image_of_another_release(user: ClusterUser) -> None:
    """Its C library is another than the agent's and preloaded at that; its own Python imports the learner library."""
    root = build.build(user.tenant.cluster.place.cache, "trixie") / "rootfs"
    settings = {"Env": [f"LD_LIBRARY_PATH={LIBRARIES}", f"LD_PRELOAD={LIBRARIES}/libm.so.6"]}
    trixie = Image("localhost/ffdl-test-trixie:1", root=root, config=settings)
    assert run(user, trixie, "python3 script.py", script=SCRIPT) == f"3 13 0 {LIBRARIES}/libm.so.6\n"
