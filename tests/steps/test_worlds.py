"""Learners that train together, without sockets or processes: every order of joins, losses, ends and halts."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ffdl.learner import contract
from ffdl.steps.coordinator import Coordinator
from ffdl.steps.effects import Effect, Record, Send
from ffdl.steps.journal import State
from ffdl.steps.report import Pace, report
from ffdl.steps.view import Snapshot
from ffdl.steps.worlds import FAILURE_HELD
from tests.steps.test_coordinator import join, make, records, sent


def peers(learners: int, **changes: Any) -> Coordinator:
    return make(learners, distribution="peer", **changes)


def served(learners: int, servers: int, mode: str = "sync", **changes: Any) -> Coordinator:
    return make(learners, distribution="parameter-server", servers=servers, mode=mode, **changes)


Saved = list[tuple[int, int]]  # step and generation, newest first


def enter(
    index: int, attempt: int = 0, generation: int = 0, saved: Saved | None = None, **changes: Any
) -> dict[str, Any]:
    about = {"data": 2000 + index, "generation": generation, "checkpoints": as_sent(saved or [])}
    return join(index, attempt, **about, **changes)


def as_sent(saved: Saved) -> list[list[int]]:
    return [list(one) for one in saved]


def saves(job: Coordinator, conn: int, saved: Saved, now: float) -> list[Effect]:
    """The member on `conn` has `saved`, the first of it now."""
    about = {"step": saved[0][0], "checkpoints": as_sent(saved)}
    return job.message(conn, {"type": contract.CHECKPOINTED, **about}, now)


def world(effects: list[Effect], conn: int) -> dict[str, Any]:
    (found,) = [
        e.message for e in effects if isinstance(e, Send) and e.conn == conn and e.message["type"] == contract.WORLD
    ]
    return found


def begun(learners: int, **changes: Any) -> Coordinator:
    """A world of learners on connections 1, 2, …"""
    job = peers(learners, **changes)
    for index in range(learners):
        job.message(index + 1, enter(index), 0.0)
    for index in range(learners):
        beat(job, index + 1, 0.0)
    return job


def beat(job: Coordinator, conn: int, now: float) -> list[Effect]:
    about = {"running": True, "generation": job.state.generation}
    return job.message(conn, {"type": "heartbeat", **about}, now)


def test_all_are_told_where_all_are_and_a_key_of_their_own() -> None:
    """A learner must find the others, and nobody else must be able to pass for one."""
    job = peers(2)
    job.message(1, enter(0), 0.0)
    effects = job.message(2, enter(1), 0.0)
    first, second = world(effects, 1), world(effects, 2)
    assert (first["rank"], second["rank"], first["size"]) == (0, 1, 2)
    assert first["addresses"] == [["10.0.0.0", 2000], ["10.0.0.1", 2001]]
    assert first["key"] == second["key"]
    assert len(bytes.fromhex(first["key"])) == 32
    assert first["step"] == -1
    effects = job.message(3, enter(1, attempt=1), 1.0)
    assert world(effects, 3)["key"] != first["key"]


def test_a_new_attempt_begins_the_next_world_where_all_have_been() -> None:
    """Nobody may go on from a state that another does not have."""
    job = begun(3)
    both, first = [(200, 1), (100, 1)], [(100, 1)]
    for conn, saved in ((1, both), (2, both), (3, first)):
        saves(job, conn, saved, 1.0)
    job.disconnected(2, 2.0)
    effects = job.message(4, enter(1, attempt=1, saved=both), 3.0)
    assert sent(effects, 1) == ["break", "world"]
    assert sent(effects, 4)[-1] == "world"
    assert world(effects, 3)["step"] == 100
    assert world(effects, 3)["generation"] == 2
    assert "world" in records(effects)
    job.disconnected(1, 4.0)
    effects = job.message(5, enter(0, attempt=1, saved=both), 5.0)
    assert world(effects, 3)["step"] == 100, "what was saved beyond it is not gone on from"
    for conn in (5, 4, 3):
        beat(job, conn, 5.0)
    saves(job, 3, [(200, 3), (100, 1)], 6.0)
    effects = job.message(5, {"type": "restarted"}, 7.0)
    assert world(effects, 3)["step"] == 100, "200 of another world is another state"


def test_the_newest_step_that_all_have_need_not_be_anyone_s_newest() -> None:
    """One that could not write for a while has only old ones; the others have newer ones, and that one as well."""
    job = begun(2)
    saves(job, 1, [(100, 1), (80, 1), (40, 1)], 1.0)
    saves(job, 2, [(60, 1), (40, 1), (20, 1)], 1.0)
    assert world(job.message(3, enter(1, attempt=1, saved=[(60, 1), (40, 1), (20, 1)]), 2.0), 1)["step"] == 40
    job = begun(2)
    saves(job, 1, [(100, 1), (80, 1)], 1.0)
    assert world(job.message(3, enter(1, attempt=1, saved=[(40, 1)]), 2.0), 1)["step"] == -1


def test_all_are_told_what_none_may_remove() -> None:
    """The last one that all have: a learner that saves on and on would else have nothing in common with the others."""
    job = begun(2)
    assert sent(saves(job, 1, [(20, 1)], 1.0), 2) == []
    effects = saves(job, 2, [(20, 1)], 1.0)
    assert sent(effects, 1) == sent(effects, 2) == ["news"]
    assert [e.message["common"] for e in effects if isinstance(e, Send)] == [20, 20]
    assert sent(saves(job, 1, [(40, 1), (20, 1)], 2.0), 1) == [], "still the same"
    job.disconnected(2, 3.0)
    effects = job.message(3, enter(1, running=True, generation=1, saved=[(20, 1)]), 4.0)
    assert world(effects, 3)["common"] == 20
    later = Coordinator(job.spec, "job", "secret", 8, job.state, 0.0)
    later.message(1, enter(0, running=True, generation=1, saved=[(40, 1), (20, 1)]), 5.0)
    effects = later.message(2, enter(1, running=True, generation=1, saved=[(40, 1), (20, 1)]), 5.0)
    assert world(effects, 1)["common"] == world(effects, 2)["common"] == 40


@pytest.mark.parametrize(
    "junk", [None, 5, "x", [5], [[1]], [[1, 2, 3]], [["1", 2]], [[-1, 0]], [[True, 1]], [[1 << 60, 1]]]
)
def test_nonsense_is_no_checkpoint(junk: Any) -> None:
    """What a learner's pod says is not trusted."""
    job = begun(2)
    for conn in (1, 2):
        job.message(conn, {"type": "checkpointed", "step": 1, "checkpoints": junk}, 1.0)
    assert world(job.message(2, {"type": "restarted"}, 2.0), 1)["step"] == -1


def test_one_that_reconnects_in_time_is_the_same() -> None:
    """A switch that was restarted must not cost the work since the last checkpoint."""
    job = begun(2)
    job.disconnected(2, 1.0)
    assert sent(job.tick(5.0), 1) == []
    effects = job.message(3, enter(1, running=True, generation=1), 6.0)
    assert world(effects, 3)["generation"] == 1
    assert sent(effects, 1) == []
    job.disconnected(3, 7.0)
    effects = job.tick(7.0 + contract.RECONNECT_WINDOW + 0.1)
    assert sent(effects, 1) == ["break"]
    assert not job.formed
    assert world(job.message(4, enter(1, running=True, generation=1), 20.0), 1)["generation"] == 2


def test_one_whose_pod_has_ended_is_not_waited_for() -> None:
    """The cluster knows sooner than any silence tells."""
    job = begun(2)
    job.seen(Snapshot(known=True, active=frozenset({0, 1})), 1.0)
    job.disconnected(2, 2.0)
    job.seen(Snapshot(known=True, active=frozenset({0})), 2.5)
    assert sent(job.tick(2.6), 1) == ["break"]


def test_a_command_that_starts_again_begins_the_next_world() -> None:
    """The agent is the same, the process is not: what the others shared with it is gone."""
    job = begun(2)
    effects = job.message(2, {"type": "restarted"}, 1.0)
    assert sent(effects, 1) == ["break", "world"]
    assert sent(effects, 2) == ["break", "world"]


def test_a_start_again_that_is_told_twice_begins_one_world() -> None:
    """It is told again to who may not have heard it."""
    job = begun(2)
    assert sent(job.message(2, {"type": "restarted", "generation": 1}, 1.0), 1) == ["break", "world"]
    assert sent(job.message(2, {"type": "restarted", "generation": 1}, 1.5), 1) == []
    assert sent(job.message(2, {"type": "restarted", "generation": 2}, 2.0), 1) == ["break", "world"]


def test_nobody_leaves_before_all_have_finished() -> None:
    """One that is lost at the very end takes back what the others have done since the last checkpoint."""
    job = begun(2)
    assert job.message(1, {"type": "done", "generation": 1}, 1.0) == []
    assert job.state.done == []
    job.message(2, {"type": "restarted"}, 2.0)
    beat(job, 1, 3.0)
    beat(job, 2, 3.0)
    assert job.message(2, {"type": "done", "generation": 1}, 3.0) == [], "that was done in a world that is over"
    assert job.message(2, {"type": "done", "generation": 2}, 3.0) == []
    effects = job.message(1, {"type": "done", "generation": 2}, 4.0)
    assert sent(effects, 1) == sent(effects, 2) == ["released"]
    assert records(effects) == ["done", "done", "running", "completed"]


def test_what_was_finished_while_there_was_no_helper_is_finished() -> None:
    """A command that keeps no checkpoints would else do all of its work again."""
    job = peers(2, state=State(generation=1))
    job.message(1, enter(0, running=True, generation=1), 10.0)
    effects = job.message(2, enter(1, finished=True, generation=1), 11.0)
    assert world(effects, 1)["generation"] == 1
    assert job.message(2, {"type": "done", "generation": 1}, 11.0) == []
    assert sent(job.message(1, {"type": "done", "generation": 1}, 12.0), 2) == ["released"]
    job = peers(2, state=State(generation=1))
    job.message(1, enter(0, finished=True, generation=1), 10.0)
    job.message(1, {"type": "done", "generation": 1}, 10.0)
    effects = job.message(2, enter(1, attempt=1), 11.0)
    assert world(effects, 1)["generation"] == 2, "the other one has to begin anew"
    beat(job, 2, 12.0)
    assert job.message(2, {"type": "done", "generation": 2}, 12.0) == []


@pytest.mark.parametrize(("policy", "who"), [("first", 1), ("master", 0)])
def test_those_that_decide_alone_do(policy: str, who: int) -> None:
    """`completion: master` is for worlds in which the others only serve."""
    job = begun(3, completion=policy)
    if policy == "master":
        assert job.message(2, {"type": "done", "generation": 1}, 1.0) == []
    effects = job.message(who + 1, {"type": "done", "generation": 1}, 1.0)
    assert job.state.completed
    assert sent(effects, who + 1) == ["released"]


def test_a_failure_that_another_caused_is_none() -> None:
    """Frameworks exit with an error when a peer is gone: that one is started again must not fail the job."""
    job = begun(3)
    failure = {"type": "failed", "reason": "crash", "code": 1}
    job.disconnected(2, 1.0)
    job.message(1, failure, 1.1)
    job.message(3, failure, 1.2)
    effects = job.message(4, enter(1, attempt=1), 1.0 + FAILURE_HELD)
    assert sent(effects, 1) == sent(effects, 3) == ["break", "world"]
    assert sent(job.tick(20.0), 1) == [], "it has begun anew"
    assert not job.over


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_failure_is_not_judged_before_it_is_known_whether_another_is_lost(comes_back: bool) -> None:
    """A node's end shows in a connection at once, in its pod much later: what failed by it has not failed by itself."""
    job = begun(3)
    job.seen(Snapshot(known=True, active=frozenset({0, 1, 2})), 0.5)
    job.disconnected(2, 1.0)
    failure = {"type": "failed", "reason": "crash", "code": 1}
    job.message(1, failure, 1.1)
    job.message(3, failure, 1.1)
    for now in (4.2, 1.0 + contract.RECONNECT_WINDOW):
        assert sent(job.tick(now), 1) == []
    if comes_back:
        job.message(4, enter(1, running=True, generation=1), 11.0)
        assert sent(job.tick(11.1), 1) == ["verdict"]
        assert job.state.ended == "learner 1 exited with code 1"
    else:
        assert sent(job.tick(1.1 + contract.RECONNECT_WINDOW), 1) == ["break"]
        assert sent(job.message(4, enter(1, attempt=1), 12.0), 1) == ["world"]
        assert sent(job.tick(20.0), 1) == []
        assert not job.over


def test_a_failure_in_a_world_that_is_over_is_not_the_next_one_s() -> None:
    """One that could not tell of it in time does so when it comes back, and has begun anew by then."""
    job = begun(3)
    failure = {"type": "failed", "reason": "crash", "code": 1, "generation": 1}
    job.disconnected(2, 1.0)
    job.disconnected(1, 1.0)
    job.message(4, enter(1, attempt=1), 2.0)
    effects = job.message(5, enter(0, generation=1), 3.0)
    assert world(effects, 5)["generation"] == 2
    job.message(5, failure, 3.0)
    assert sent(job.tick(3.1 + FAILURE_HELD), 5) == []
    assert not job.over
    job.message(5, {**failure, "generation": 2}, 8.0)
    assert sent(job.tick(8.1 + FAILURE_HELD), 5) == ["verdict"]


def test_a_failure_of_its_own_ends_the_job() -> None:
    """The first one's: those that come after it may be its consequence."""
    job = begun(3)
    job.message(2, {"type": "failed", "reason": "crash", "code": 3}, 1.0)
    job.message(1, {"type": "failed", "reason": "crash", "code": 1}, 1.1)
    assert job.tick(1.0 + FAILURE_HELD) == []
    effects = job.tick(1.2 + FAILURE_HELD)
    assert job.state.ended == "learner 2 exited with code 3"
    assert sent(effects, 2) == ["verdict"]
    assert sent(effects, 3) == ["end"]


def test_a_failure_that_is_granted_begins_the_next_world() -> None:
    """`retry` starts one learner's command again; the others have to begin anew with it."""
    job = begun(2, retry_attempts=1)
    job.message(2, {"type": "failed", "reason": "crash", "code": 3}, 1.0)
    effects = job.tick(1.1 + FAILURE_HELD)
    assert sent(effects, 2)[:1] == ["verdict"]
    assert sent(effects, 1) == ["break"]
    assert not job.over


def test_the_next_helper_finds_a_world_that_goes_on() -> None:
    """A helper that dies costs the learners nothing."""
    job = begun(2)
    later = Coordinator(job.spec, "job", "secret", 8, job.state, 0.0)
    later.message(1, enter(0, running=True, generation=1), 1.0)
    effects = later.message(2, enter(1, running=True, generation=1), 1.0)
    assert world(effects, 1)["generation"] == 1
    assert records(effects) == []
    another = Coordinator(job.spec, "job", "secret", 9, job.state, 0.0)
    another.message(1, enter(0, running=True, generation=1), 1.0)
    effects = another.message(2, enter(1, attempt=1), 1.0)
    assert world(effects, 1)["generation"] == 2


def test_a_halted_world_forms_no_other() -> None:
    """A learner that comes back in the middle of a halt is halted, too."""
    job = begun(2)
    job.seen(Snapshot(suspended=True, known=True, active=frozenset({0, 1})), 1.0)
    job.disconnected(2, 1.1)
    effects = job.message(3, enter(1, attempt=1), 2.0)
    assert sent(effects, 3) == ["welcome", "halt"]
    assert sent(effects, 1) == []


def test_whatever_happens_no_two_learners_are_in_different_worlds() -> None:
    """Joins, losses, restarts and reports in random order: a world is announced to all of its members or to none, its
    generation only rises, it begins at a step that all have, never one before a step that all have told of having, and
    the job completes once nothing more happens to it."""
    seed = random.randrange(2**32)
    print("seed", seed)
    dice = random.Random(seed)
    for _ in range(200):
        _one_life(dice)


def _one_life(dice: random.Random) -> None:
    learners, servers = dice.randrange(1, 5), dice.randrange(3)
    size = learners + servers
    job, now, conns = (served(learners, servers) if servers else peers(learners)), 0.0, dict.fromkeys(range(size), 0)
    attempts, told, broken, newest = [0] * size, [0] * size, [0] * size, 0
    saved: list[Saved] = [[] for _ in range(size)]
    spared = [-1] * size
    number = 0

    def hear(effects: list[Effect]) -> None:
        nonlocal job
        for effect in effects:
            if isinstance(effect, Record) and effect.record["kind"] == "world":
                assert effect.record["generation"] > max(told)
            if isinstance(effect, Send) and effect.message["type"] in (contract.WORLD, contract.BREAK, contract.NEWS):
                (index,) = [index for index, conn in conns.items() if conn == effect.conn]
                message = effect.message
                if message["type"] == contract.NEWS:
                    spared[index] = message["common"]
                    continue
                if message["type"] == contract.BREAK:
                    broken[index] = message["generation"]
                    continue
                assert message["generation"] > broken[index]
                if message["generation"] != told[index]:
                    assert message["step"] in [-1, *(step for step, _ in saved[index])]
                    everywhere = [one for one in saved[0] if all(one in each for each in saved)]
                    assert message["step"] == (everywhere[0][0] if everywhere else -1)
                    told[index] = message["generation"]
                spared[index] = message["common"]

    def runs(index: int) -> int:
        """The world that a learner takes for its own."""
        return told[index] if told[index] > broken[index] else 0

    def come(index: int) -> None:
        nonlocal number
        number += 1
        conns[index] = number
        running = told[index] > 0
        role = {"role": "learner"} if index < learners else {"role": "parameter-server", "index": index - learners}
        about = enter(index, attempts[index], runs(index), saved[index], running=running)
        hear(job.message(number, {**about, **role}, now))

    for turn in range(60):
        now += dice.random()
        index = dice.randrange(size)
        happens = (
            dice.choice(["come", "lose", "new", "restart", "save", "beat", "tick", "helper"]) if turn < 40 else "calm"
        )
        if happens == "calm":
            index = turn % size
            happens = "beat" if conns[index] else "come"
        if happens == "come" and not conns[index]:
            come(index)
        elif happens in ("lose", "new") and conns[index]:
            hear(job.disconnected(conns[index], now))
            conns[index] = 0
            if happens == "new":
                attempts[index], told[index] = attempts[index] + 1, 0
        elif happens == "restart" and conns[index]:
            hear(job.message(conns[index], {"type": "restarted"}, now))
        elif happens == "save" and job.formed and len(set(told)) == 1:
            newest += dice.randrange(3)
            for one in dice.sample(range(size), dice.randrange(size + 1)):
                if conns[one]:
                    others = [each for each in saved[one] if each[0] != newest]
                    kept = others[:1] + [each for each in others[1:] if each[0] == spared[one]]
                    saved[one] = [(newest, told[one]), *kept]
                    hear(saves(job, conns[one], saved[one], now))
        elif happens == "beat" and conns[index]:
            about = {"running": True, "generation": runs(index), "checkpoints": as_sent(saved[index])}
            hear(job.message(conns[index], {"type": "heartbeat", **about}, now))
        elif happens == "helper":
            job = Coordinator(job.spec, "job", "secret", job.epoch + 1, job.state, now)
            conns.update(dict.fromkeys(conns, 0))
        hear(job.tick(now))
        if job.formed and all(conns.values()):
            assert len(set(told)) == 1
    assert job.formed
    for conn in list(conns.values())[:learners]:
        effects = job.message(conn, {"type": "done", "generation": told[0]}, now)
    assert job.state.completed
    said = [sent(effects, conn) for conn in conns.values()]
    assert said == [["released"]] * learners + [["complete"]] * servers


def serve(index: int, attempt: int = 0, **changes: Any) -> dict[str, Any]:
    return {**enter(index, attempt, **changes), "role": "parameter-server", "address": f"10.0.1.{index}"}


def begun_with_a_server(mode: str) -> Coordinator:
    """Two learners on connections 1 and 2, a server on 3."""
    job = served(2, 1, mode=mode)
    job.message(1, enter(0), 0.0)
    assert sent(job.message(2, enter(1), 0.0), 1) == [], "without its server there is no world"
    effects = job.message(3, serve(0), 0.0)
    assert sent(effects, 1) == sent(effects, 2) == ["world"]
    assert world(effects, 1)["servers"] == [["10.0.1.0", 2000]]
    assert world(effects, 1)["mode"] == world(effects, 3)["mode"] == mode
    assert (world(effects, 3)["rank"], world(effects, 3)["size"]) == (0, 2)
    for conn in (1, 2, 3):
        beat(job, conn, 0.0)
    return job


@pytest.mark.parametrize("mode", ["sync", "average"])
def test_in_lockstep_servers_go_back_with_the_learners(mode: str) -> None:
    """To a step that all have saved: a model of one step and an order of data of another make no sense."""
    job = begun_with_a_server(mode)
    learners, server = [(40, 1), (20, 1)], [(20, 1)]
    for conn, saved in ((1, learners), (2, learners), (3, server)):
        saves(job, conn, saved, 1.0)
    effects = job.message(4, enter(0, attempt=1, saved=learners), 2.0)
    assert world(effects, 4)["step"] == world(effects, 2)["step"] == world(effects, 3)["step"] == 20


@pytest.mark.parametrize("mode", ["async", "easgd"])
def test_on_their_own_clocks_learners_come_and_go(mode: str) -> None:
    """A learner is no loss to the others; a server is to all."""
    job = begun_with_a_server(mode)
    effects = job.message(4, enter(0, attempt=1, saved=[(40, 1)]), 1.0)
    assert [sent(effects, conn) for conn in (2, 3)] == [[], []]
    assert world(effects, 4)["generation"] == 1
    assert world(effects, 4)["step"] is None, "its own last"
    job.disconnected(2, 2.0)
    assert job.tick(13.0) == []
    effects = job.message(3, {"type": "restarted"}, 14.0)
    assert sent(effects, 4) == ["break"]
    effects = job.message(5, enter(1, attempt=1), 15.0)
    assert world(effects, 3)["generation"] == world(effects, 4)["generation"] == world(effects, 5)["generation"] == 2


def test_a_learner_on_its_own_clock_may_be_done_before_the_others() -> None:
    job = begun_with_a_server("async")
    effects = job.message(1, {"type": "done", "generation": 1}, 1.0)
    assert sent(effects, 1) == ["released"]
    assert sent(effects, 2) == []
    assert sent(effects, 3) == ["news"]
    effects = job.message(2, {"type": "done", "generation": 1}, 2.0)
    assert sent(effects, 2) == ["released"]
    assert sent(effects, 3) == ["news", "complete"]


def test_servers_hear_of_who_is_done() -> None:
    """Who waits for what all have trained does not wait for these: also at a server that is new."""
    job = begun_with_a_server("async")
    effects = job.message(1, {"type": "done", "generation": 1}, 1.0)
    (news,) = [effect for effect in effects if isinstance(effect, Send) and effect.message["type"] == "news"]
    assert (news.conn, news.message["done"]) == (3, [0])
    job.disconnected(3, 2.0)
    job.tick(13.0)
    assert world(job.message(4, serve(0, attempt=1), 14.0), 4)["done"] == [0]


def test_who_gives_parameters_to_a_server_that_has_none_still_works() -> None:
    """A server is lost before anything of it was saved, and learner 1 is done and will not come again."""
    job = begun_with_a_server("async")
    job.message(1, {"type": "done", "generation": 1}, 1.0)
    job.disconnected(3, 2.0)
    job.tick(13.0)
    effects = job.message(4, serve(0, attempt=1), 14.0)
    assert world(effects, 4)["first"] == world(effects, 2)["first"] == 1


@pytest.mark.parametrize("told", [False, True], ids=["nobody yet", "this helper"])
def test_who_gives_parameters_does_not_end_without_anyone_to_do_so(told: bool) -> None:
    """Learner 1's work was over when its world was: what it says of it may come before or after the next world."""
    job = begun_with_a_server("async")
    if told:
        job.message(1, {"type": "heartbeat", "running": False, "finished": True}, 1.0)
    job.message(3, {"type": "restarted"}, 2.0)
    assert job.worlds.first == int(told)
    effects = job.message(1, {"type": "done", "generation": 1}, 3.0)
    assert job.worlds.first == 1
    assert sent(effects, 3) == ["news", *([] if told else ["break", "world"])]


def test_a_server_that_fails_ends_the_job_and_is_named() -> None:
    job = begun_with_a_server("sync")
    effects = job.message(3, {"type": "failed", "reason": "out-of-memory", "code": 1, "limit": 1 << 30}, 1.0)
    assert job.state.ended == "parameter server 1 ran out of memory (limit 1 GiB)"
    assert sent(effects, 1) == sent(effects, 2) == ["end"]
    assert sent(effects, 3) == ["verdict"]


def test_a_failure_is_judged_once() -> None:
    """One that is granted, where no world ends with it, is not granted again with every tick."""
    job = served(2, 1, mode="async", retry_attempts=1)
    for conn, joins in ((1, enter(0)), (2, enter(1)), (3, serve(0))):
        job.message(conn, joins, 0.0)
    job.message(1, {"type": "failed", "reason": "crash", "code": 3}, 1.0)
    assert sent(job.tick(1.1 + FAILURE_HELD), 1) == ["verdict"]
    assert job.tick(20.0) == []
    assert not job.over


def test_a_learner_that_hangs_after_others_have_finished_is_named() -> None:
    """A job that will never end says so, and whom it waits for."""
    job = make(2)
    for index in range(2):
        job.message(index + 1, join(index), 0.0)
    for now in (10.0, 20.0, 30.0):
        for conn in (1, 2):
            about = {"running": True, "step": int(min(now, 20.0)), "of": 100}
            job.message(conn, {"type": "heartbeat", **about}, now)
    assert job.hung(100.0) is None, "nobody has finished"
    job.message(1, {"type": "done"}, 100.0)
    job.message(2, {"type": "heartbeat", "running": True, "step": 20, "of": 100}, 110.0)
    pace = Pace()
    pace.remaining(10, 200, 100.0)
    shown = report(job, pace, 150.0, 0.0)
    assert shown["message"] == "waiting for learner 2, which others have finished without: no step for 2 min"
    assert shown["eta"] is None
    job.message(2, {"type": "heartbeat", "running": True, "step": 21, "of": 100}, 151.0)
    assert report(job, Pace(), 160.0, 0.0)["message"] == "training"


def test_who_waits_for_one_that_hangs_is_not_taken_for_it() -> None:
    """Learner 1 is through and waits for what all have trained; then learner 2 is through, and nobody hangs."""
    job = begun_with_a_server("async")
    steps = {1: 100, 2: 20}
    for now in range(1, 80):
        for conn, step in steps.items():
            job.message(conn, {"type": "heartbeat", "running": True, "generation": 1, "step": step, "of": 100}, now)
        job.message(3, {"type": "heartbeat", "running": True, "generation": 1}, now)
        job.tick(now)
        assert report(job, Pace(), now, 0.0)["message"] == "training" or now > 60
    said = report(job, Pace(), 80.0, 0.0)["message"]
    assert said == "waiting for learner 2, which others have finished without: no step for 1 min"
    job.message(2, {"type": "heartbeat", "running": True, "generation": 1, "step": 100, "of": 100}, 81.0)
    assert report(job, Pace(), 300.0, 0.0)["message"] == "training"


def test_one_that_reports_no_steps_is_named_as_well() -> None:
    """Plain scripts report none: what there is to count from is that another has finished."""
    job = make(2)
    for now in (0.0, 500.0):
        for index in range(2):
            job.message(index + 1, join(index) if now == 0.0 else {"type": "heartbeat", "running": True}, now)
        job.tick(now)
        assert job.hung(now) is None, "nobody has finished"
    job.message(1, {"type": "done"}, 500.0)
    for now in range(501, 560, 10):
        job.message(2, {"type": "heartbeat", "running": True}, now)
        job.tick(now)
        assert report(job, Pace(), now, 0.0)["message"] == "training"
    said = report(job, Pace(), 501.0 + 900.0, 0.0)["message"]
    assert said == "waiting for learner 2, which others have finished without: no step for 15 min"


def test_a_journal_of_the_version_before_is_read() -> None:
    """A helper that is newer than the job's first one goes on from what that has written."""
    state = State()
    state.apply({"kind": "world", "generation": 4})
    assert (state.generation, state.step) == (4, -1)


@pytest.mark.parametrize("mode", ["tensorflow", "mxnet"])
def test_a_framework_s_own_server_may_end_before_the_job(mode: str) -> None:
    """MXNet's do when no worker needs them any more, TensorFlow's never: either is no failure."""
    job = begun_with_a_server(mode)
    meets = job.worlds.message(job.members[0])["serving"]
    assert meets == [[job.members[~0].address, job.members[~0].port]]
    generation = job.state.generation
    assert job.message(3, {"type": "done", "generation": generation}, 1.0) == []
    assert job.message(1, {"type": "done", "generation": generation}, 2.0) == []
    effects = job.message(2, {"type": "done", "generation": generation}, 3.0)
    assert (sent(effects, 1), sent(effects, 3)) == (["released"], ["complete"])
    assert job.state.completed
