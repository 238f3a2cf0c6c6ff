"""The helper's view of its Workflow on a cluster: what it sees and what it writes, over real connections."""

from __future__ import annotations

import base64
import gzip
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ffdl.learner import contract
from ffdl.steps import cluster_view, journal, outside
from ffdl.steps.cluster_view import ClusterView
from ffdl.steps.kube import Kube, KubeError
from ffdl.steps.pods import pod_of, with_pods
from ffdl.steps.view import Snapshot, snapshot
from tests.steps.api_server import GO_ON, ApiServer, Handler, serve
from tests.steps.test_kube import until

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl for the server's certificate")
ID = "training-abcdefghij"
Object = dict[str, Any]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    with serve(tmp_path / "api") as running:
        running.put("workflows", workflow())
        yield running


@pytest.fixture
def view(server: ApiServer, tmp_path: Path) -> Iterator[ClusterView]:
    made = new_view(server, tmp_path)
    made.take_epoch()
    yield made
    made.close()


def new_view(server: ApiServer, folder: Path, patience: float = cluster_view.START_PATIENCE) -> ClusterView:
    kube = Kube("127.0.0.1", server.port, str(server.folder), timeout=2.0)
    return ClusterView(kube, ID, str(folder / "journal"), patience, stream=1.0)


def workflow(nodes: dict[str, tuple[str, str, str]] | None = None, compressed: bool = False, **spec: Any) -> Object:
    """`nodes`: display name -> (type, phase, message)."""
    made: Object = {}
    for name, (kind, phase, message) in (nodes or {}).items():
        template = name.partition("(")[0]
        made[name] = {"id": f"{ID}-{node_hash(name)}", "displayName": name, "name": f"{ID}.{name}", "type": kind}
        made[name] |= {"phase": phase, "message": message, "templateName": template}
    status: Object = {"nodes": made}
    if compressed:
        status = {"compressedNodes": base64.b64encode(gzip.compress(json.dumps(made).encode())).decode()}
    about = {"name": ID, "labels": {contract.LABEL_JOB: ID}}
    return {"metadata": about, "spec": spec, "status": status}


def node_hash(name: str) -> str:
    return str(sum(ord(letter) * 31**place for place, letter in enumerate(name)) % (1 << 32))


def pod(node: str, phase: str, main: Object | None = None, **status: Any) -> Object:
    """A pod as Argo makes it for `node`, its main container in the state `main`."""
    role = node.partition("(")[0]
    about: Object = {"name": f"{ID}-{role}-{node_hash(node)}", "uid": f"uid-{node}"}
    about["labels"] = {contract.LABEL_JOB: ID, contract.LABEL_ROLE: role}
    about["annotations"] = {"workflows.argoproj.io/node-name": f"{ID}.{node}"}
    containers = [{"name": "wait", "state": {"running": {}}}, {"name": "main", "state": main or {"running": {}}}]
    return {"metadata": about, "status": {"phase": phase, "containerStatuses": containers, **status}}


def ending(found: Object, grace: int) -> Object:
    found["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace}
    return found


# --- what is seen -----------------------------------------------------------------------------------------------------


def seen(nodes: dict[str, tuple[str, str, str]], *pods: Object, **more: Any) -> Snapshot:
    whole = workflow(nodes)
    return with_pods(snapshot(whole, whole["status"]), map(pod_of, pods), more.get("said", {}), more.get("overdue", ()))


def test_pods_say_earlier_who_runs() -> None:
    """Argo's word comes seconds later: a halt would wait for learners that are gone, or leave one that just started."""
    nodes = {"learner(0:0)(0)": ("Pod", "Running", ""), "learner(1:1)(0)": ("Pod", "Pending", "")}
    found = seen(
        nodes,
        pod("learner(0:0)(0)", "Running", {"terminated": {"exitCode": 75}}),
        pod("learner(1:1)(0)", "Running"),
        pod("learner(2:2)(0)", "Pending"),
        pod("download", "Running"),
        pod("checkpoint", "Running"),
    )
    assert found.active == {1}
    assert found.busy
    assert list(found.pending) == [f"{ID}-learner-{node_hash('learner(2:2)(0)')}"], "one that Argo does not show yet"


def test_a_pod_on_its_way_out_will_not_start() -> None:
    """It has been deleted already: a halt need not do it again."""
    assert seen({}, ending(pod("learner(0:0)", "Pending"), 30)).pending == {}


def test_why_a_pod_does_not_start() -> None:
    """The end of a job that can't start says why: in the pod's words, its events', or Argo's where there is no pod."""
    nodes = {"learner(0:0)": ("Retry", "Running", ""), "learner(0:0)(0)": ("Pod", "Pending", "PodInitializing")}
    image = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'}}
    waits = {"waiting": {"reason": "PodInitializing"}}
    assert seen(nodes, pod("learner(0:0)(0)", "Pending", image)).stuck == 'ImagePullBackOff: Back-off pulling image "x"'
    assert seen(nodes, pod("learner(0:0)(0)", "Pending", waits)).stuck == ""
    mount = 'FailedMount: MountVolume.SetUp failed for volume "v" : secret "s" not found'
    told = {"uid-learner(0:0)(0)": mount}
    assert seen(nodes, pod("learner(0:0)(0)", "Pending", waits), said=told).stuck == mount
    quota = (
        'pods "x" is forbidden: exceeded quota: ffdl, requested: requests.nvidia.com/gpu=9, '
        "used: requests.nvidia.com/gpu=0, limited: requests.nvidia.com/gpu=8"
    )
    assert seen({"learner(0:0)(0)": ("Pod", "Pending", quota)}).stuck == quota
    room = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    room["message"] = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: "
    room["message"] += "1 No preemption victims found for incoming pod."
    assert seen(nodes, pod("learner(0:0)(0)", "Pending", waits, conditions=[room])).stuck == "", "room may come"


def test_argo_is_not_believed_against_the_pod() -> None:
    """With its controller down a node says Pending for ever: a job that runs must not be stopped for that."""
    nodes = {"learner(0:0)(0)": ("Pod", "Pending", 'ImagePullBackOff: Back-off pulling image "x"')}
    assert seen(nodes).stuck
    assert not seen(nodes, pod("learner(0:0)(0)", "Running")).stuck


def test_attempts_that_never_begin_are_one_long_wait() -> None:
    """An image without a shell fails anew every five seconds: in between it looks like any pod that is starting."""
    refused = ("Pod", "Failed", "agent: Error (exit code 1)")
    one = {"learner(0:0)": ("Retry", "Running", ""), "learner(0:0)(0)": refused}
    assert seen(one).stuck == "agent: Error (exit code 1)"
    two = one | {"learner(0:0)(1)": ("Pod", "Pending", "PodInitializing")}
    assert seen(two, pod("learner(0:0)(1)", "Pending")).stuck == "agent: Error (exit code 1)"
    assert seen(two, pod("learner(0:0)(1)", "Running")).stuck == ""


def test_a_large_workflow_is_unpacked(server: ApiServer, view: ClusterView) -> None:
    """Above a megabyte Argo compresses the nodes: a job of a thousand learners ends like any other."""
    nodes = {f"learner({i}:{i})": ("Retry", "Succeeded", "") for i in range(1000)}
    server.put("workflows", workflow(nodes, compressed=True))
    until(lambda: len(view.read().members) == 1000)


def test_a_halt_is_heard_at_once(server: ApiServer, view: ClusterView) -> None:
    """The Argo UI's button only sets `spec.suspend`."""
    assert not view.read().suspended
    view.watch.drain()
    heard = threading.Event()

    def listen() -> None:
        descriptor = view.watch.descriptor
        assert descriptor is not None
        while not view.read().suspended:
            os.read(descriptor, 8) if select_one(descriptor) else None
        heard.set()

    thread = threading.Thread(target=listen)
    thread.start()
    server.put("workflows", workflow(suspend=True))
    assert heard.wait(5.0)
    thread.join()


def select_one(descriptor: int) -> bool:
    import select

    return bool(select.select([descriptor], [], [], 5.0)[0])


def test_a_fresh_look_sees_what_was_not_heard(server: ApiServer, view: ClusterView) -> None:
    """A job resumed in the last moment of its halt: the marker must not stay. Without a server the last word stands."""
    server.fail("watch", "workflows", lambda handler: silence(handler))
    server.cut()
    until(lambda: server.count("watch", "workflows") > 1)
    server.put("workflows", workflow(suspend=True))
    server.put("pods", pod("learner(0:0)", "Pending"))
    found = view.read(fresh=True)
    assert (found.suspended, len(found.pending)) == (True, 1)
    assert not view.read().suspended, "the stream was to be silent"
    server.stop()
    view.read(fresh=True)


def silence(handler: Handler) -> None:
    handler.begin_stream()
    threading.Event().wait(3.0)


def test_events_tell_of_volumes(server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Secret that does not exist is named by an event alone: the pod only says that it is starting."""
    monkeypatch.setattr(cluster_view, "CHORES", 0.2)
    view = new_view(server, tmp_path)
    view.take_epoch()
    made = server.put("pods", pod("learner(0:0)", "Pending", {"waiting": {"reason": "PodInitializing"}}))
    uid, words = made["metadata"]["uid"], 'MountVolume.SetUp failed for volume "s" : secret "s" not found'
    event = {"metadata": {"name": "e"}, "involvedObject": {"uid": uid}, "type": "Warning", "reason": "FailedMount"}
    server.put("events", {**event, "message": words, "lastTimestamp": "2026-01-01T00:00:01Z"})
    until(lambda: view.read().stuck == f"FailedMount: {words}")
    server.put("pods", pod("learner(0:0)", "Running"))
    until(lambda: not view.read().stuck)
    view.close()


def test_a_pod_that_does_not_end_is_noticed(
    server: ApiServer, view: ClusterView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a node that is gone it would stay for ever, and the learner with it."""
    monkeypatch.setattr(cluster_view, "OVERDUE", 0.5)
    server.put("pods", ending(pod("learner(1:1)", "Running"), 0))
    server.put("pods", ending(pod("learner(2:2)", "Running"), 60))
    name = f"{ID}-learner-{node_hash('learner(1:1)')}"
    assert view.read().overdue == ()
    until(lambda: view.read().overdue == ((name, 1),))


def test_a_workflow_that_is_gone_was_seen_last(server: ApiServer, view: ClusterView) -> None:
    """Somebody has deleted it: its pods are told to end, and until then nothing must go wrong for that."""
    server.put("workflows", workflow({"learner(0:0)": ("Retry", "Running", "")}))
    until(lambda: view.read().known)
    server.remove("workflows", ID)
    until(lambda: not view._workflow.items)
    assert view.read(fresh=True).known


def test_without_an_api_server_it_does_not_begin(server: ApiServer, tmp_path: Path) -> None:
    """The helper is then started again; it has to say why."""
    server.stop()
    with pytest.raises(KubeError, match="the API server can't be reached"):
        new_view(server, tmp_path, patience=0.5)
    server.start()
    for _ in range(50):
        server.fail("list", "pods", lambda handler: handler.error(403, "Forbidden"))
    with pytest.raises(KubeError, match="403: Forbidden"):
        new_view(server, tmp_path, patience=2.0)


# --- what is written --------------------------------------------------------------------------------------------------


def status(server: ApiServer) -> Object:
    return server.objects["configmaps", f"{ID}-status"]


def test_no_epoch_is_taken_twice(server: ApiServer, tmp_path: Path) -> None:
    """Two helpers at once after a partition: the higher one wins, so there must be a higher one."""
    views = [new_view(server, tmp_path) for _ in range(4)]
    taken: list[int] = []
    threads = [threading.Thread(target=lambda view=view: taken.append(view.take_epoch())) for view in views]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == [1, 2, 3, 4]
    about = status(server)["metadata"]
    assert about["annotations"][cluster_view.EPOCH] == "4"
    assert about["labels"] == {contract.LABEL_JOB: ID, contract.LABEL_REPORT: "true"}
    assert about["ownerReferences"][0]["uid"] == server.objects["workflows", ID]["metadata"]["uid"]
    for view in views:
        view.close()


def test_one_that_is_overtaken_takes_the_next_epoch(server: ApiServer, tmp_path: Path) -> None:
    """Between a helper's look and its write another one may have written."""
    for _ in range(2):
        first = new_view(server, tmp_path)
        first.take_epoch()
        first.close()

    def overtake(_: Handler) -> object:
        found = status(server)
        found["metadata"]["annotations"][cluster_view.EPOCH] = "3"
        server.put("configmaps", found)
        return GO_ON

    server.fail("patch", "configmaps", overtake)
    view = new_view(server, tmp_path)
    assert view.take_epoch() == 4
    view.close()


def test_an_older_helper_learns_that_it_is(server: ApiServer, view: ClusterView, tmp_path: Path) -> None:
    """From the newer one's journal on the job's volume, or, where it does not show, from the API server."""
    assert view.epoch() == 1
    newer = new_view(server, tmp_path / "elsewhere")
    assert newer.take_epoch() == 2
    view.report({"message": "training"})
    until(lambda: view.epoch() == 2)
    assert "data" not in status(server), "its report is not wanted any more"
    newer.report({"message": "halting"})
    until(lambda: "data" in status(server))
    newer.close()
    journal.Journal(str(tmp_path / "journal"), 3).close()
    assert view.epoch() == 3


def test_an_epoch_outlives_its_config_map(server: ApiServer, tmp_path: Path) -> None:
    """Somebody may delete it: the journal still knows which epochs there were."""
    journal.Journal(str(tmp_path / "journal"), 7).close()
    view = new_view(server, tmp_path)
    assert view.take_epoch() == 8
    server.remove("configmaps", f"{ID}-status")
    view.report({"message": "training"})
    until(lambda: ("configmaps", f"{ID}-status") in server.objects)
    until(lambda: status(server).get("data"))
    assert status(server)["metadata"]["annotations"][cluster_view.EPOCH] == "8"
    view.close()


def test_reports_are_few_and_the_phase_is_told_at_once(server: ApiServer, view: ClusterView) -> None:
    """Each is a write to the cluster's database; `ffdl list` is not to lag behind a halt all the same."""

    def told() -> Object:
        return json.loads(status(server).get("data", {}).get("report", "{}"))  # type: ignore[no-any-return]

    view.report({"message": "training", "step": 0})
    until(lambda: told().get("step") == 0)
    before = server.count("patch", "configmaps")
    for step in range(1, 20):
        view.report({"message": "training", "step": step})
        time.sleep(0.02)
    view.report({"message": "halting", "step": 100})
    until(lambda: told() == {"message": "halting", "step": 100})
    view.report({"message": "halting", "step": 101})
    assert server.count("patch", "configmaps") == before + 1
    view.close()
    assert told()["step"] == 101, "the last word is not lost"


def test_annotating_stopping_and_deleting(server: ApiServer, view: ClusterView) -> None:
    """Stop has its reason in the same write; a deletion by force leaves no time, and both mean that very pod."""
    made = server.put("pods", ending(pod("learner(0:0)", "Running"), 60))
    until(lambda: view.read().active)
    view.annotate({contract.ANNOTATION_REASON: "é"})
    until(lambda: "annotations" in server.objects["workflows", ID]["metadata"])
    view.stop({contract.ANNOTATION_REASON: "could not start"})
    until(lambda: server.objects["workflows", ID]["spec"].get("shutdown") == "Stop")
    about = server.objects["workflows", ID]["metadata"]
    assert about["annotations"] == {contract.ANNOTATION_REASON: "could not start"}
    view.delete_pod(made["metadata"]["name"], force=True)
    view.delete_pod("unknown")
    until(lambda: server.count("delete", "pods") == 2)
    bodies = [json.loads(query["body"]) for verb, _, query in server.seen if verb == "delete"]
    assert [body.get("gracePeriodSeconds") for body in bodies] == [0, None]
    assert [body.get("preconditions") for body in bodies] == [{"uid": made["metadata"]["uid"]}, None]


# --- the programs -----------------------------------------------------------------------------------------------------


class Program:
    """A step as a pod of the cluster would run it, its paths beneath `root`."""

    def __init__(self, root: Path, server: ApiServer, **changes: Any) -> None:
        self.root = root
        account = root / "var/run/secrets/kubernetes.io/serviceaccount"
        account.parent.mkdir(parents=True)
        account.symlink_to(server.folder)
        values: Object = {"name": "n", "command": "c", "framework": "f", "framework_version": "v", "learners": 1}
        values |= {"cpus": 1.0, "gpus": 0.0, "memory": 1 << 29, "results": None, "halt_grace": 5.0}
        spec = contract.JobSpec(**(values | changes))
        for name, text in (("ffdl/config/job.json", spec.to_json()), ("ffdl/token/token", "t")):
            (root / name).parent.mkdir(parents=True)
            (root / name).write_text(text)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FFDL_")},
            contract.ROOT_ENV: str(root),
            contract.JOB_ID_ENV: ID,
            contract.POD_IP_ENV: "127.0.0.1",
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(server.port),
            "ARGO_PROGRESS_FILE": str(root / "progress"),
        }

    def start(self, step: str, **environment: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", f"ffdl.steps.{step}"]
        environment = {**self.environment, **environment}
        return subprocess.Popen(
            command, env=environment, cwd="/", text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def file(self, name: str) -> Object:
        path = self.root / name
        return json.loads(path.read_text()) if path.exists() else {}


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=40)
    return process.returncode, output


def test_a_pod_that_can_not_start_is_withdrawn_by_a_halt(server: ApiServer, tmp_path: Path) -> None:
    """Else it would start in the halted job as soon as there is room, and hold what a halt was to free."""
    name = server.put("pods", pod("learner(0:0)", "Pending", {"waiting": {"reason": "PodInitializing"}}))["metadata"]
    program = Program(tmp_path / "root", server)
    helper = program.start("checkpoint")
    until(lambda: program.file("ffdl/helper/address.json"))
    server.put("workflows", workflow(suspend=True))
    code, output = ended(helper)
    assert code == contract.EXIT_AGAIN, output
    assert ("pods", name["name"]) not in server.objects
    assert (tmp_path / "root/ffdl/helper/halted").exists()
    assert json.loads(status(server)["data"]["report"])["message"] == "halting"


def test_a_job_that_can_not_start_is_stopped(server: ApiServer, tmp_path: Path) -> None:
    """An image that does not exist never will: FAILED with the cluster's own words, not PENDING for ever."""
    image = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    server.put("pods", pod("learner(0:0)", "Pending", image))
    helper = Program(tmp_path / "root", server, start_timeout=1.0).start("checkpoint")
    code, output = ended(helper)
    assert code == contract.EXIT_DONE, output
    found = server.objects["workflows", ID]
    assert found["spec"]["shutdown"] == "Stop"
    reason = "could not start within start_timeout (1 s): ErrImagePull: no such image"
    assert found["metadata"]["annotations"] == {contract.ANNOTATION_REASON: reason}


def test_a_helper_without_an_api_server_is_started_again(server: ApiServer, tmp_path: Path) -> None:
    """It says why, and its exit code is the one that is tried again."""
    program = Program(tmp_path / "root", server)
    server.token = "another"
    process = subprocess.Popen(
        [sys.executable, "-c", "from ffdl.steps import checkpoint, cluster_view as c; c.ClusterView.__init__."
         "__defaults__ = (0.5, 20.0); raise SystemExit(checkpoint.main())"],
        env=program.environment, cwd="/", text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    code, output = ended(process)
    assert (code, output) == (75, "the helper can't start: the API server says 401: Unauthorized as told\n")


def test_a_helper_is_small(server: ApiServer, tmp_path: Path) -> None:
    """There is one for each job of the cluster: it asks for 64 MiB and must stay well below, with a large job too."""
    nodes = {f"learner({i}:{i})": ("Retry", "Running", "") for i in range(500)}
    nodes |= {f"learner({i}:{i})({n})": ("Pod", "Failed", "main: Error") for i in range(500) for n in range(5)}
    server.put("workflows", workflow(nodes, compressed=True))
    for i in range(500):
        server.put("pods", pod(f"learner({i}:{i})(4)", "Running"))
    program = Program(tmp_path / "root", server, learners=500)
    helper = program.start("checkpoint")
    try:
        until(lambda: program.file("ffdl/helper/address.json"))
        for number in range(3):
            server.put("workflows", {**workflow(nodes, compressed=True), "number": number})
        peak = next(line for line in Path(f"/proc/{helper.pid}/status").read_text().splitlines() if "VmHWM" in line)
        print(peak)
        assert int(peak.split()[1]) < 40 << 10, peak
    finally:
        helper.kill()
        helper.communicate()


def test_the_exit_step_waits_for_those_who_write(server: ApiServer, tmp_path: Path) -> None:
    """Argo starts it while learners are still in their grace: their last files belong to the results, too."""
    server.put("pods", pod("learner(0:0)", "Running"))
    server.put("pods", pod("checkpoint", "Running"))
    server.put("pods", pod("store-after-failure", "Running"))
    program = Program(tmp_path / "root", server)
    written = journal.Journal(str(program.root / "ffdl/journal"), 1)
    written.write({"kind": "ended", "reason": "learner 1 failed"})
    written.close()
    store = program.start("store_results", FFDL_OUTCOME="Failed")
    until(lambda: server.count("list", "pods") >= 2)
    server.remove("pods", f"{ID}-checkpoint-{node_hash('checkpoint')}")
    server.fail("list", "pods", lambda handler: handler.error(500, "Broken"))
    looks = server.count("list", "pods")
    until(lambda: server.count("list", "pods") >= looks + 2)
    assert store.poll() is None
    server.put("pods", pod("learner(0:0)", "Running", {"terminated": {"exitCode": 1}}))
    code, output = ended(store)
    assert code == 0, output
    annotations = server.objects["workflows", ID]["metadata"]["annotations"]
    assert annotations == {contract.ANNOTATION_REASON: "learner 1 failed"}, "what the helper could not say any more"


def test_the_exit_step_does_not_wait_for_ever(server: ApiServer, tmp_path: Path) -> None:
    """A learner on a node that is gone must not keep the results of the others."""
    server.put("pods", pod("learner(0:0)", "Running"))
    store = Program(tmp_path / "root", server).start("store_results", FFDL_OUTCOME="Failed", FFDL_WAIT_SECONDS="1.5")
    code, output = ended(store)
    assert code == 0, output
    assert "still running after 2 s, not waited for any longer: training-abcdefghij-learner-" in output


def test_a_step_without_a_token_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stores after a success holds none."""
    monkeypatch.setenv(contract.ROOT_ENV, str(tmp_path))
    assert isinstance(outside.workflow_of(ID), outside.Nowhere)
