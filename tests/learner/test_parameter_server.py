"""Parameter servers: what learners send becomes, to the bit, what each mode says. Nothing is lost or used twice."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ffdl.learner import contract, parameter_server
from ffdl.learner.errors import Mismatch, PeerLost
from ffdl.learner.exchange import BLOCK, EMPTY, HEAD, OPENS, SERVERS, Row
from ffdl.learner.optimizers import SGD, Adam, Optimizer, new_slots
from ffdl.learner.parameter_server import ParameterServer
from ffdl.learner.rendezvous import Place, connect
from ffdl.learner.solvers import Solver
from tests.learner.conftest import WAIT, AgentEnd, Start
from tests.learner.servers import Job

Begin = Callable[..., Job]
STEPS = 5


@pytest.fixture
def job(tmp_path: Path, start: Start) -> Iterator[Begin]:
    jobs: list[Job] = []

    def begin(size: int, servers: int, mode: str, **more: Any) -> Job:
        jobs.append(Job(tmp_path / str(len(jobs)), start, size, servers, mode, **more))
        return jobs[-1]

    yield begin
    for each in jobs:
        each.close()


def model(dtype: str = "float32") -> dict[str, np.ndarray]:
    """Small and large tensors: one is longer than a block, one has no elements, none fits servers evenly."""
    rng = np.random.default_rng(5)
    shapes = {"embedding": (3, BLOCK // 4 + 7), "bias": (11,), "none": (0, 4), "scale": ()}
    return {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}


def gradients(like: dict[str, np.ndarray], rank: int, step: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([rank, step])
    return {name: rng.normal(size=array.shape).astype(array.dtype) for name, array in like.items()}


def bits(arrays: dict[str, np.ndarray]) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in arrays.items()}


class Reference:
    """One learner that does by itself what all of them do together."""

    def __init__(self, arrays: dict[str, np.ndarray], optimizer: Optimizer) -> None:
        self.arrays, self.optimizer, self.updates = arrays, optimizer, 0
        self.slots = {name: new_slots(optimizer, array) for name, array in arrays.items()}

    def step(self, *of_all: dict[str, np.ndarray]) -> None:
        self.updates += 1
        for name, array in self.arrays.items():
            total = of_all[0][name].astype(np.promote_types(array.dtype, np.float32))
            for other in of_all[1:]:
                total = total + other[name]
            gradient = np.asarray(total / len(of_all))
            # elements by themselves are as good as all at once; a scalar is an array of one
            flat = [array.reshape(-1), gradient.reshape(-1), [slot.reshape(-1) for slot in self.slots[name]]]
            self.optimizer.update(*flat, self.updates)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("optimizer", [SGD(0.1), SGD(0.1, momentum=0.9), Adam(0.01)], ids=["sgd", "momentum", "adam"])
@pytest.mark.parametrize("near", [{0, 1, 2}, {0}, {1, 2}], ids=["near", "first-near", "first-far"])
def test_synchronous_steps_are_those_of_one_learner_with_a_large_batch(
    job: Begin, optimizer: Optimizer, dtype: str, near: set[int]
) -> None:
    """Bit for bit: a gradient that is left out, used twice or late would show."""
    three = job(3, 2, "sync")

    def learn(rank: int) -> dict[str, bytes]:
        own = model(dtype) if rank == 0 else {name: np.zeros_like(array) for name, array in model(dtype).items()}
        server = three.learner(rank, own, optimizer, shared_memory=rank in near)
        assert bits(own) == bits(model(dtype)), "the first rank's"
        for step in range(STEPS):
            server.step(gradients(own, rank, step))
        server.close()
        return bits(own)

    alone = Reference(model(dtype), optimizer)
    for step in range(STEPS):
        alone.step(*(gradients(alone.arrays, rank, step) for rank in range(3)))
    assert three.all(learn) == [bits(alone.arrays)] * 3


def descent(w: np.ndarray, gradients: list[np.ndarray]) -> np.ndarray:
    """w = w - lr g, lr 0.1 (Robbins and Monro 1951)."""
    for g in gradients:
        w = w - 0.1 * g
    return w


def heavy_ball(w: np.ndarray, gradients: list[np.ndarray]) -> np.ndarray:
    """w = w - lr g + m (w - w before), lr 0.1, m 0.9 (Polyak 1964)."""
    before = w
    for g in gradients:
        w, before = w - 0.1 * g + 0.9 * (w - before), w
    return w


def adam(w: np.ndarray, gradients: list[np.ndarray]) -> np.ndarray:
    """Kingma and Ba 2015, algorithm 1, with alpha 0.01 and their other values."""
    alpha, beta1, beta2, epsilon = 0.01, 0.9, 0.999, 1e-8
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t, g in enumerate(gradients, 1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        w = w - alpha * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + epsilon)
    return w


# A parameter here is below 8, and rounded at each step by half a unit of its last place at most; so is what is taken
# off it, which for float16 is worked out in float32.
ROUNDED = {"float64": 2 * STEPS * 2.0**-51, "float32": 2 * STEPS * 2.0**-22, "float16": STEPS * 2.0**-9}


@pytest.mark.parametrize("dtype", list(ROUNDED))
@pytest.mark.parametrize(
    ("optimizer", "published"),
    [(SGD(0.1), descent), (SGD(0.1, momentum=0.9), heavy_ball), (Adam(0.01), adam)],
    ids=["sgd", "momentum", "adam"],
)
@pytest.mark.parametrize("servers", [0, 2])
def test_optimizers_are_the_published_ones(
    job: Begin, optimizer: Optimizer, published: Callable[..., np.ndarray], dtype: str, servers: int
) -> None:
    """Written out anew, in float64: a wrong sign, factor or order would show."""
    learners = 3 if servers else 1
    three = job(learners, servers, "sync") if servers else None

    def learn(rank: int) -> dict[str, np.ndarray]:
        own = model(dtype)
        alone = ParameterServer(Place(0, 0, b""), [], own, optimizer) if three is None else None
        server = alone or three.learner(rank, own, optimizer)
        for step in range(STEPS):
            server.step(gradients(own, rank, step))
        server.close()
        return own

    found = learn(0) if three is None else three.all(learn)[0]
    of_all = [[gradients(found, rank, step) for rank in range(learners)] for step in range(STEPS)]
    for name, array in model(dtype).items():
        means = [np.mean([one[name].astype(np.float64) for one in each], axis=0) for each in of_all]
        expected = published(array.astype(np.float64), means)
        assert found[name].dtype == dtype
        assert np.all(np.abs(expected) < 8)
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=ROUNDED[dtype])


def test_a_learning_rate_may_change(job: Begin) -> None:
    """A schedule is the script's; the first rank's counts, since only one rate can."""
    two = job(2, 1, "sync")

    def learn(rank: int) -> np.ndarray:
        own = np.zeros(3)
        server = two.learner(rank, own, SGD(1.0))
        for lr in (1.0, 0.5, 0.25):
            server.step(np.ones(3), lr=lr if rank == 0 else 100.0)
        server.step(np.ones(3))  # without a word the optimizer's own, again
        server.close()
        return own

    assert [list(own) for own in two.all(learn)] == [[-2.75] * 3] * 2


def test_gradients_may_travel_in_half_precision(job: Begin) -> None:
    """Half the bytes: rounded on the way, added up in the parameters' own precision."""
    two = job(2, 2, "sync")

    def learn(rank: int) -> dict[str, bytes]:
        own = model()
        server = two.learner(rank, own, SGD(0.1), gradients="float16")
        server.step(gradients(own, rank, 0))
        server.close()
        return bits(own)

    alone = Reference(model(), SGD(0.1))
    rounded = [gradients(alone.arrays, rank, 0) for rank in range(2)]
    alone.step(*({name: array.astype(np.float16) for name, array in one.items()} for one in rounded))
    assert two.all(learn) == [bits(alone.arrays)] * 2


def test_gradients_do_not_travel_in_more_bits_than_parameters_have(job: Begin) -> None:
    with pytest.raises(Mismatch, match="gradients for parameters of float32 are to be float32 or smaller, not float64"):
        job(1, 1, "sync").learner(0, np.zeros(3, np.float32), gradients="float64")


def test_asynchronous_gradients_count_each_once_however_they_come(job: Begin) -> None:
    """Whole numbers: their sum is the same in every order."""
    four = job(4, 2, "async")
    most = 20

    def learn(rank: int) -> np.ndarray:
        own = np.zeros(BLOCK // 4 + 3, np.float32)
        server = four.learner(rank, own)
        for step in range(most):
            server.step(np.full_like(own, -(1 << rank) if step % 2 else 0.0))
        return own

    four.all(learn)
    own = np.zeros(BLOCK // 4 + 3, np.float32)
    four.learner(0, own).step(np.zeros_like(own))
    assert set(own) == {most / 2 * 15}


def test_asynchronous_steps_use_the_newest_parameters(job: Begin) -> None:
    """One after the other: each begins where the one before has ended."""
    two = job(2, 1, "async")
    both = [np.zeros(4), np.zeros(4)]
    servers = [two.learner(rank, both[rank], SGD(1.0, momentum=0.5)) for rank in range(2)]
    servers[0].step(np.full(4, 1.0))
    assert list(both[0]) == [-1.0] * 4
    servers[1].step(np.full(4, 1.0))
    assert list(both[1]) == [-2.5] * 4


def test_nobody_runs_ahead_further_than_the_bound(job: Begin) -> None:
    """Stale gradients do harm: with a bound the quick wait for the slow."""
    two = job(2, 1, "async")
    own = [np.zeros(1), np.zeros(1)]
    both = [two.learner(rank, own[rank], staleness=2) for rank in range(2)]
    done = threading.Semaphore(0)

    def quick() -> None:
        for _ in range(5):
            both[0].step(np.full(1, 1.0))
            done.release()

    thread = threading.Thread(target=quick)
    thread.start()
    for _ in range(3):
        assert done.acquire(timeout=WAIT)
    assert not done.acquire(timeout=0.3), "three ahead of one that has done none"
    both[1].step(np.zeros(1))
    assert done.acquire(timeout=WAIT)
    both[1].step(np.zeros(1))
    assert done.acquire(timeout=WAIT)
    thread.join(WAIT)
    assert list(own[0]) == [-5.0]


def test_elastic_averaging_draws_both_sides_together(job: Begin) -> None:
    """d = a (x - w): the learner goes back by d, the servers' parameters forward by it."""
    two = job(2, 2, "easgd")
    own = [np.zeros(5), np.full(5, 100.0)]
    both = [two.learner(rank, own[rank], SGD(1.0), elasticity=0.25, every=2) for rank in range(2)]
    assert list(own[1]) == [0.0] * 5, "all begin with the same"
    both[0].step(np.full(5, -4.0))
    assert list(own[0]) == [4.0] * 5, "a step of its own"
    both[0].step(np.full(5, -4.0))
    assert list(own[0]) == [8.0 - 2.0] * 5
    both[1].step(np.full(5, 1.0))
    both[1].step(np.full(5, 1.0))
    assert list(own[1]) == [-2.0 + 1.0] * 5, "0.25 of -2 - 2"
    both[0].step(np.zeros(5))
    both[0].step(np.zeros(5))
    assert list(own[0]) == [6.0 - 0.25 * (6.0 - 1.0)] * 5


def test_elasticity_without_a_word_is_the_papers(job: Begin) -> None:
    own = np.zeros(1)
    server = job(3, 1, "easgd").learner(0, own)
    server.step(np.full(1, -1.0))
    assert list(own) == [1.0 - 0.9 / 3]


def test_averaging_gives_all_the_mean_of_all(job: Begin) -> None:
    """After some steps of one's own, with momentum that stays one's own."""
    three = job(3, 2, "average")

    def learn(rank: int) -> dict[str, bytes]:
        own = model("float64")
        server = three.learner(rank, own, SGD(0.1, momentum=0.9), every=2)
        for step in range(4):
            server.step(gradients(own, rank, step))
        server.close()
        return bits(own)

    alone = [Reference(model("float64"), SGD(0.1, momentum=0.9)) for _ in range(3)]
    for step in range(4):
        for rank, one in enumerate(alone):
            one.step(gradients(one.arrays, rank, step))
        if step % 2:
            means = {
                name: (a + alone[1].arrays[name] + alone[2].arrays[name]) / 3 for name, a in alone[0].arrays.items()
            }
            for one in alone:
                for name, array in one.arrays.items():
                    array[...] = means[name]
    assert three.all(learn) == [bits(alone[0].arrays)] * 3


def test_what_a_learner_does_by_itself_is_part_of_its_state(job: Begin) -> None:
    """Momentum, and how many steps there are until the next exchange, are not lost with the process."""
    one = job(1, 1, "average")
    whole, halves = np.zeros(3), np.zeros(3)
    server = one.learner(0, whole, Adam(0.1), every=3)
    for step in range(4):
        server.step(np.full(3, float(step)))
    server.close()
    two = job(1, 1, "average")
    server = two.learner(0, halves, Adam(0.1), every=3)
    server.step(np.full(3, 0.0))
    server.step(np.full(3, 1.0))
    state = json.loads(json.dumps(server.state(), default=lambda array: array.tolist()))
    server.close()
    kept = halves.copy()
    server = job(1, 1, "average").learner(0, kept, Adam(0.1), every=3, state=state)
    for step in (2, 3):
        server.step(np.full(3, float(step)))
    assert kept.tobytes() == whole.tobytes()


def test_without_servers_the_optimizer_works_here() -> None:
    """The same script runs by hand."""
    own = model()
    server = ParameterServer(Place(0, 0, b""), [], own, Adam(0.01))
    alone = Reference(model(), Adam(0.01))
    for step in range(3):
        server.step(gradients(own, 0, step))
        alone.step(gradients(own, 0, step))
    assert bits(own) == bits(alone.arrays)


def one_learner(job: Begin, servers: int, own: np.ndarray, optimizer: Optimizer) -> ParameterServer:
    if servers:
        return job(1, servers, "sync").learner(0, own, optimizer)
    return ParameterServer(Place(0, 0, b""), [], own, optimizer)


@pytest.mark.parametrize("servers", [0, 2])
def test_small_gradients_count_in_half_precision(job: Begin, servers: int) -> None:
    """The square of 1e-3 is nothing in float16, and a step that is divided by its root has no bound."""
    own = np.zeros(5, np.float16)
    one_learner(job, servers, own, Adam(1e-3)).step(np.full(5, 1e-3, np.float16))
    assert own.tolist() == [np.float16(-1e-3)] * 5


@pytest.mark.parametrize("servers", [0, 2])
def test_momentum_adds_up_in_half_precision(job: Begin, servers: int) -> None:
    """Near 100 float16 has steps of 1 / 16: what is added there goes lost in rounding."""
    own = np.zeros(5, np.float16)
    server = one_learner(job, servers, own, SGD(0.0, momentum=0.99))
    for _ in range(1500):
        server.step(np.ones(5, np.float16))
    server.step(np.ones(5, np.float16), lr=1.0)
    assert own.tolist() == [-100.0] * 5


@pytest.mark.parametrize("optimizer", [SGD(0.1, momentum=0.9), Adam(0.01)], ids=["momentum", "adam"])
def test_moments_that_were_saved_in_half_precision_go_on_in_single(optimizer: Optimizer) -> None:
    """Snapshots of earlier versions have them so."""
    old, new = (Solver("sync", optimizer, np.zeros(5, np.float16)) for _ in range(2))
    old.apply(old.begin(None), slice(0, 5), np.ones(5, np.float32), 1)
    state = old.state()
    new.restore({**state, "slots": [slot.astype(np.float16) for slot in state["slots"]]})
    assert {slot.dtype for slot in new.slots} == {np.dtype(np.float32)}
    for solver in (old, new):
        solver.apply(solver.begin(None), slice(0, 5), np.full(5, 1e-3, np.float32), 1)
    np.testing.assert_allclose(new.values, old.values, rtol=1e-3)


@pytest.mark.parametrize("servers", [1, 2, 3, 7])
def test_servers_have_even_parts_of_tensors_of_all_sizes(servers: int) -> None:
    arrays = model()
    row = Row(arrays, servers)
    sizes = [sum(len(view) for view in row.of(arrays, number)) for number in range(servers)]
    assert max(sizes) - min(sizes) <= 1
    together = np.concatenate([view for number in range(servers) for view in row.of(arrays, number)])
    assert together.tobytes() == b"".join(bits(arrays).values())


# --- what goes wrong --------------------------------------------------------------------------------------------------


def test_learners_that_disagree_are_told_about_what(job: Begin) -> None:
    two = job(2, 1, "sync")
    first = two.learner(0, np.zeros(4))
    with pytest.raises(Mismatch, match="names and shapes of parameters"):
        two.learner(1, np.zeros((2, 2)))
    with pytest.raises(Mismatch, match=r"disagree about elements, names: 5, .* at another"):
        two.learner(1, np.zeros(5))
    with pytest.raises(Mismatch, match="disagree about optimizer"):
        two.learner(1, np.zeros(4), SGD(0.5))
    first.close()


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({}, "there are no parameters"),
        ({"a": np.zeros(1), "b": np.zeros(1, np.float32)}, "of one type, float16, float32 or float64, not of float32"),
        ({"a": np.zeros(3, np.int64)}, "not of int64"),
        ({"a": np.zeros((4, 4))[:, ::2]}, "a is to be changed in place"),
    ],
)
def test_parameters_that_cannot_be_are_refused(parameters: dict[str, np.ndarray], said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        ParameterServer(Place(0, 0, b""), [], parameters, SGD(1.0))


def test_gradients_of_something_else_are_refused() -> None:
    server = ParameterServer(Place(0, 0, b""), [], {"a": np.zeros(2), "b": np.zeros(1)}, SGD(1.0))
    with pytest.raises(ValueError, match="gradients are of a, parameters a, b"):
        server.step({"a": np.zeros(2)})
    with pytest.raises(ValueError, match=r"the gradient of b has shape \(3,\), not \(1,\)"):
        server.step({"a": np.zeros(2), "b": np.zeros(3)})


def test_who_waits_for_a_learner_that_has_left_is_told(job: Begin) -> None:
    """Not a hang: one that takes more steps than the others, or whose partner is gone."""
    two = job(2, 2, "sync")

    def learn(rank: int) -> str:
        server = two.learner(rank, np.zeros(9))
        server.step(np.zeros(9))
        if rank == 1:
            server.close()
            return ""
        with pytest.raises(PeerLost) as raised:
            server.step(np.zeros(9))
        return str(raised.value)

    assert two.all(learn)[0] == "learner 2 has left"


def test_a_server_that_dies_is_noticed(job: Begin) -> None:
    one = job(1, 2, "sync")
    server = one.learner(0, model())
    one.processes[1].kill()
    one.processes[1].wait()
    with pytest.raises(PeerLost, match="parameter server 2"):
        server.step(gradients(model(), 0, 0))


def test_what_was_saved_comes_back(job: Begin, tmp_path: Path) -> None:
    """A server that was killed goes on with the parameters, and the momentum, of the step that all go back to."""
    two = job(2, 2, "sync")

    def learn(rank: int) -> np.ndarray:
        own = np.zeros(1000)
        server = two.learner(rank, own, SGD(0.1, momentum=0.9))
        for step in range(6):
            server.step(np.full(1000, float(step)))
            if step == 2 and rank == 0:
                server.save(3)
        server.close()
        return own

    expected, _ = two.all(learn)
    for number, agent in enumerate(two.agents):
        agent.expect("checkpointed", step=3)
        two.processes[number].kill()
        agent.world["step"] = 3
        two.processes[number] = two.begin(number)
        agent.expect("listener")  # which it asks for once it has what it saved

    def go_on(rank: int) -> np.ndarray:
        own = np.full(1000, 77.0)
        server = two.learner(rank, own, SGD(0.1, momentum=0.9))
        for step in range(3, 6):
            server.step(np.full(1000, float(step)))
        server.close()
        return own

    assert [own.tobytes() for own in two.all(go_on)] == [expected.tobytes()] * 2


# Learners that each go at their own pace: nobody's halt or death takes the model back by what others have found out.


def model_after(job: Job, rank: int = 1) -> list[float]:
    """What servers have that begin again, as `rank` gets it."""
    job.begin_again()
    own = np.full(5, 77.0)
    job.learner(rank, own).close()
    return list(own)


def test_who_is_not_done_gives_parameters_to_servers_that_have_none(job: Begin) -> None:
    """Learner 1 is done, and a server is lost before it has saved anything: nobody waits for learner 1."""
    two = job(2, 2, "async", step=None)
    two.learner(0, np.zeros(5)).close()
    two.halt()
    for agent in two.agents:
        shutil.rmtree(agent.world["checkpoint_dir"])
        agent.world["first"] = 1
    two.begin_again()
    own = np.full(5, 7.0)
    two.learner(1, own).step(np.full(5, -1.0))
    assert list(own) == [8.0] * 5


@pytest.mark.parametrize("mode", ["async", "easgd"])
def test_a_halt_keeps_what_came_after_the_last_save(job: Begin, mode: str) -> None:
    """Also that of a learner which went on alone: servers keep what they have when they leave."""
    two = job(2, 2, mode, step=None)
    own = [np.zeros(5), np.zeros(5)]
    first, second = (two.learner(rank, own[rank]) for rank in range(2))
    for _ in range(3):
        first.step(np.full(5, -1.0))
    first.save(3)
    first.close()
    for _ in range(500):
        second.step(np.full(5, -1.0))
    at_servers = np.zeros(5)
    two.learner(0, at_servers).close()
    second.close()
    two.halt()
    assert model_after(two) == list(at_servers)
    assert mode == "easgd" or list(at_servers) == [503.0] * 5


def test_the_first_learner_that_is_there_says_when_servers_save(job: Begin) -> None:
    """Once learner 1 is done that is learner 2: a kill then costs no more than its saves are apart."""
    two = job(2, 2, "async", step=None)
    own = [np.zeros(5), np.zeros(5)]
    first, second = (two.learner(rank, own[rank]) for rank in range(2))
    first.step(np.full(5, -1.0))
    second.step(np.full(5, -1.0))
    second.save(70)  # that is not its part yet
    first.save(1)
    for agent in two.agents:
        agent.expect("checkpointed", step=1)
    first.close()
    step = 70
    while second._first == 0:  # until the servers know
        second.step(np.full(5, -1.0))
        step += 1
    second.save(step)
    for agent in two.agents:
        agent.expect("checkpointed", step=step)
    second.step(np.full(5, -1.0))
    assert model_after(two) == [step - 70 + 2.0] * 5
    assert all(not any(said.get("step") == 70 for said in agent.said) for agent in two.agents)


def test_servers_save_under_the_same_name_whichever_word_comes_first(job: Begin) -> None:
    """Two learners may both take themselves for the first one for a moment; the names of what is kept never go back."""
    two = job(2, 1, "async", step=None)
    own = [np.zeros(5), np.zeros(5)]
    both = [two.learner(rank, own[rank]) for rank in range(2)]
    both[1]._first = 1
    both[1].save(500)
    two.agents[0].expect("checkpointed", step=500)
    both[0].step(np.full(5, -1.0))
    both[0].save(3)
    two.agents[0].expect("checkpointed", step=500)
    assert model_after(two) == [1.0] * 5


def test_a_halt_between_two_worlds_keeps_what_servers_have(job: Begin) -> None:
    """One server is lost, and before it is there again the job is halted: the others' parts stay what they were."""
    one = job(1, 1, "async", step=None)
    own = np.zeros(5)
    server = one.learner(0, own)
    server.step(np.full(5, -1.0))
    server.close()
    one.agents[0].tell({"type": "break", "generation": 3})
    one.halt()
    assert model_after(one, 0) == [1.0] * 5


LONG_STEPS = """
import pathlib
import numpy as np
from ffdl import learner
from ffdl.learner.parameter_server import SGD

def train(job):
    state = job.restore() or {"step": 0}
    own = np.zeros(5)
    server = job.parameter_server(own, SGD(1.0))
    for step in range(state["step"], 3):
        print("begins", step, flush=True)
        while step == 1 and not pathlib.Path("go-on").exists():
            pass
        server.step(np.full(5, -1.0))
        state["step"] = step + 1
        job.step(step + 1, of=3, state=state)

learner.run(train)
"""


def test_a_learner_whose_step_outlasts_the_servers_halts_with_its_state(
    job: Begin, agent: AgentEnd, start: Start, tmp_path: Path
) -> None:
    """Servers do not wait for it for long, and what it has done since its last save is not done again."""
    one = job(1, 2, "async", step=None, patch="serving.LEAVE_WITHIN = 0.1")
    agent.world |= {"mode": "async", "servers": one.addresses, "key": one.key.hex()}
    process = start(LONG_STEPS, env={"FFDL_AGENT_SOCKET": str(agent.path)})
    assert [process.stdout.readline() for _ in range(2)] == ["begins 0\n", "begins 1\n"]
    agent.halt()
    one.halt()
    (tmp_path / "go-on").touch()
    agent.expect("checkpointed", step=1)
    assert process.wait(WAIT) == contract.EXIT_AGAIN
    assert model_after(one, 0) == [1.0] * 5


def test_a_server_that_never_got_values_has_none(job: Begin) -> None:
    """A world that is over before the first rank has given its model: the next one does not begin with zeros."""
    one = job(1, 1, "async")
    (agent,) = one.agents
    about = {"elements": 4, "dtype": "float64", "sent_as": "float64", "mode": "async"}
    text = json.dumps({**about, "optimizer": {"kind": "sgd", "lr": 0.1}}).encode()
    with connect(one.place(0), SERVERS, one.addresses[0], lambda: None) as connection:
        connection.sendall(HEAD.pack(OPENS, len(text), 0, 0.0) + text)
        connection.settimeout(WAIT)
        assert HEAD.unpack(connection.recv(HEAD.size))[0] == EMPTY
    agent.tell({"type": "break", "generation": 3})
    agent.tell({**agent.world, "generation": 4})
    own = np.arange(4.0)
    server = ParameterServer(Place(0, 4, one.key), one.addresses, own, SGD(0.1), "async")
    server.close()
    assert list(own) == [0.0, 1.0, 2.0, 3.0]


def test_strangers_get_nowhere(job: Begin) -> None:
    """A port scan, noise, a half-open connection, a learner's place without the key: no crash, no effect, a line."""
    one = job(1, 1, "sync")
    (address,) = one.addresses
    half_open = socket.create_connection(address)
    for noise in (b"", b"GET / HTTP/1.1\r\n\r\n", random.Random(1).randbytes(5000), b"\0" * 64, b"\xff" * 72):
        with contextlib.suppress(OSError), socket.create_connection(address) as stranger:
            stranger.sendall(noise)
    gave_up = threading.Timer(1.0, lambda: None)
    gave_up.start()

    def look() -> None:
        if not gave_up.is_alive():
            raise PeerLost("enough")

    with pytest.raises(PeerLost):
        connect(Place(0, 3, b"another key"), SERVERS, address, look)
    own = np.zeros(2)
    server = one.learner(0, own)
    server.step(np.ones(2))
    assert list(own) == [-1.0, -1.0]
    half_open.close()
    one.processes[0].kill()
    assert "someone who wanted to join the learners was turned away" in one.processes[0].communicate()[1]


@pytest.mark.parametrize(
    "said",
    [
        HEAD.pack(OPENS, 0xFFFFFFFF, 0, 0.0),  # a text of 4 GB
        HEAD.pack(OPENS, 3, 0, 0.0) + b"{}}",
        HEAD.pack(OPENS, 2, 0, 0.0) + b"{}",
        HEAD.pack(99, 0, 0, 0.0),
        HEAD.pack(3, 0, 0, 0.0),  # a gradient of what was not opened
    ],
    ids=["4 GB", "no JSON", "nothing", "unknown", "too early"],
)
def test_a_learner_that_says_what_it_should_not_is_shown_out(job: Begin, said: bytes) -> None:
    """Its own code can be wrong, too: that harms no other learner."""
    two = job(2, 1, "async")
    (address,) = two.addresses
    own = np.zeros(1)
    server = two.learner(0, own)
    with connect(two.place(1), SERVERS, address, lambda: None) as connection:
        connection.sendall(said)
        connection.settimeout(WAIT)
        answer = b""
        while got := connection.recv(4096):
            answer += got
    assert answer
    server.step(np.ones(1))
    assert list(own) == [-1.0]


def test_more_parameters_than_there_is_memory_for_are_refused(job: Begin) -> None:
    """Told to who asks, where the server would else end with a traceback and take the job along."""
    one = job(1, 1, "sync")
    about = {"elements": 1 << 39, "dtype": "float64", "sent_as": "float64", "mode": "sync"}
    text = json.dumps({**about, "optimizer": {"kind": "sgd", "lr": 0.1}}).encode()
    with connect(one.place(0), SERVERS, one.addresses[0], lambda: None) as connection:
        connection.sendall(HEAD.pack(OPENS, len(text), 0, 0.0) + text)
        connection.settimeout(WAIT)
        answer = b""
        while got := connection.recv(4096):
            answer += got
    assert answer[HEAD.size :].decode() == f"a server has no memory for {1 << 39} parameters"


WRONG = [
    ({"staleness": -1}, "staleness is a whole number of steps, 0 or more, not -1"),
    ({"staleness": "3"}, "staleness is a whole number of steps, 0 or more, not '3'"),
    ({"staleness": True}, "staleness is a whole number of steps, 0 or more, not True"),
    ({"elasticity": 5.0}, "elasticity is a number above 0 and up to 1 / learners = 0.5, not 5.0"),
    ({"elasticity": 0.51}, "elasticity is a number above 0 and up to 1 / learners = 0.5, not 0.51"),
    ({"elasticity": 0}, "elasticity is a number above 0 and up to 1 / learners = 0.5, not 0"),
    ({"elasticity": "a"}, "elasticity is a number above 0 and up to 1 / learners = 0.5, not 'a'"),
    ({"elasticity": float("nan")}, "elasticity is a number above 0 and up to 1 / learners = 0.5, not nan"),
]
IDS = [f"{name}={value}" for wrong, _ in WRONG for name, value in wrong.items()]


@pytest.mark.parametrize(("options", "said"), WRONG, ids=IDS)
def test_options_that_cannot_be_are_errors_before_anything_is_sent(options: dict[str, Any], said: str) -> None:
    """Said in the script's own words: not a step that hangs, nor a model that grows without bound."""
    with pytest.raises(ValueError, match=said):
        ParameterServer(Place(0, 0, b""), [("nowhere", 1)], np.zeros(1), SGD(1.0), "easgd", learners=2, **options)


def test_a_session_knows_how_many_learners_share_elasticity(agent: AgentEnd, start: Start) -> None:
    agent.world |= {"mode": "easgd", "servers": [["nowhere", 1]], "key": "00", "size": 2}
    script = """
import numpy as np
from ffdl import learner
from ffdl.learner.parameter_server import SGD

learner.run(lambda job: job.parameter_server(np.zeros(1), SGD(1.0), elasticity=0.9))
"""
    process = start(script, env={"FFDL_AGENT_SOCKET": str(agent.path)})
    assert process.wait(WAIT) == 1
    *_, last = process.stderr.read().splitlines()
    assert last.endswith("ValueError: elasticity is a number above 0 and up to 1 / learners = 0.5, not 0.9")


@pytest.mark.parametrize(("options", "said"), WRONG, ids=IDS)
@pytest.mark.parametrize("mode", ["async", "easgd"])
def test_servers_refuse_options_that_cannot_be(
    job: Begin, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], said: str, mode: str
) -> None:
    """What comes over a socket is anyone's; the server goes on, for whoever asks for what can be."""
    monkeypatch.setattr(parameter_server, "check", lambda *_: None)
    two = job(2, 1, mode)
    with pytest.raises(Mismatch, match=said):
        two.learner(0, np.zeros(1), **options)
    own = np.zeros(1)
    two.learner(0, own, staleness=0, elasticity=0.5).step(np.ones(1))
    assert list(own) == [-1.0 if mode == "async" else -0.5]


def test_optimizers_that_cannot_be_are_refused(job: Begin) -> None:
    class Odd(SGD):
        kind = "odd"

    with pytest.raises(Mismatch, match="there is no optimizer"):
        job(1, 1, "sync").learner(0, np.zeros(1), Odd(1.0))
