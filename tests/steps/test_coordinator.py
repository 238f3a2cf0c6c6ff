"""The coordinator alone: every order of events, no process, no clock but the test's."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ffdl.learner import contract
from ffdl.steps import coordinator as module
from ffdl.steps.coordinator import Coordinator
from ffdl.steps.effects import Annotate, Close, DeletePod, Effect, Mark, Record, Send, Stop
from ffdl.steps.journal import State
from ffdl.steps.report import Pace, report
from ffdl.steps.view import Snapshot

TOKEN = "secret"


def spec(learners: int = 1, **changes: Any) -> contract.JobSpec:
    values: dict[str, Any] = {"name": "n", "command": "c", "framework": "f", "framework_version": "v", "cpus": 1.0}
    values |= {"gpus": 0.0, "memory": 1 << 29, "results": None, "halt_grace": 20.0}
    return contract.JobSpec(learners=learners, **(values | changes))


def make(learners: int = 1, state: State | None = None, **changes: Any) -> Coordinator:
    return Coordinator(spec(learners, **changes), "job", TOKEN, 7, state or State(), 0.0)


def join(index: int, attempt: int = 0, **changes: Any) -> dict[str, Any]:
    incarnation = f"{index}.{attempt}"
    return {
        "type": "join",
        "token": TOKEN,
        "role": "learner",
        "index": index,
        "attempt": attempt,
        "incarnation": incarnation,
        "address": f"10.0.0.{index}",
        "port": 1000 + index,
        "running": False,
        **changes,
    }


def sent(effects: list[Effect], conn: int) -> list[str]:
    return [effect.message["type"] for effect in effects if isinstance(effect, Send) and effect.conn == conn]


def records(effects: list[Effect]) -> list[str]:
    return [effect.record["kind"] for effect in effects if isinstance(effect, Record)]


def test_a_world_is_announced_when_all_are_there() -> None:
    """No learner waits inside a framework's rendezvous for one that has no machine yet."""
    job = make(2)
    assert sent(job.message(1, join(0), 1.0), 1) == ["welcome"]
    effects = job.message(2, join(1), 2.0)
    assert sent(effects, 1) == ["world"]
    assert sent(effects, 2) == ["welcome", "world"]
    world = next(e.message for e in effects if isinstance(e, Send) and e.conn == 1 and e.message["type"] == "world")
    assert world["master"] == {"index": 0, "address": "10.0.0.0", "port": 1000}
    assert job.state.generation == 1


def test_one_that_comes_back_joins_at_once() -> None:
    """Independent learners do not disturb each other: the pod that was lost goes on by itself."""
    job = make(2)
    job.message(1, join(0), 1.0)
    job.message(2, join(1), 1.0)
    job.disconnected(2, 2.0)
    effects = job.message(3, join(1, attempt=1), 9.0)
    assert sent(effects, 3) == ["welcome", "world"]
    assert sent(effects, 1) == []


def test_an_earlier_attempt_is_fenced_off() -> None:
    """After a partition the old pod may still train: it must not write checkpoints beside the new one."""
    job = make()
    job.message(1, join(0), 1.0)
    effects = job.message(2, join(0, attempt=1), 2.0)
    assert sent(effects, 1) == ["refused"]
    assert any(isinstance(effect, Close) and effect.conn == 1 for effect in effects)
    assert sent(job.message(3, join(0), 3.0), 3) == ["refused"]
    assert sent(job.message(2, {"type": "done"}, 4.0), 2) == ["released"]


def test_one_whose_pod_was_made_again_hears_of_it() -> None:
    """Its log begins in the middle of the attempt; without a word nobody would look for the rest."""
    job = make()
    joins = [join(0), join(0), join(0, incarnation="made again"), join(0, attempt=1)]
    answers = [job.message(conn, message, float(conn)) for conn, message in enumerate(joins, 1)]
    told = [
        e.message.get("again") for effects in answers for e in effects if isinstance(e, Send) and "epoch" in e.message
    ]
    assert told == [None, None, True, None]


@pytest.mark.parametrize(
    "change",
    [
        *({"token": "wrong"}, {"token": None}, {"token": "é"}, {"role": "king"}, {"index": 1}, {"index": -1}),
        *({"index": "0"}, {"attempt": None}, {"incarnation": 3}),
    ],
)
def test_who_does_not_belong_is_refused(change: dict[str, Any]) -> None:
    """Only the job's own pods have a say in it."""
    job = make()
    assert sent(job.message(1, {**join(0), **change}, 1.0), 1) == ["refused"]
    assert job.members == {}


@pytest.mark.parametrize("message", [{"type": "done"}, {"type": "failed", "reason": "crash", "code": 3}, {"type": "x"}])
def test_nobody_speaks_before_joining(message: dict[str, Any]) -> None:
    """A connection without the token can't end the job."""
    job = make()
    effects = job.message(1, message, 1.0)
    assert effects == [Close(1, "it did not join")]
    assert not job.over


def test_an_end_is_written_down_before_it_is_told() -> None:
    """A helper that dies right after a learner was released still knows that it is done."""
    job = make()
    job.message(1, join(0), 1.0)
    effects = job.message(1, {"type": "done"}, 2.0)
    kinds = [type(effect) for effect in effects]
    assert records(effects) == ["done", "running", "completed"]
    assert kinds.index(Send) > max(i for i, kind in enumerate(kinds) if kind is Record)


def test_a_halted_job_shows_its_last_step_with_what_was_measured_there() -> None:
    job = make()
    job.message(1, join(0), 1.0)
    job.message(1, {"type": "heartbeat", "step": 19, "of": 60, "metrics": {"loss": 0.5}}, 2.0)
    assert report(job, Pace(), 2.0, 0.0)["checkpoint"] is None
    job.message(1, {"type": "checkpointed", "step": 36}, 2.1)
    job.message(1, {"type": "halted", "step": 36, "metrics": {"loss": 0.25}}, 2.2)
    shown = report(job, Pace(), 3.0, 0.0)
    assert (shown["step"], shown["of"], shown["checkpoint"], shown["metrics"]) == (36, 60, 36, {"loss": 0.25})


def test_what_remains_is_told_by_the_pace_since_steps_were_done_again() -> None:
    """One that was killed goes back to its checkpoint: what it did before is not to be taken for standing still."""
    job, pace = make(), Pace()
    job.message(1, join(0), 0.0)

    def remaining(step: int, now: float) -> float | None:
        job.message(1, {"type": "heartbeat", "step": step, "of": 1000, "running": True}, now)
        shown: float | None = report(job, pace, now, 0.0)["eta"]
        return shown

    assert [remaining(100, 10.0), remaining(200, 20.0)] == [None, 80.0]
    assert [remaining(101, 40.0), remaining(201, 50.0)] == [None, 79.9]


def test_halt_and_end_race() -> None:
    """A learner that is done in the moment of the halt is done; the others halt; the resumed job leaves it out."""
    job = make(2)
    job.message(1, join(0), 1.0)
    job.message(2, join(1), 1.0)
    effects = job.seen(Snapshot(suspended=True), 2.0)
    assert Mark() in effects
    assert sent(effects, 1) == sent(effects, 2) == ["halt"]
    assert sent(job.message(1, {"type": "done"}, 2.1), 1) == ["released"]
    job.disconnected(1, 2.2)
    assert not job.halted(2.3)
    job.message(2, {"type": "halted", "step": 5}, 2.4)
    job.disconnected(2, 2.5)
    assert job.halted(2.6)
    resumed = make(2, job.state)
    assert sent(resumed.message(1, join(1, attempt=1), 0.0), 1) == ["welcome", "world"]
    assert sent(resumed.message(2, join(0, attempt=1), 0.0), 2) == ["finished"]


def test_a_halt_waits_for_one_that_may_come_back() -> None:
    """A connection that broke during a halt is no halted learner: it may still be saving."""
    job = make()
    job.message(1, join(0), 1.0)
    job.seen(Snapshot(suspended=True, known=True, active=frozenset([0])), 2.0)
    job.disconnected(1, 3.0)
    assert not job.halted(3.1)
    assert sent(job.message(2, join(0, running=True), 4.0), 2) == ["welcome", "halt"]
    job.disconnected(2, 5.0)
    assert job.halted(5.1 + contract.RECONNECT_WINDOW)


def test_a_halt_has_an_end() -> None:
    """A learner that never lets go does not keep the job from being halted."""
    job = make()
    job.message(1, join(0), 1.0)
    job.seen(Snapshot(suspended=True), 2.0)
    assert not job.halted(20.0)
    assert job.halted(2.0 + 20.0 + module.HALT_MARGIN + 0.1)


def test_pods_that_have_not_started_are_deleted_on_halt() -> None:
    """Else they start in a halted job as soon as there is room."""
    job = make(2)
    effects = job.seen(Snapshot(suspended=True, pending={"pod-a": ""}), 1.0)
    assert DeletePod("pod-a") in effects
    assert DeletePod("pod-a") not in job.seen(Snapshot(suspended=True, pending={"pod-a": ""}), 2.0)


def test_a_pod_that_is_made_again_is_deleted_again() -> None:
    """A controller under load acts on what it knew before the halt: the halt is over when that is."""
    job = make(2)
    there = Snapshot(suspended=True, known=True, pending={"pod-a": ""}, starting=frozenset({"pod-a"}))
    gone = Snapshot(suspended=True, known=True, pending={"pod-a": ""})  # the node stays Pending for ever
    assert DeletePod("pod-a") in job.seen(there, 1.0)
    job.seen(gone, 1.5)
    assert not job.halted(2.0)
    assert DeletePod("pod-a") in job.seen(there, 4.0)
    assert DeletePod("pod-a") not in job.tick(5.0)
    assert DeletePod("pod-a") in job.tick(6.5)
    job.seen(gone, 7.0)
    assert not job.halted(7.0 + module.MADE_AGAIN - 1.0)
    assert job.halted(7.0 + module.MADE_AGAIN + 2 * module.MADE_AGAIN_EACH)


def test_resume_does_not_undo_a_begun_halt() -> None:
    """Some learners have already ended: all of them start again, from one checkpoint."""
    job = make()
    job.message(1, join(0), 1.0)
    job.seen(Snapshot(suspended=True), 2.0)
    job.seen(Snapshot(suspended=False), 2.1)
    job.message(1, {"type": "halted", "step": 1}, 3.0)
    job.disconnected(1, 3.0)
    assert job.halted(3.1)


def test_first_gives_the_others_a_grace() -> None:
    """The others of an FfDL job get time to write their results, and no more."""
    job = make(3, completion="first")
    for index in range(3):
        job.message(index, join(index), 1.0)
    effects = job.message(1, {"type": "done"}, 5.0)
    assert sent(effects, 1) == ["released"]
    assert sent(effects, 0) == []
    assert job.over
    assert sent(job.message(0, {"type": "failed", "reason": "crash", "code": 1}, 6.0), 0) == ["complete"]
    job.message(2, {"type": "heartbeat", "running": True}, 4.0 + module.FIRST_GRACE)
    assert sent(job.tick(4.0 + module.FIRST_GRACE), 2) == []
    effects = job.tick(5.0 + module.FIRST_GRACE)
    assert (sent(effects, 0), sent(effects, 2)) == ([], ["complete"])


def test_a_failure_ends_the_job_once() -> None:
    """The first failure is the reason; what it drags along is not."""
    job = make(2)
    job.message(1, join(0), 1.0)
    job.message(2, join(1), 1.0)
    effects = job.message(1, {"type": "failed", "reason": "crash", "code": 3}, 2.0)
    assert Annotate({contract.ANNOTATION_REASON: "learner 1 exited with code 3"}) in effects
    assert (sent(effects, 1), sent(effects, 2)) == (["verdict"], ["end"])
    effects = job.message(2, {"type": "failed", "reason": "crash", "code": 1}, 2.1)
    assert sent(effects, 2) == ["end"]
    assert job.state.ended == "learner 1 exited with code 3"
    assert not job.finished(2.2)
    job.disconnected(1, 3.0)
    job.disconnected(2, 3.0)
    assert job.finished(3.1)


@pytest.mark.parametrize(
    ("failure", "changes", "code", "reason"),
    [
        ({"reason": "crash", "code": 3}, {}, 3, "learner 1 exited with code 3"),
        ({"reason": "crash", "code": 3}, {"retry_attempts": 1}, 3, ""),
        ({"reason": "crash", "code": 64}, {"retry_attempts": 1}, 75, ""),
        (
            {"reason": "crash", "code": 3},
            {"retry_attempts": 1, "retry_on": ["out-of-memory"]},
            70,
            "exited with code 3",
        ),
        ({"reason": "out-of-memory", "code": 137, "limit": 1 << 29}, {}, 70, "ran out of memory (limit 512 MiB)"),
        ({"reason": "out-of-memory", "code": 137}, {"retry_attempts": 1}, 137, ""),
        ({"reason": "killed", "code": 137}, {}, 70, "killed (exit code 137)"),
        ({"reason": "again", "code": 75}, {}, 75, ""),
        ({"reason": "nonsense", "code": "x"}, {}, 1, "exited with code 1"),
    ],
)
def test_verdicts(failure: dict[str, Any], changes: dict[str, Any], code: int, reason: str) -> None:
    """Exit codes decide in Argo what is retried: a final one must never be, a granted one always."""
    job = make(**changes)
    job.message(1, join(0), 1.0)
    effects = job.message(1, {"type": "failed", **failure}, 2.0)
    verdict = next(effect.message for effect in effects if isinstance(effect, Send))
    assert (verdict["type"], verdict["code"]) == ("verdict", code)
    assert job.over == bool(reason)
    assert reason in job.state.ended


def test_grants_survive_the_helper() -> None:
    """A helper that dies between two crashes does not hand out the budget anew."""
    state = State()
    for attempt in range(3):
        job = make(1, state, retry_attempts=2)
        job.message(1, join(0, attempt=attempt), 1.0)
        job.message(1, {"type": "failed", "reason": "crash", "code": 3}, 2.0)
        state = job.state
    assert state.ended == "learner 1 exited with code 3, after 2 restarts"


def test_out_of_memory_of_the_whole_container_is_told_apart() -> None:
    """On cgroup v2 the agent dies too: all there is is the node's message."""
    job = make()
    snapshot = Snapshot(members={0: "Failed"}, messages={0: "main: OOMKilled (exit code 137)"})
    job.seen(snapshot, 1.0)
    assert job.state.ended == "learner 1 ran out of memory (limit 512 MiB)"


def test_restarts_after_the_death_of_a_container_are_counted() -> None:
    """Argo grants them by itself: without a count a training that needs more memory starts again for ever."""
    job = make(retry_attempts=2)
    for kills in (1, 2):
        assert job.seen(Snapshot(oom_kills={0: kills}), 1.0) == []
    job.seen(Snapshot(oom_kills={0: 3}), 1.0)
    assert job.state.ended == "learner 1 ran out of memory (limit 512 MiB) 3 times"


def test_only_running_time_counts() -> None:
    """Queued and halted time is not the user's; max_runtime ends the job by protocol."""
    job = make(max_runtime=100.0)
    job.tick(500.0)
    job.message(1, join(0), 500.0)
    job.message(1, {"type": "heartbeat", "running": True}, 500.0)
    now = 500.0
    while not job.over:
        now += 1.0
        job.message(1, {"type": "heartbeat", "running": True}, now)
        effects = job.tick(now)
        assert now < 700.0
    assert 600.0 <= now <= 602.0
    assert sent(effects, 1) == ["end"]
    assert "max_runtime" in job.state.ended


def test_a_silent_member_is_lost() -> None:
    """A half-open connection does not keep a dead learner in the job."""
    job = make()
    job.message(1, join(0), 1.0)
    assert job.tick(1.0 + contract.HEARTBEAT_TIMEOUT) == []
    assert [e.conn for e in job.tick(1.1 + contract.HEARTBEAT_TIMEOUT) if isinstance(e, Close)] == [1]


def test_hostile_numbers_do_no_harm() -> None:
    """What a learner says is data from the user's code."""
    job = make()
    job.message(1, join(0), 1.0)
    for value in (-1, True, "x", 1e999, None, 1 << 2000, [], {}):
        job.message(
            1, {"type": "heartbeat", "step": value, "of": value, "metrics": {"a": value}, "running": value}, 2.0
        )
        job.message(1, {"type": "checkpointed", "step": value}, 2.0)
    assert job.members[0].step is None
    assert job.state.checkpoints == {}


@pytest.mark.parametrize("completion", ["all", "first", "master"])
def test_every_interleaving_comes_to_an_end(completion: str) -> None:
    """Joins, losses, deaths, halts, failures and ends in any order: the job never hangs nor runs anyone twice."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    for number in range(150):
        _play(random.Random(seed + number), completion)


def _play(chance: random.Random, completion: str) -> None:
    learners = chance.randrange(1, 5)
    state, now, conns = State(), 0.0, 0
    live: dict[int, int] = {}  # learner -> connection
    attempts = dict.fromkeys(range(learners), 0)
    released: set[int] = set()
    suspended = False
    job = make(learners, state, completion=completion, retry_attempts=1)
    for turn in range(4000):
        now += chance.uniform(0.0, 1.5)
        calm = turn > 200  # from here on nothing bad happens any more
        effects = job.seen(Snapshot(suspended=suspended), now) + job.tick(now)
        if job.finished(now):
            assert job.state.ended or completion != "all" or released == set(range(learners))
            return
        if job.halted(now) or (not calm and chance.random() < 0.01):  # the helper's end, planned or not
            live.clear()
            suspended = suspended and not calm
            job = Coordinator(job.spec, "job", TOKEN, 1, job.state, now)
            continue
        index = chance.randrange(learners)
        event = chance.choice(["go", "go", "done", "lost", "halt", "fail", "suspend", "resume"])
        if index not in live and index not in released:
            conns += 1
            live[index], attempts[index] = conns, attempts[index] + 1
            effects += job.message(conns, join(index, attempts[index]), now)
        elif index in live and event == "done":
            effects += job.message(live[index], {"type": "done"}, now)
        elif index in live and not calm and event == "lost":
            effects += job.disconnected(live.pop(index), now)
        elif index in live and not calm and event == "fail" and chance.random() < 0.1:
            effects += job.message(live[index], {"type": "failed", "reason": "crash", "code": 3}, now)
        elif event == "suspend" and not calm:
            suspended = chance.random() < 0.3
        elif event == "resume" or calm:
            suspended = False
        for other, conn in list(live.items()):
            effects += job.message(conn, {"type": "heartbeat", "running": True}, now)
            said = sent(effects, conn)
            if "world" in said:
                assert other not in released, "a finished learner was started again"
            if {"released", "finished", "complete"} & set(said):
                released.add(other)
            if {"released", "finished", "complete", "end", "verdict", "halt", "refused"} & set(said):
                if "halt" in said:
                    job.message(conn, {"type": "halted", "step": 1}, now)
                job.disconnected(live.pop(other), now)
    raise AssertionError("the job never ended")


NO_IMAGE = "ErrImagePull: no such image"
NO_ROOM = "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate"


def test_only_what_never_comes_is_timed() -> None:
    """A queue may be long: a job must not fail for that. An image that does not exist must not wait in it."""
    job = make(start_timeout=10.0)
    job.seen(Snapshot(pending={"a": NO_ROOM}), 0.0)
    assert job.tick(1000.0) == []
    job.seen(Snapshot(pending={"a": NO_ROOM, "b": "PodInitializing"}), 1000.0)
    assert job.tick(2000.0) == []
    job.seen(Snapshot(pending={"a": NO_ROOM, "b": NO_IMAGE}), 2000.0)
    assert job.tick(2005.0) == []
    job.seen(Snapshot(pending={"a": NO_ROOM, "b": "ImagePullBackOff: Back-off"}), 2006.0)
    reason = "could not start within start_timeout (10 s): ImagePullBackOff: Back-off"
    assert job.tick(2011.0)[-1] == Stop({contract.ANNOTATION_REASON: reason})


def test_a_wait_that_is_over_is_forgotten() -> None:
    """A Secret that somebody creates just in time: the job goes on, and the next wait begins anew."""
    job = make(start_timeout=10.0)
    job.seen(Snapshot(pending={"a": NO_IMAGE}), 0.0)
    job.tick(9.0)
    job.seen(Snapshot(active=frozenset({0})), 9.5)
    job.seen(Snapshot(refused="agent: Error (exit code 1)"), 20.0)
    job.tick(20.0)
    assert job.tick(29.0) == []
    assert records(job.tick(31.0)) == ["running", "ended"]


def test_a_pod_of_a_lost_node_is_forgotten() -> None:
    """It would stay for ever and its learner with it; one that is still heard of is left in peace."""
    job = make(2)
    job.message(1, join(0), 0.0)
    job.message(2, join(1), 0.0)
    late = Snapshot(active=frozenset({0, 1}), overdue=(("pod-0", 0), ("pod-1", 1), ("download", None)))
    job.disconnected(1, 1.0)
    assert job.seen(late, 2.0) == [DeletePod("pod-0", force=True), DeletePod("download", force=True)]
    assert job.seen(late, 3.0) == []
    job.disconnected(2, 4.0)
    assert job.seen(late, 5.0) == [DeletePod("pod-1", force=True)]


def test_a_job_that_has_failed_takes_those_along_that_wait() -> None:
    """A learner without room hears of no end: the job would be over only once it had started."""
    job = make(2)
    job.message(1, join(0), 0.0)
    job.seen(Snapshot(active=frozenset({0}), pending={"a": NO_ROOM}), 1.0)
    assert job.last() == []
    job.stop("stopped")
    assert job.last() == [Stop({contract.ANNOTATION_REASON: "stopped"})]
    job.seen(Snapshot(pending={"a": "PodInitializing"}), 2.0)
    assert job.last() == [], "it is about to start and will hear of it"
    done = make(state=State(completed=True))
    done.seen(Snapshot(pending={"a": NO_ROOM}), 1.0)
    assert done.last() == [], "a job that is complete has not failed"
