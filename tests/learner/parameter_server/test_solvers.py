"""Parameter servers: what learners send becomes, to the bit, what each mode says. Nothing is lost or used twice."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import numpy as np
import pytest

from ffdl.learner.errors import Mismatch
from ffdl.learner.exchange import BLOCK, Row
from ffdl.learner.optimizers import SGD, Adam, Optimizer, new_slots
from ffdl.learner.parameter_server import ParameterServer
from ffdl.learner.rendezvous import Place
from ffdl.learner.solvers import Solver
from tests.learner.conftest import WAIT
from tests.learner.parameter_server.servers import Begin

STEPS = 5


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


@pytest.mark.parametrize(("mode", "found"), [("async", 9.0), ("easgd", None)])
def test_all_end_with_the_model_that_all_have_trained(job: Begin, mode: str, found: float | None) -> None:
    """Learner 1 is through first, learner 3 ends without a word: the others' model is what came of all their steps."""
    three = job(3, 2, mode)
    own = [np.zeros(5) for _ in range(3)]
    options = {"staleness": 1} if mode == "async" else {"every": 2}
    servers = [three.learner(rank, own[rank], **options) for rank in range(3)]
    servers[0].step(np.full(5, -1.0))
    servers[2].step(np.full(5, -1.0))
    servers[2].close()
    over = threading.Thread(target=servers[0].finish)
    over.start()
    for _ in range(7):
        servers[1].step(np.full(5, -1.0))  # nobody who is through holds it back
    rest = threading.Thread(target=servers[1].finish)
    rest.start()
    for agent in three.agents:
        agent.tell({"type": "news", "done": [1]})
    rest.join(0.3)
    assert rest.is_alive(), "another one's end is none of learner 3"
    for agent in three.agents:
        agent.tell({"type": "news", "done": [2]})
    over.join(WAIT)
    rest.join(WAIT)
    assert not over.is_alive()
    assert not rest.is_alive()
    at_servers = np.zeros(5)
    three.learner(2, at_servers, **options)
    assert own[0].tobytes() == own[1].tobytes() == at_servers.tobytes()
    assert found is None or list(own[0]) == [found] * 5
    with pytest.raises(ValueError, match="after the last step"):
        servers[1].step(np.zeros(5))


def test_in_lockstep_all_end_with_one_model_between_two_averages_too(job: Begin) -> None:
    two = job(2, 1, "average")
    own = [np.zeros(5), np.zeros(5)]

    def learn(rank: int) -> None:
        server = two.learner(rank, own[rank], every=10)
        server.step(np.full(5, -4.0 * rank))
        server.finish()

    two.all(learn)
    assert list(own[0]) == list(own[1]) == [2.0] * 5


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
