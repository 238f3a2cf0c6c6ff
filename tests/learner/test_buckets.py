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
                    buckets[name][...] = np.float32(1000 * step) + int(name[6:]) + overlay.rank
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
        buckets["last"][...] = overlay.rank
        buckets.ready("last")
        overlay.barrier()  # in the order of calls: what was ready has arrived when it returns
        assert (buckets["last"] == 0.5).all()
        buckets["first"][...] = overlay.rank
        buckets.ready("first")
        buckets.wait()
        return bool((buckets["first"] == 0.5).all())

    assert Learners(2, body, shared_memory).results() == {0: True, 1: True}


@WAYS
def test_misuse_is_said(shared_memory: bool) -> None:
    def body(overlay: Overlay) -> list[str]:
        said = []
        buckets = overlay.buckets({name: np.zeros(3) for name in "abcde"}, "sum")
        buckets["a"][...] = 1
        buckets.ready("a")
        for wrong in (lambda: buckets.ready("a"), lambda: buckets.wait(), lambda: buckets.ready("f")):
            with pytest.raises((ValueError, KeyError)) as caught:
                wrong()
            said.append(str(caught.value))
        with pytest.raises(TypeError) as caught:
            overlay.buckets({"a": np.zeros(1), "b": np.zeros(1, np.float16)})
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
        "'a' was ready already: it is on its way until `wait` has returned",
        "not ready yet: 'b', 'c', 'd' …",
        "'f'",
        "the arrays of buckets are of one type, and not float16, float64",
    ]
    assert Learners(2, body, shared_memory).results() == {0: said, 1: said}


@WAYS
def test_a_peer_that_is_lost_is_said_in_the_wait(shared_memory: bool) -> None:
    def body(overlay: Overlay) -> str:
        buckets = overlay.buckets({"a": np.zeros(BUCKET)})
        if overlay.rank:
            overlay.close()
            return "left"
        buckets.ready("a")
        with pytest.raises((PeerLost, Mismatch)):
            buckets.wait()
        return "told"

    assert Learners(2, body, shared_memory).results() == {0: "told", 1: "left"}


def test_small_ones_travel_together_and_the_last_ones_alone() -> None:
    """Every array is in one bucket, in order; buckets are as large as is worth it and small at the end."""
    assert divided([]) == []
    assert divided([5 * BUCKET]) == [slice(0, 1)]
    seed = random.randrange(2**32)
    print("seed", seed)
    dice = random.Random(seed)
    sizes = [dice.choice([0, 4, 1000, LAST, BUCKET // 3, 3 * BUCKET]) for _ in range(500)]
    groups = divided(sizes)
    assert [number for group in groups for number in range(500)[group]] == list(range(500))
    for number, group in enumerate(reversed(groups)):
        inside = sizes[group]
        room = min(LAST << number, BUCKET)
        assert len(inside) == 1 or sum(inside) <= room
        assert not group.start or sum(inside) + sizes[group.start - 1] > room, "one more had room"
