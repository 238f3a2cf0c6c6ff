"""A state comes back as it was, to the bit and the type; what can't be kept is named before it is needed."""

from __future__ import annotations

import collections
import enum
import json
import math
import random
from typing import Any

import numpy as np
import pytest

from ffdl.learner import encoding


def there_and_back(state: Any) -> Any:
    encoded = encoding.encode(state)
    document = json.loads(encoded.document())
    fresh = encoding.allocate(document)
    for target, source in zip(fresh, encoded.contents, strict=True):
        encoding.writable(target)[:] = encoding.writable(source)
    return encoding.decode(document, fresh)


def assert_same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert [(type(key), key) for key in a] == [(type(key), key) for key in b]
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            assert_same(one, other)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()
        assert b.flags.writeable
    elif isinstance(a, np.generic):
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()
    elif isinstance(a, float):
        assert a.hex() == b.hex()
        assert math.copysign(1, a) == math.copysign(1, b)
    else:
        assert a == b


PLAIN = [
    None,
    True,
    False,
    0,
    -1,
    2**63 - 1,
    2**63,
    -(2**63),
    2**128 + 1,
    -(10**6000),
    0.0,
    -0.0,
    0.1,
    5e-324,
    1.7976931348623157e308,
    math.nan,
    math.inf,
    -math.inf,
    "",
    "plain",
    "ünïcode 数\u0000\ud800",
    b"",
    b"\x00\xff" * 100,
    [],
    (),
    {},
    [1, [2, (3, [4])]],
    (1,),
    {"tuple": 1, "array": {"dict": 2}},
    {1: "a", "1": "b", True is None: "c", None: "d", (1, "x"): "e", b"k": "f", 2.5: "g", 2**70: "h"},
]


@pytest.mark.parametrize("value", PLAIN, ids=range(len(PLAIN)))
def test_plain_values_keep_value_and_type(value: Any) -> None:
    """A counter that came back as a float, or a tuple as a list, would break resumed training far from the cause."""
    assert_same({"value": value}, there_and_back({"value": value}))


DTYPES = [*"?bBhHiIlLqQefdgFDG", "S5", "U7", "V6", "M8[ns]", "m8[D]", "S0", "U0"]


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_and_shape(name: str, order: str) -> None:
    """Whatever arrays a training uses, their bytes and their byte order come back."""
    rng = np.random.default_rng(5)
    dtype = np.dtype(name).newbyteorder(order)
    for shape in [(), (0,), (1,), (7,), (3, 0, 2), (2, 3, 4)]:
        count = math.prod(shape)
        array = np.frombuffer(rng.bytes(max(count * dtype.itemsize, 1)), np.uint8)[: count * dtype.itemsize].copy()
        if dtype.kind == "b":
            array %= 2
        array = array.view(dtype).reshape(shape) if dtype.itemsize else np.zeros(shape, dtype)
        if dtype.kind == "U":
            array = np.array(["añ", "", "数"] * count)[:count].astype(dtype).reshape(shape)
        assert_same({"a": array}, there_and_back({"a": array}))


def test_structured_arrays() -> None:
    """Tables of named columns, nested and padded ones too."""
    nested = np.dtype([("a", ">f8"), ("b", [("x", "<i4"), ("y", "u1", (2, 3))]), (("title", "c"), "S3")])
    padded = np.dtype({"names": ["p", "q"], "formats": ["u1", "<f8"], "offsets": [0, 8], "itemsize": 24})
    for dtype in (nested, padded, np.dtype([("z", "<i2"), ("w", "<f8")], align=True)):
        array = np.zeros(4, dtype)
        array[dtype.names[0]] = [1, 2, 3, 4]  # type: ignore[index]
        back = there_and_back({"a": array, "s": array[2]})
        assert back["a"].dtype == dtype
        assert (back["a"] == array).all()
        assert back["s"] == array[2]


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a.T,
        lambda a: a[:, ::2],
        lambda a: a[::-1],
        lambda a: np.asfortranarray(a),
        lambda a: np.broadcast_to(a[0], (5, *a[0].shape)),
        lambda a: a.transpose(1, 2, 0),
        lambda a: a[1:1],
    ],
)
def test_views_keep_values_and_memory_order(view: Any) -> None:
    """The product of a transposed matrix can round differently from a copy's: resuming bit for bit needs the order."""
    original = view(np.random.default_rng(1).random((3, 4, 6)))
    back = there_and_back({"a": original})["a"]
    assert (back == original).all()
    assert back.strides == original.copy(order="K").strides


def test_numpy_scalars_and_generators() -> None:
    """The state of a random generator comes back, so the resumed training draws the numbers that would have come."""
    scalars = [np.float32(0.1), np.int8(-3), np.bool_(True), np.str_("ä"), np.bytes_(b"x"), np.datetime64("2020-01-02")]
    scalars += [np.complex64(1 - 2j), np.float64("nan"), np.uint64(2**64 - 1)]
    assert_same({"scalars": scalars}, there_and_back({"scalars": scalars}))
    assert there_and_back({"long": np.longdouble("0.1")})["long"] == np.longdouble("0.1")  # its padding is not its own
    for kind in (np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64):
        rng = np.random.Generator(kind(11))
        rng.integers(0, 10, 3, dtype=np.uint32)
        state = there_and_back({"rng": rng.bit_generator.state})
        other = np.random.Generator(kind(0))
        other.bit_generator.state = state["rng"]
        assert (rng.random(100) == other.random(100)).all()
    plain = random.Random(3)
    back = there_and_back({"r": plain.getstate()})["r"]
    again = random.Random()
    again.setstate(back)
    assert plain.random() == again.random()


def test_tied_weights_stay_tied() -> None:
    """An array used in two places is one array after a restore too, or the two would drift apart in training."""
    weights = np.arange(6.0)
    back = there_and_back({"in": weights, "out": [weights], "copy": weights.copy()})
    assert back["in"] is back["out"][0]
    assert back["in"] is not back["copy"]


class Colour(enum.IntEnum):
    RED = 1


class Tensor:
    def detach(self) -> None: ...


Pair = collections.namedtuple("Pair", "a b")
LOOP: list[Any] = []
LOOP.append(LOOP)
REFUSED = [
    ({"a": {"b": [1, {2}]}}, "state['a']['b'][1] is a set"),
    ({"m": np.array([object()])}, "state['m'] has dtype object"),
    ({"m": np.array(["text"], np.dtypes.StringDType())}, "state['m'] has dtype StringDType"),
    ({"m": np.ma.masked_array([1, 2])}, "state['m'] is a numpy.ma.MaskedArray"),
    ({"m": np.zeros(3).view(np.recarray)}, "make it a plain array"),
    ({"rng": np.random.default_rng()}, "keep its bit_generator.state"),
    ({"w": Tensor()}, "keep its .detach().cpu().numpy()"),
    ({"o": collections.OrderedDict()}, "make it a plain one: dict(...)"),
    ({"p": Pair(1, 2)}, "make it a plain one: tuple(...)"),
    ({"e": Colour.RED}, "make it a plain one: int(...)"),
    ({"f": print}, "state['f'] is a builtin_function_or_method"),
    ({frozenset(): 1}, "state[frozenset()] is a frozenset"),
    ({"loop": LOOP}, "or contains itself"),
    ([1], "a state must be a dict, not a list"),
]


@pytest.mark.parametrize(("state", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_cannot_be_kept_is_named(state: Any, words: str) -> None:
    """The user learns which key is wrong and what to write instead; nothing is pickled or silently changed."""
    with pytest.raises(TypeError) as caught:
        encoding.encode(state)
    assert words in str(caught.value)


def test_random_states_come_back() -> None:
    """Any mixture of what is allowed."""
    seed = random.randrange(10**6)
    print("seed", seed)
    dice = random.Random(seed)

    def make(depth: int) -> Any:
        kinds = ["plain", "array", "bytes"] + (["dict", "list", "tuple"] if depth < 5 else [])
        kind = dice.choice(kinds)
        count = dice.randrange(4)
        if kind == "dict":
            return {dice.choice([str(n), n]): make(depth + 1) for n in range(count)}
        if kind in ("list", "tuple"):
            items = [make(depth + 1) for _ in range(count)]
            return items if kind == "list" else tuple(items)
        if kind == "bytes":
            return dice.randbytes(dice.randrange(200))
        if kind == "array":
            return np.frombuffer(dice.randbytes(8 * dice.randrange(40)), "<i8").copy()
        return dice.choice(PLAIN[:23])

    for _ in range(200):
        state = {"state": make(0), "more": make(0)}
        assert_same(state, there_and_back(state))
