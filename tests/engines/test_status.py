"""What a user is told of a job, from the Workflow objects that Argo and the local engine write."""

import base64
import gzip
import json

import pytest

from ffdl.engines.status import STATES, JobStatus, job_status
from ffdl.learner import contract

T = "2026-11-21T02:00:{:02d}Z"
T0 = 1795226400.0  # that time's full minute, in unix seconds
EXPRESSION_FALSE = "retryStrategy.expression evaluated to false"


def attempt(phase, code=None, message="", start=1, end=2, progress=""):
    """One pod, as Argo's node tells of it."""
    node = {"type": "Pod", "phase": phase, "startedAt": T.format(start)}
    if phase not in ("Pending", "Running"):
        node["finishedAt"] = T.format(end)
    if code is not None:
        node["outputs"] = {"exitCode": str(code)}
    return node | ({"message": message} if message else {}) | ({"progress": progress} if progress else {})


def task(template, *attempts, phase=None, display=None, prefix="w", index=None, message=None):
    """A Retry node with its attempts, as Argo names them."""
    name = f"{prefix}.{display or template}"
    ended = ("Succeeded", "Failed", "Error")
    last = attempts[-1]["phase"] if attempts else "Pending"
    phase = phase or ("Succeeded" if last == "Succeeded" else "Running")
    inputs = {} if index is None else {"inputs": {"parameters": [{"name": "index", "value": str(index)}]}}
    nodes = {}
    for number, node in enumerate(attempts):
        key = f"{name}({number})"
        nodes[key] = node | inputs | {"id": key, "name": key, "templateName": template}
        nodes[key] |= {"displayName": key.removeprefix(f"{prefix}."), "nodeFlag": {"retried": True}}
    retry = {"id": name, "name": name, "displayName": name.removeprefix(f"{prefix}."), "type": "Retry"} | inputs
    retry |= {"templateName": template, "phase": phase, "startedAt": T.format(1), "children": list(nodes)}
    if phase in ended:
        retry["finishedAt"] = attempts[-1].get("finishedAt", T.format(9)) if attempts else T.format(9)
    if phase == "Failed":
        retry["message"] = message or EXPRESSION_FALSE
    return nodes | {name: retry}


def learner(index, *attempts, **more):
    return task("learner", *attempts, display=f"learner({index}:{index})", index=index, **more)


def workflow(*tasks, phase="Running", suspend=False, message="", released=True, annotations=(), spec=(), **status):
    nodes = {key: node for group in tasks for key, node in group.items()}
    summary = {"framework": "numpy", "version": "2", "learners": 2, "gpus": 1, "cpus": 0.5, "memory": 512 * 2**20}
    own = {contract.ANNOTATION_NAME: json.dumps('di"gits'), contract.ANNOTATION_SUMMARY: json.dumps(summary)}
    if released:
        own[contract.ANNOTATION_RELEASED] = "true"
    status = {"phase": phase, "startedAt": T.format(1), "message": message, "nodes": nodes} | status
    if phase in ("Succeeded", "Failed", "Error"):
        status["finishedAt"] = T.format(30)
    metadata = {"name": "training-abc", "creationTimestamp": T.format(0), "annotations": own | dict(annotations)}
    return {"metadata": metadata, "spec": {"suspend": suspend} | dict(spec), "status": status}


DOWNLOADED = task("download", attempt("Succeeded", 0))
HELPER = task("checkpoint", attempt("Running"))
STORED_AFTER_FAILURE = task(
    "store-after-failure", attempt("Succeeded", 0), prefix="w.onExit[0]", display="store-results"
)


def failed(*tasks, **more):
    return workflow(DOWNLOADED, *tasks, STORED_AFTER_FAILURE, phase="Failed", **more)


@pytest.mark.parametrize(
    ("state", "made"),
    [
        ("NOT_STARTED", workflow(suspend=True, released=False, phase="")),
        ("PENDING", workflow(phase="")),
        ("QUEUED", workflow(phase="Pending", message="queued: needs 4 CPUs, 2 are free")),
        ("PENDING", workflow(task("download", attempt("Pending")), HELPER)),
        ("DOWNLOADING", workflow(task("download", attempt("Running")), HELPER)),
        ("PENDING", workflow(DOWNLOADED, HELPER, learner(0, attempt("Pending")), learner(1, attempt("Pending")))),
        ("PROCESSING", workflow(DOWNLOADED, HELPER, learner(0, attempt("Running")), learner(1, attempt("Pending")))),
        ("PROCESSING", workflow(DOWNLOADED, learner(0, attempt("Succeeded", 0)), learner(1, attempt("Running")))),
        ("STORING", workflow(DOWNLOADED, learner(0, attempt("Succeeded", 0)), HELPER)),
        (
            "STORING",
            workflow(DOWNLOADED, learner(0, attempt("Succeeded", 0)), task("store-results", attempt("Running"))),
        ),
        ("STORING", workflow(task("download", attempt("Failed", 70), phase="Failed"), HELPER)),
        ("COMPLETED", workflow(phase="Succeeded")),
        ("FAILED", workflow(phase="Failed")),
        ("FAILED", workflow(phase="Error")),
        ("HALTED", workflow(DOWNLOADED, learner(0, attempt("Failed", 75)), suspend=True)),
        ("HALTED", workflow(phase="Pending", suspend=True)),
        ("COMPLETED", workflow(phase="Succeeded", suspend=True)),
    ],
)
def test_each_state_of_a_job_is_told(state, made):
    """Users and scripts act on the one word; each place in a job's life has its own."""
    assert job_status(made).state == state


def test_a_failed_learner_is_not_a_failed_job_before_its_results_are_stored():
    """Someone who waits for FAILED and then downloads must find everything there."""
    storing = task("store-after-failure", attempt("Running"), prefix="w.onExit[0]", display="store-results")
    made = workflow(DOWNLOADED, learner(0, attempt("Failed", 3), phase="Failed"), storing)
    assert job_status(made).state == "STORING"


def test_a_halt_is_complete_only_when_nothing_runs_or_can_start():
    """HALTED means that CPUs and GPUs are free: a pod that still runs or may yet start holds them."""
    for phase in ("Running", "Pending"):
        status = job_status(workflow(DOWNLOADED, learner(0, attempt(phase)), suspend=True))
        assert status.state != "HALTED"
        assert status.halting
    status = job_status(workflow(DOWNLOADED, learner(0, attempt("Failed", 75)), suspend=True))
    assert (status.state, status.halting, status.terminal) == ("HALTED", False, False)


def test_a_resumed_job_counts_attempts_and_says_that_it_starts_again():
    """After a resume the user sees the next attempt, not an old failure."""
    between = workflow(DOWNLOADED, learner(0, attempt("Failed", 75, "main: Error (exit code 75)")))
    status = job_status(between)
    assert (status.state, status.reason) == ("PENDING", "learner 1 is to be started again")
    status = job_status(workflow(DOWNLOADED, learner(0, *[attempt("Failed", 75)] * 11, attempt("Running"))))
    assert (status.state, status.attempts, status.reason) == ("PROCESSING", 12, "")


def test_attempts_are_the_most_of_any_learner():
    """The ATTEMPTS column warns of a learner that keeps dying, whichever it is."""
    made = workflow(DOWNLOADED, learner(0, attempt("Running")), learner(1, attempt("Error"), attempt("Running")))
    assert job_status(made).attempts == 2


def test_why_a_job_waits_is_told():
    """FfDL's users were left with PENDING and no word; the engine's own reason is what helps."""
    reason = "Unschedulable: 0/1 nodes are available:\n 1 Insufficient cpu"
    made = workflow(DOWNLOADED, learner(0, attempt("Pending", message=reason)))
    assert job_status(made).reason == "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu"
    queued = job_status(workflow(phase="Pending", message="queued: needs 4 CPUs, 2 are free"))
    assert queued.reason == "needs 4 CPUs, 2 are free"
    again = workflow(DOWNLOADED, learner(1, attempt("Error", message="pod deleted")))
    assert job_status(again).reason == "learner 2 starts again after: pod deleted"
    report = {"message": "waiting for learners: 1 of 2 have joined"}
    made = workflow(DOWNLOADED, learner(0, attempt("Running")), learner(1, attempt("Pending")))
    assert job_status(made, report).reason == "waiting for learners: 1 of 2 have joined"


def test_a_learners_exit_code_is_the_reason_and_others_that_ended_with_it_are_not_blamed():
    """`exit 3` in one learner ends the others with 70; the user must be told of the 3."""
    made = failed(
        learner(0, attempt("Failed", 70, "main: Error (exit code 70)", end=4), phase="Failed"),
        learner(1, attempt("Failed", 3, "main: Error (exit code 3)", end=4), phase="Failed"),
    )
    status = job_status(made)
    assert (status.reason, status.exit_code, status.error_code) == ("learner 2 exited with code 3", 3, "C201")
    assert status.state == "FAILED"
    assert status.terminal


def test_the_first_failure_is_the_reason():
    """Learners that fail because another did must not hide the one that began it."""
    made = failed(
        learner(0, attempt("Failed", 1, end=9), phase="Failed"), learner(1, attempt("Failed", 9, end=3), phase="Failed")
    )
    assert job_status(made).exit_code == 9


def test_out_of_memory_is_told_apart_and_says_the_limit():
    """Exit code 137 alone sends users looking for who killed their job."""
    made = failed(learner(0, attempt("Failed", 137, "main: OOMKilled (exit code 137)"), phase="Failed"))
    assert job_status(made).reason == "learner 1 ran out of memory (its limit is 512 MiB)"


def test_the_helpers_words_go_before_what_can_be_derived():
    """Only the helper knows, say, that the budget of restarts is spent."""
    said = {contract.ANNOTATION_REASON: "learner 1 exited with code 3, 2 restarts were granted"}
    status = job_status(failed(learner(0, attempt("Failed", 3), phase="Failed"), annotations=said))
    assert status.reason == said[contract.ANNOTATION_REASON]
    assert status.exit_code == 3


def test_a_download_that_failed_is_told_apart_from_a_learner_that_did():
    """The user looks at the data store, not at the script."""
    download = task("download", attempt("Failed", 70, "main: Error (exit code 70)"), phase="Failed")
    status = job_status(workflow(download, STORED_AFTER_FAILURE, phase="Failed"))
    assert (status.reason, status.error_code) == ("download failed: Error (exit code 70)", "S302")
    said = {contract.ANNOTATION_REASON: "bucket 'digits' does not exist"}
    assert job_status(workflow(download, phase="Failed", annotations=said)).reason == "bucket 'digits' does not exist"


def test_results_that_could_not_be_stored_are_never_silent():
    """A trained model that is not in the store is a failed job, and a lost log is told beside the crash."""
    store = task("store-results", attempt("Failed", 70, "main: Error (exit code 70)"), phase="Failed")
    status = job_status(workflow(DOWNLOADED, learner(0, attempt("Succeeded", 0)), store, phase="Failed"))
    assert (status.reason, status.error_code) == ("results could not be stored: Error (exit code 70)", "S303")
    crash = learner(0, attempt("Failed", 3), phase="Failed")
    after = task(
        "store-after-failure", attempt("Failed", 70), phase="Failed", prefix="w.onExit[0]", display="store-results"
    )
    reason = job_status(workflow(DOWNLOADED, crash, after, phase="Failed")).reason
    assert reason == "learner 1 exited with code 3; results could not be stored: exit code 70"


def test_results_stored_at_the_second_try_leave_the_job_red_with_its_reason():
    """The exit handler's store may work where the first did not; the failure is told all the same."""
    store = task("store-results", attempt("Failed", 70, "main: Error (exit code 70)"), phase="Failed")
    status = job_status(failed(learner(0, attempt("Succeeded", 0)), store))
    assert status.reason == "results could not be stored: Error (exit code 70)"
    assert [node.phase for node in status.nodes[-2:]] == ["Failed", "Succeeded"]


def test_a_stopped_job_says_so():
    """A job that someone ended must not look like one that crashed."""
    killed = learner(0, attempt("Failed", 143), phase="Failed")
    assert job_status(failed(killed, annotations={contract.ANNOTATION_STOP: "true"})).reason == "stopped"
    assert job_status(failed(killed, spec={"shutdown": "Stop"})).reason == "stopped"
    running = workflow(DOWNLOADED, learner(0, attempt("Running")), annotations={contract.ANNOTATION_STOP: "true"})
    assert job_status(running).reason == "is being stopped"


def test_a_failure_of_unknown_kind_still_has_a_reason():
    """FAILED without a word is what FfDL's users complained of."""
    assert job_status(workflow(phase="Error", message="invalid spec:\n x")).reason == "invalid spec: x"
    assert "not recorded" in job_status(workflow(phase="Failed")).reason


def test_progress_comes_from_the_helper_and_else_from_its_node():
    """The bar must move while training goes on and survive a helper's death."""
    running = workflow(DOWNLOADED, learner(0, attempt("Running")))
    report = {"time": T0, "progress": "50/200", "step": 25, "of": 100, "eta": 60.0, "metrics": {"loss": 0.5}}
    status = job_status(running, report, now=T0 + 2)
    assert (status.progress, status.step, status.of, status.eta) == (0.25, 25, 100, 58.0)
    assert status.metrics == {"loss": 0.5}
    told = workflow(DOWNLOADED, task("checkpoint", attempt("Running", progress="3/4")), learner(0, attempt("Running")))
    assert job_status(told).progress == 0.75


def test_progress_ignores_what_argo_counts_itself():
    """Argo writes 0/1 on each pod that says nothing, and failed attempts stay in its sum: no progress of training."""
    made = workflow(DOWNLOADED, learner(0, attempt("Failed", 75, progress="0/1"), attempt("Running", progress="0/1")))
    assert job_status(made).progress is None


@pytest.mark.parametrize("progress", ["", "x", "1/0", "-1/2", "1", "1/2/3", None, "²/3"])
def test_nonsense_in_a_report_is_no_progress(progress):
    """A report is data from elsewhere; no value of it may break `ffdl list`."""
    assert job_status(workflow(), {"progress": progress}).progress is None


def test_an_eta_that_has_passed_long_ago_is_not_shown():
    """A dead helper's last promise would be shown for ever."""
    report = {"time": T0, "progress": "1/2", "eta": 5.0}
    running = workflow(DOWNLOADED, learner(0, attempt("Running")))
    assert job_status(running, report, now=T0 + 10).eta == 0.0
    assert job_status(running, report, now=T0 + 60).eta is None
    assert job_status(workflow(phase="Pending", suspend=True), report, now=T0).eta is None


def test_a_completed_job_is_at_one_hundred_percent():
    """The last report may be a second older than the end."""
    assert job_status(workflow(phase="Succeeded"), {"progress": "9/10"}).progress == 1.0


def test_what_the_submission_said_is_shown():
    """Name, framework, learners and GPUs come with the Workflow, whichever engine runs it."""
    status = job_status(workflow(phase="Succeeded"))
    assert (status.id, status.name, status.framework, status.version) == ("training-abc", 'di"gits', "numpy", "2")
    assert (status.learners, status.gpus, status.cpus, status.memory) == (2, 1, 0.5, 512 * 2**20)
    assert (status.submitted, status.started, status.finished) == (T0, T0 + 1, T0 + 30)


def test_a_workflow_that_was_edited_by_hand_is_shown_all_the_same():
    """`ffdl list` must not fall over one odd object in the namespace."""
    made = workflow()
    made["metadata"]["annotations"] = {contract.ANNOTATION_NAME: "{", contract.ANNOTATION_SUMMARY: "[1]"}
    status = job_status(made)
    assert (status.name, status.framework, status.learners) == ("training-abc", "", 1)
    assert job_status({"metadata": {"name": "x"}}).state == "PENDING"


def test_compressed_nodes_are_read():
    """Above 1 MB Argo packs the nodes: a job with many learners must not lose its status."""
    made = workflow(DOWNLOADED, *[learner(i, attempt("Running")) for i in range(1000)])
    packed = base64.b64encode(gzip.compress(json.dumps(made["status"].pop("nodes")).encode())).decode()
    made["status"]["compressedNodes"] = packed
    status = job_status(made)
    assert status.state == "PROCESSING"
    assert len([node for node in status.nodes if node.learner]) == 1000


def test_nodes_are_told_by_the_names_people_use():
    """Steps in the order of a job's life, learners counted from 1 as LEARNER_ID does, their last attempt's end."""
    learners = [learner(i, attempt("Running")) for i in (10, 2)]
    ended = learner(0, attempt("Failed", 75), attempt("Failed", 3, "main: Error (exit code 3)"), phase="Failed")
    skipped = {"s": {"type": "Skipped", "name": "w.store-results", "templateName": "store-results", "phase": "Omitted"}}
    nodes = job_status(workflow(HELPER, *learners, DOWNLOADED, ended, skipped)).nodes
    assert [node.name for node in nodes] == ["download", "checkpoint", "learner-1", "learner-3", "learner-11"]
    first = nodes[2]
    assert (first.phase, first.attempt, first.exit_code, first.message) == ("Failed", 2, 3, "main: Error (exit code 3)")
    assert (first.started, first.finished) == (T0 + 1, T0 + 2)


def test_a_status_survives_json():
    """`-o json` and the record of a finished job are this form: it must come back as it was, and older ones be read."""
    status = job_status(failed(learner(0, attempt("Failed", 3), phase="Failed")))
    values = json.loads(json.dumps(status.to_dict()))
    assert JobStatus.from_dict(values) == status
    values["nodes"][0]["of_a_later_version"] = values["of_a_later_version"] = 1
    assert JobStatus.from_dict(values) == status
    assert JobStatus.from_dict({"id": "x", "state": "FAILED"}).attempts == 1
    assert status.state in STATES


def test_only_a_node_that_stays_pending_without_a_pod_does_not_keep_a_job_from_being_halted():
    """Argo leaves the node of a pod that a halt has deleted Pending until the job is resumed."""
    waiting = learner(0, attempt("Pending", message="Unschedulable: 0/1 nodes are available"))
    halted = task("checkpoint", attempt("Failed", 75))
    at_work = task("checkpoint", attempt("Running"))
    never_began = task("checkpoint", attempt("Pending", message="ImagePullBackOff"))
    assert job_status(workflow(waiting, halted, suspend=True), pods_gone=True).state == "HALTED"
    assert job_status(workflow(waiting, halted, suspend=True)).state == "PENDING", "its pod would start"
    assert job_status(workflow(waiting, at_work, suspend=True)).state == "PENDING"
    assert job_status(workflow(waiting, halted)).state == "PENDING"
    assert job_status(workflow(waiting, never_began, suspend=True)).state == "PENDING"
    assert job_status(workflow(waiting, never_began, suspend=True), pods_gone=True).state == "HALTED"
