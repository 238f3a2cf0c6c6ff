"""Several containers in one pod: who starts when, who ends whom, and what is said of each."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ffdl.engines.local import supervisor
from ffdl.engines.local.pod import Artifact, Mount, PodObservation, PodSpec, Volume

UP = "echo up > $J/{0}; until [ -e $J/{1} ]; do sleep 0.01; done; "  # tells that it runs, and waits for another
SERVE = "trap 'echo asked >> $J/asked; exit {0}' TERM; echo up > $J/served; while :; do sleep 0.01; done"


def several(pods, scripts: dict[str, str], **more: object) -> PodObservation:
    """Runs a pod with a main container for each script; `more` is the spec's."""
    pod = make(pods, scripts, **more)
    supervisor.launch(pod)
    return pods.end(pod)


def make(pods, scripts: dict[str, str], after: dict[str, list[str]] | None = None, **more: object) -> Path:
    containers = [
        replace(pods.container(script, name), after=(after or {}).get(name, [])) for name, script in scripts.items()
    ]
    if more.get("artifacts"):
        pods.volumes["_outputs"] = Volume("empty")
        pods.mounts.append(Mount("_outputs", "/argo/outputs"))
    sidecars = [pods.container(script, name) for name, script in (more.pop("sidecars", None) or {}).items()]
    pod = pods.make("true")
    spec = PodSpec.from_json((pod / "pod.json").read_text())
    (pod / "pod.json").write_text(replace(spec, containers=containers, sidecars=sidecars, **more).to_json())
    return pod


def test_they_run_side_by_side(pods) -> None:
    """Containers of a set that wait for each other's files would never end one after the other."""
    seen = several(pods, {"a": UP.format("a", "b"), "b": UP.format("b", "a")})
    assert (seen.phase, seen.message, seen.exit_code) == ("Succeeded", "", None)
    assert {name: end.exit_code for name, end in seen.containers.items()} == {"a": 0, "b": 0}


def test_each_starts_after_those_it_depends_on(pods) -> None:
    """A set is a small DAG."""
    scripts = {"main": "echo main >> $J/order", "b": "echo b >> $J/order", "a": "sleep 0.1; echo a >> $J/order"}
    seen = several(pods, scripts, after={"main": ["b"], "b": ["a"]})
    assert (seen.phase, seen.exit_code) == ("Succeeded", 0)
    assert (pods.shared / "order").read_text().split() == ["a", "b", "main"]


def test_a_failure_ends_the_set(pods) -> None:
    """As on Argo: what depends on it is not run, what runs is asked to end; the message is the first name's."""
    scripts = {
        "z-fails": UP.format("z", "served") + "exit 3",
        "b-serves": SERVE.format(143),
        "c-waits": "echo ran > $J/ran",
        "d-waits": "echo ran > $J/ran",
    }
    seen = several(pods, scripts, after={"c-waits": ["z-fails"], "d-waits": ["b-serves"]})
    assert (seen.phase, seen.message) == ("Failed", "b-serves: Error (exit code 143)")
    ends = {name: (end.exit_code, end.detail) for name, end in seen.containers.items()}
    assert ends == {
        "z-fails": (3, ""),
        "b-serves": (143, ""),
        "c-waits": (64, 'dependency "z-fails" exited with non-zero code: 3'),
        "d-waits": (143, ""),
    }
    assert (pods.shared / "asked").exists()
    assert not (pods.shared / "ran").exists()


def test_a_container_of_a_set_is_tried_again_in_place(pods) -> None:
    """`containerSet.retryStrategy` runs a command again as long as it fails; the others don't notice."""
    pod = make(pods, {"main": "echo x >> $J/runs; echo said; [ $(wc -l < $J/runs) = 3 ]"}, result=True)
    spec = PodSpec.from_json((pod / "pod.json").read_text())
    again = replace(spec.containers[0], tries=5, pause=0.05)
    (pod / "pod.json").write_text(replace(spec, containers=[again]).to_json())
    supervisor.launch(pod)
    seen = pods.end(pod)
    assert (seen.phase, seen.result) == ("Succeeded", "said\nsaid\nsaid")
    assert (pods.shared / "runs").read_text().count("x") == 3


@pytest.mark.parametrize("code", [0, 137, 143])
def test_a_sidecar_is_there_for_as_long_as_main(pods, code: int) -> None:
    """It is asked to end when main has ended; the code it ends with then says nothing."""
    seen = several(pods, {"main": UP.format("main", "served")}, sidecars={"server": SERVE.format(code)})
    assert (seen.phase, seen.exit_code, seen.message) == ("Succeeded", 0, "")
    assert (pods.shared / "asked").read_text() == "asked\n"


def test_a_sidecar_that_does_not_end_is_killed(pods) -> None:
    """After the pod's grace: a server that hears no SIGTERM holds nobody up."""
    began = time.monotonic()
    deaf = "trap '' TERM; echo up > $J/served; while :; do sleep 0.01; done"
    seen = several(pods, {"main": UP.format("main", "served")}, sidecars={"deaf": deaf}, grace=0.3)
    assert (seen.phase, seen.message) == ("Succeeded", "")
    assert 0.3 <= time.monotonic() - began < 30


def test_a_sidecar_that_fails_fails_the_pod(pods) -> None:
    """As on Argo, though main went well: what it was to do beside has not been done."""
    pod = make(pods, {"main": UP.format("main", "go")}, sidecars={"broken": "exit 5"})
    supervisor.launch(pod)
    pods.await_(lambda: "broken" in supervisor.observe(pod).containers, "the sidecar's own end")  # main's would end it
    (pods.shared / "go").touch()
    seen = pods.end(pod)
    assert (seen.phase, seen.exit_code, seen.message) == ("Failed", 0, "broken: Error (exit code 5)")


def test_mains_failure_comes_before_a_sidecars(pods) -> None:
    seen = several(pods, {"main": "sleep 0.1; exit 2"}, sidecars={"a": "exit 5"})
    assert (seen.phase, seen.exit_code, seen.message) == ("Failed", 2, "main: Error (exit code 2)")


def test_what_is_known_while_it_runs(pods) -> None:
    """`ffdl run` shows a set's containers as they end; a pod is Running once all that can start has started."""
    pod = make(pods, {"a": "exit 0", "b": UP.format("b", "go")}, sidecars={"s": SERVE.format(143)})
    supervisor.launch(pod)
    pods.wait_for("b")
    pods.await_(lambda: "a" in supervisor.observe(pod).containers, "the end of a")
    seen = supervisor.observe(pod)
    assert (seen.phase, seen.ip, seen.containers["a"].exit_code) == ("Running", "127.0.0.1", 0)
    (pods.shared / "go").touch()
    assert pods.end(pod).phase == "Succeeded"


def test_deleting_asks_all_of_them(pods) -> None:
    """And what waits for its turn is not started any more."""
    scripts = {"main": SERVE.format(0), "later": "echo ran > $J/ran"}
    pod = make(pods, scripts, after={"later": ["main"]}, sidecars={"s": SERVE.format(0).replace("served", "s")})
    supervisor.launch(pod)
    pods.wait_for("served")
    pods.wait_for("s")
    supervisor.terminate(pod)
    seen = pods.end(pod)
    assert (seen.phase, seen.exit_code, seen.message) == ("Error", -1, "pod deleted")
    assert (pods.shared / "asked").read_text() == "asked\nasked\n"
    assert not (pods.shared / "ran").exists()


def test_the_supervisors_death_ends_all_of_them(pods) -> None:
    """`kill -9` leaves no sidecar behind."""
    pod = make(pods, {"a": UP.format("a", "never")}, sidecars={"s": UP.format("s", "never")})
    supervisor.launch(pod)
    for name in ("a", "s"):
        pods.wait_for(name)
    os.kill(json.loads((pod / "started").read_text())["supervisor"]["pid"], signal.SIGKILL)
    seen = pods.end(pod)
    assert (seen.phase, seen.message) == ("Error", "pod deleted")
    assert pods.marked() == []


def test_memory_is_each_containers_own(pods, accounting: str) -> None:
    """One container over its limit is said to be; a neighbour with room is not counted in."""
    hog = f'{sys.executable} -S -c "x = bytearray({{0}} << 20); import time; time.sleep({{1}})"'
    pod = make(pods, {"main": f"exec {hog.format(60, 0.6)}", "hog": f"exec {hog.format(300, 1000)}"})
    spec = PodSpec.from_json((pod / "pod.json").read_text())
    limited = [replace(each, memory=96 << 20) for each in spec.containers]
    (pod / "pod.json").write_text(replace(spec, containers=limited).to_json())
    supervisor.launch(pod)
    seen = pods.end(pod)
    assert (seen.phase, seen.message) == ("Failed", "hog: OOMKilled (exit code 137)")
    assert pods.cgroups() == []


def test_a_result_is_standard_output_alone(pods) -> None:
    """As Argo has it: one newline less; what goes to standard error is in the log only."""
    pod = pods.make("echo one; echo noise >&2; printf 'two\\n\\n'", result=True)
    supervisor.launch(pod)
    assert pods.end(pod).result == "one\ntwo\n"
    assert sorted(pods.log(pod).split()) == ["noise", "one", "two"]


def test_the_end_of_a_long_result_counts(pods) -> None:
    """Argo keeps the last 256 KiB."""
    pod = pods.make("head -c 300000 /dev/zero | tr '\\0' a; echo end", result=True)
    supervisor.launch(pod)
    result = pods.end(pod).result
    assert len(result) == 256 << 10
    assert result.endswith("aend")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["no-such-program"], 'exec: "no-such-program": executable file not found in $PATH'),
        (["/no/such"], 'exec: "/no/such": stat /no/such: no such file or directory'),
        (["/etc/passwd"], 'exec: "/etc/passwd": permission denied'),
    ],
)
def test_a_command_that_is_not_there(pods, argv: list[str], said: str) -> None:
    """In Argo's words, with its exit code 64: the node's message says what is missing."""
    seen = pods.run(argv)
    assert (seen.phase, seen.exit_code) == ("Failed", 64)
    assert seen.message == f"main: Error (exit code 64): failed to find name in PATH: {said}"


ARTIFACTS = "mkdir -p $R/d/e; echo inner > $R/d/e/f; ln -s e/f $R/d/link; echo text > $R/file; "


@pytest.mark.parametrize("archive", ["tar", "zip", "none"])
def test_artifacts_go_from_pod_to_pod(pods, archive: str) -> None:
    """A file and a folder, packed in each way, are the same in the next pod; modes as asked for."""
    kept = pods.folder / "store"
    made = [
        Artifact(name, f"/ffdl/run/{path}", str(kept / name), archive) for name, path in (("d", "d"), ("file", "file"))
    ]
    script = ARTIFACTS.replace("ln -s e/f", "cp $R/d/e/f") if archive == "zip" else ARTIFACTS
    seen = several(pods, {"main": script}, artifacts=made)
    assert (seen.phase, seen.message, seen.artifacts) == ("Succeeded", "", ["d", "file"])
    mounts = [Mount("_inputs", "/in/d", "d"), Mount("_inputs", "/in/file", "file")]
    pods.volumes["_inputs"] = Volume("empty")
    pods.mounts += mounts
    taken = [replace(a, path=f"/in/{a.name}", archive="auto" if archive == "tar" else archive) for a in made]
    taken[1] = replace(taken[1], mode=0o600)
    look = "cd $FFDL_ROOT/in; cat d/e/f d/link file; stat -Lc %a file"
    pod = make(pods, {"main": look}, inputs=taken)
    supervisor.launch(pod)
    seen = pods.end(pod)
    assert (seen.phase, seen.message) == ("Succeeded", "")
    assert pods.log(pod).split() == ["inner", "inner", "text", "600"]


def test_an_artifact_may_lie_in_a_volume(pods) -> None:
    """Its path overlaps with a mount: it is put into the volume itself, whatever was there."""
    (pods.shared / "deep").mkdir()
    (pods.shared / "deep/in").write_text("old")
    artifact = Artifact("a", "/job/deep/in", archive="auto", data="new text")
    pod = make(pods, {"main": "cat $J/deep/in"}, inputs=[artifact])
    supervisor.launch(pod)
    assert pods.end(pod).phase == "Succeeded"
    assert pods.log(pod) == "new text"
    assert (pods.shared / "deep/in").read_text() == "new text"


def test_an_artifact_follows_no_link_out_of_its_volume(pods) -> None:
    """A step before may have put a link there: nothing of this machine is written through it."""
    (pods.shared / "deep").symlink_to(pods.folder)
    seen = several(pods, {"main": "true"}, inputs=[Artifact("a", "/job/deep/in", archive="auto", data="x")])
    assert seen.phase == "Error"
    assert seen.message == "init: Error (exit code 64): artifact a failed to load: a symbolic link is in the way"
    assert not (pods.folder / "in").exists()


@pytest.mark.parametrize(("optional", "phase"), [(True, "Succeeded"), (False, "Error")])
def test_an_artifact_that_was_not_made(pods, optional: bool, phase: str) -> None:
    """An optional one may be missing; else the pod is an Error, in Argo's words, though main went well."""
    wanted = [Artifact("a", "/ffdl/other/none", str(pods.folder / "kept"), optional=optional)]
    seen = several(pods, {"main": "true"}, artifacts=wanted)
    assert (seen.phase, seen.exit_code, seen.artifacts) == (phase, 0, [])
    if not optional:
        place = "/var/run/argo/outputs/artifacts/ffdl/other/none.tgz"
        assert seen.message == f"wait: Error (exit code 64): open {place}: no such file or directory; "


def test_a_failed_command_has_its_outputs_too(pods) -> None:
    """What a step wrote before it failed can be looked at."""
    seen = several(
        pods,
        {"main": "echo x > $R/file; exit 3"},
        artifacts=[Artifact("a", "/ffdl/run/file", str(pods.folder / "kept"))],
    )
    assert (seen.phase, seen.exit_code, seen.artifacts) == ("Failed", 3, ["a"])
    assert (pods.folder / "kept").exists()
