"""Builds are done once, kept by their recipe, and survive being killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import build
from tests.cluster.place import BUILDS
from tests.cluster.processes import wait_for


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The build.sh of a build called `thing`."""
    monkeypatch.setattr(build, "BUILDS", tmp_path / "builds")
    (tmp_path / "builds" / "thing").mkdir(parents=True)
    script = tmp_path / "builds" / "thing" / "build.sh"
    script.write_text(f'echo built >> {tmp_path}/count\necho one > "$OUT/result"\n')
    return script


def test_a_build_is_done_once_for_each_recipe(recipe: Path, tmp_path: Path) -> None:
    """Twenty minutes of compiling are spent again only if what is compiled has changed."""
    first = build.build(tmp_path, "thing")
    assert (first / "result").read_text() == "one\n"
    assert build.build(tmp_path, "thing") == first
    assert (tmp_path / "count").read_text() == "built\n"
    (recipe.parent / "main.go").write_text("package main\n")
    assert build.build(tmp_path, "thing") != first
    assert (tmp_path / "count").read_text() == "built\n" * 2


def test_a_failed_build_says_why_and_leaves_nothing_that_counts(recipe: Path, tmp_path: Path) -> None:
    """A compiler's error reaches the person at the terminal; the next try starts afresh."""
    good = recipe.read_text()
    recipe.write_text('echo half > "$OUT/half"\necho no such module >&2\nfalse\n')
    with pytest.raises(build.BuildError, match=r"building thing failed, see .*no such module"):
        build.build(tmp_path, "thing")
    assert not build.place(tmp_path, "thing").exists()
    recipe.write_text(good)
    assert [path.name for path in build.build(tmp_path, "thing").iterdir()] == ["result"]


def test_a_killed_build_is_begun_again(recipe: Path, tmp_path: Path) -> None:
    """A session that ends while compiling costs the next one nothing but the time."""
    hold = f'echo half > "$OUT/half"\ntouch {tmp_path}/began\nexec sleep 600\n'
    good = recipe.read_text()
    recipe.write_text(f"[ -e {tmp_path}/second ] || {{ {hold} }}\n{good}")
    code = f"""
from pathlib import Path
from tests.cluster import build
from tests.cluster.place import BUILDS
build.BUILDS = Path({str(recipe.parents[1])!r})
build.build(Path({str(tmp_path)!r}), "thing")
"""
    with subprocess.Popen([sys.executable, "-c", code], process_group=0) as builder:
        wait_for((tmp_path / "began").exists, "the build's beginning")
        subprocess.run(["kill", "-9", "--", f"-{builder.pid}"], check=True)
    (tmp_path / "second").touch()
    assert [path.name for path in build.build(tmp_path, "thing").iterdir()] == ["result"]


def test_names_that_begin_alike_do_not_meet(recipe: Path, tmp_path: Path) -> None:
    """Argo 4.0 and 3.7 are built side by side."""
    (recipe.parents[1] / "thing-2").mkdir()
    (recipe.parents[1] / "thing-2" / "build.sh").write_text(f'{sys.executable} -c "" && cp build.sh "$OUT/"\n')
    other = build.build(tmp_path, "thing-2")
    assert build.build(tmp_path, "thing") != other
    assert (other / "build.sh").exists()


def test_every_build_has_a_recipe() -> None:
    """A name without a build.sh would be noticed only on a machine that has never built it."""
    assert all((BUILDS / name / "build.sh").is_file() for name in build.NAMES)


def test_the_cache_forgets_what_nobody_uses(tmp_path: Path) -> None:
    """Each change of a recipe leaves hundreds of megabytes; a disk must not fill up with them."""
    paths = [tmp_path / name for name in ("build/used-1", "build/old-1", "images/old.tar", "build/.lock", "run/x")]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.mkdir() if path.name.endswith("1") else path.touch()
        os.utime(path, (0, 0))
    build.tidy(tmp_path, [tmp_path / "build/used-1"])
    assert [path.name for path in paths if path.exists()] == ["used-1", ".lock", "x"]
