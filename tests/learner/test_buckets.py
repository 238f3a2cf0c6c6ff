"""Gradients that travel in buckets while others are computed."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest

from ffdl.learner.buckets import BUCKET, LAST, divided
from ffdl.learner.overlay import Mismatch, Overlay, PeerLost
from tests.learner.learners import Learners
from tests.learner.test_overlay import WAYS


def model(dice: random.Random) -> dict[str, np.ndarray]:
    """Layers large and small, scalars and empty ones."""
    shapes = [(), (0,), (3, 5), (1000, 300), (700_000,), (2, 3, 4), (65_536,)]
    return {f"layer-{number}": np.empty(dice.choice(shapes), np.float32) for number in range(dice.randrange(1, 40))}


@WAYS
def test_they_hold_what_all_come_to_in_whatever_order_they_are_ready(shared_memory: bool) -> None:
    """Backpropagation need not go the same way at each learner; and a bit that differs between them parts the models
    for good."""
    seed = random.randrange(2**32)
    print("seed", seed)

    def body(overlay: Overlay) -> list[int]:
        own, found = random.Random(seed + overlay.rank), []
        for _ in range(4):
            like = model(random.Random(seed + len(found)))
            buckets = overlay.buckets(like)
            assert {name: array.shape for name, array in buckets.items()} == {n: a.shape for n, a in like.items()}
            for step in range(3):
                names = list(buckets)
                own.shuffle(names)
                for name in names:
                    buckets[name] = np.float32(1000 * step) + int(name[6:]) + overlay.rank
                    if own.random() < 0.9:
                        buckets.ready(name)
                buckets.ready()
                buckets.wait()
                for name, array in buckets.items():
                    assert (array == 1000 * step + int(name[6:]) + (overlay.size - 1) / 2).all(), name
                for array in buckets.values():
                    array[...] = np.random.default_rng([seed, overlay.rank]).standard_normal(array.shape)
                buckets.ready()
                buckets.wait()
                found.append(zlib.crc32(b"".join(array.tobytes() for array in buckets.values())))
        return found

    for size in (1, 2, 3):
        results = Learners(size, body, shared_memory).results()
        assert results[0] == results[size - 1]
        assert isinstance(results[0], list), results


@WAYS
def test_what_is_ready_travels_before_the_rest_is(shared_memory: bool) -> None:
    """That is what they are for: a learner sees the other's mean of the first layers, though neither has the last."""

    def body(overlay: Overlay) -> bool:
        buckets = overlay.buckets({"first": np.empty(10), "last": np.empty(BUCKET // 8)})
        buckets["last"] = overlay.rank
        buckets.ready("last")
        overlay.barrier()  # in the order of calls: what was ready has arrived when it returns
        assert (buckets["last"] == 0.5).all()
        buckets["first"] = overlay.rank
        buckets.ready("first")
        buckets.wait()
        return bool((buckets["first"] == 0.5).all())

    assert Learners(2, body, shared_memory).results() == {0: True, 1: True}


@WAYS
def test_misuse_is_said(shared_memory: bool) -> None:
    def body(overlay: Overlay) -> list[str]:
        said = []
        buckets = overlay.buckets({name: np.zeros(3) for name in "abcde"}, "sum")
        buckets["a"] += 1
        buckets.ready("a")
        for wrong in (
            lambda: buckets.ready("a"),
            lambda: buckets.wait(),
            lambda: buckets.ready("b", "f"),  # nor is b ready then
            lambda: buckets.wait(),
            lambda: overlay.buckets({"a": np.zeros(1), "b": np.zeros(1, np.float16)}),
            lambda: overlay.buckets([np.zeros(1)]),
            lambda: overlay.buckets({"a": np.zeros(1, np.int64)}),
            lambda: overlay.buckets({"a": np.zeros(1)}, "median"),
            lambda: overlay.buckets({"a": np.array([None])}),
        ):
            with pytest.raises((ValueError, KeyError, TypeError)) as caught:
                wrong()
            said.append(str(caught.value))
        buckets.ready("b", "c")
        buckets.ready()
        buckets.wait()
        assert (buckets["a"] == overlay.size).all()
        assert (buckets["e"] == 0).all()
        nothing = overlay.buckets({})
        nothing.ready()
        nothing.wait()
        return said

    said = [
        "'a' was ready already: it is not to be touched until `wait` has returned",
        "not ready yet: 'b', 'c', 'd' …",
        "'f'",
        "not ready yet: 'b', 'c', 'd' …",
        "the arrays of buckets are of one type, and not float16, float64",
        "buckets are made like a dict of arrays, by name, and not like a list",
        "the mean of int64 is no int64: take the sum, or an array of floats",
        "there is no operation 'median': one of sum, mean, max",
        "an array of object can't be sent: numbers can",
    ]
    assert Learners(2, body, shared_memory).results() == {0: said, 1: said}


@WAYS
def test_a_peer_that_is_lost_is_said_in_the_wait(shared_memory: bool) -> None:
    """Also in a second one: what has not been reduced must never pass for what has."""

    def body(overlay: Overlay) -> str:
        buckets = overlay.buckets({"a": np.zeros(BUCKET), "b": np.zeros(BUCKET)})
        if overlay.rank:
            overlay.close()
            return "left"
        buckets.ready("a")
        for _ in range(2):
            buckets.ready()
            with pytest.raises(PeerLost):
                buckets.wait()
        overlay.close()
        with pytest.raises(PeerLost):
            buckets.wait()
        return "told"

    assert Learners(2, body, shared_memory).results() == {0: "told", 1: "left"}


@WAYS
@pytest.mark.parametrize("what", ["order", "shape", "more", "operation", "none"])
def test_learners_with_other_arrays_are_told(shared_memory: bool, what: str) -> None:
    """Else the gradients of one layer would be added to those of another, or all would wait for ever."""
    shapes: dict[str, tuple[int, ...]] = {"a": (3, 4), "b": (3, 4)}
    odd = {"order": {"b": (3, 4), "a": (3, 4)}, "shape": {**shapes, "b": (4, 3)}, "more": {**shapes, "c": ()}}

    def body(overlay: Overlay) -> str:
        mine = odd.get(what, shapes) if overlay.rank else shapes
        like = {name: np.zeros(shape) for name, shape in mine.items()}
        operation = "sum" if what == "operation" and overlay.rank else "mean"
        with pytest.raises((Mismatch, PeerLost)) as caught:
            overlay.barrier() if what == "none" and overlay.rank else overlay.buckets(like, operation)
        return str(caught.value)

    said = Learners(2, body, shared_memory).results()
    other = "rank 1 has buckets of other arrays than this learner, or has them in another order"
    assert "all_gather" in " ".join(said.values()) if what == "none" else said[0] == other


def test_where_learners_share_memory_the_arrays_lie_in_it() -> None:
    """That is where an all-reduce need not copy anything."""

    def body(overlay: Overlay) -> bool:
        buckets = overlay.buckets({"a": np.zeros((30, 10)), "b": np.zeros(5)})
        shared = overlay._shared
        assert shared is not None
        return any(np.shares_memory(buckets["a"], made) for made in shared._common.of[overlay.rank])

    assert Learners(2, body, True).results() == {0: True, 1: True}


def test_small_ones_travel_together_and_the_last_ones_alone() -> None:
    """Every array is in one bucket, in order; buckets are as large as is worth it and small at the end."""
    assert divided([], BUCKET) == []
    assert divided([5 * BUCKET], BUCKET) == [slice(0, 1)]
    ends = [0, 3, 13, 23, 33, 38, 40]  # two of them at the end, then twice as many, four times
    assert divided([100 << 10] * 40, BUCKET) == list(map(slice, ends, ends[1:]))
    seed = random.randrange(2**32)
    print("seed", seed)
    dice = random.Random(seed)
    sizes = [dice.choice([0, 4, 1000, LAST, BUCKET // 3, 3 * BUCKET]) for _ in range(500)]
    groups = divided(sizes, BUCKET)
    assert [number for group in groups for number in range(500)[group]] == list(range(500))
    for number, group in enumerate(reversed(groups)):
        inside = sizes[group]
        room = min(LAST << number, BUCKET)
        assert len(inside) == 1 or sum(inside) <= room
        assert not group.start or sum(inside) + sizes[group.start - 1] > room, "one more had room"
