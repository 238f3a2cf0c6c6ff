"""A training state as bytes and back: a JSON document for its shape and plain values, buffers for its arrays and bytes.

Nothing is pickled, so reading a state runs no code. A value comes back with its exact type, dtype and memory order, and
an array that occurs twice (tied weights) comes back as one array.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from dataclasses import dataclass
from typing import Any, Dict, List, Tuple

FORMAT = 1
ALIGNMENT = 64  # bytes; every buffer starts at a multiple of it
DEEPEST = 100  # levels of nesting: an error can then name a state that contains itself
EXACT_INT = 1 << 63  # larger ones are written in hexadecimal: Python limits the digits of decimal ones
ARRAY_KINDS = "biufcmMSUV"


@dataclass
class Encoded:
    """A state taken apart: `contents[i]` is the array or bytes that `buffers[i]` describes; `size` in bytes."""

    tree: Any
    buffers: List[Dict[str, Any]]
    contents: List[Any]
    size: int

    def document(self) -> bytes:
        values = {"format": FORMAT, "size": self.size, "tree": self.tree, "buffers": self.buffers}
        return json.dumps(values, separators=(",", ":")).encode("ascii")


def encode(state: Any) -> Encoded:
    """Takes a dict apart, its arrays not copied. Raises TypeError, naming the key, for what a checkpoint can't hold."""
    if type(state) is not dict:
        raise TypeError(
            f"a state must be a dict, not {_type_name(state)}: for example {{'step': 1, 'weights': weights}}"
        )
    encoder = _Encoder()
    tree = encoder.value(state, None, 0)
    return Encoded(tree, encoder.buffers, encoder.contents, encoder.size)


class _Encoder:
    """`at` is where a value sits: a chain (the chain of what holds it, key), written out only for an error."""

    def __init__(self) -> None:
        self.buffers: List[Dict[str, Any]] = []
        self.contents: List[Any] = []
        self.size = 0
        self.seen: Dict[
            int, Tuple[int, Any]
        ] = {}  # id of an array: its buffer, and the array so that the id stays its own
        self.dtypes: Dict[Any, Any] = {}
        self.numpy = sys.modules.get("numpy")  # who never imported NumPy has no arrays

    def value(self, value: Any, at: Any, depth: int) -> Any:
        kind = type(value)
        if kind is int:
            return value if -EXACT_INT < value < EXACT_INT else {"int": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}
        if kind is str or kind is bool or value is None:
            return value
        if kind is bytes:
            return {"bytes": self.buffer({"bytes": True}, value, len(value))}
        if depth >= DEEPEST:
            raise TypeError(f"{_where(at)} is nested deeper than {DEEPEST} levels, or contains itself")
        if kind is dict:
            return self.mapping(value, at, depth)
        if kind is list:
            return [self.value(item, (at, index), depth + 1) for index, item in enumerate(value)]
        if kind is tuple:
            return {"tuple": [self.value(item, (at, index), depth + 1) for index, item in enumerate(value)]}
        if self.numpy is not None:
            if kind is self.numpy.ndarray:
                return {"array": self.array(value, at)}
            if isinstance(value, self.numpy.generic):
                scalar = self.numpy.array(value)
                return {
                    "scalar": self.buffer({"dtype": self.dtype(scalar.dtype, at), "shape": []}, scalar, scalar.nbytes)
                }
        raise TypeError(f"{_where(at)} is {_type_name(value)}, which a checkpoint can't hold; {_advice(value)}")

    def mapping(self, value: Dict[Any, Any], at: Any, depth: int) -> Dict[str, Any]:
        if all(type(key) is str for key in value):
            return {"dict": {key: self.value(item, (at, key), depth + 1) for key, item in value.items()}}
        pairs = [
            [self.value(key, (at, key), depth + 1), self.value(item, (at, key), depth + 1)]
            for key, item in value.items()
        ]
        return {"pairs": pairs}

    def array(self, value: Any, at: Any) -> int:
        known = self.seen.get(id(value))
        if known is not None:
            return known[0]
        entry = {"dtype": self.dtype(value.dtype, at), "shape": list(value.shape)}
        dense = value
        if not value.flags.c_contiguous:
            # The order of the axes in memory is kept: products of transposed matrices may round differently.
            strides = value.strides
            order = sorted(range(value.ndim), key=lambda axis: -abs(strides[axis]))
            dense = value.transpose(order)
            entry["order"] = order
        index = self.buffer(entry, dense, value.nbytes)
        self.seen[id(value)] = (index, value)
        return index

    def buffer(self, entry: Dict[str, Any], content: Any, size: int) -> int:
        entry["offset"] = self.size
        entry["size"] = size
        self.buffers.append(entry)
        self.contents.append(content)
        self.size += -(-size // ALIGNMENT) * ALIGNMENT
        return len(self.buffers) - 1

    def dtype(self, dtype: Any, at: Any) -> Any:
        if dtype not in self.dtypes:
            description = _describe(dtype)
            if description is None:
                raise TypeError(
                    f"{_where(at)} has dtype {dtype}, which a checkpoint can't hold; use numbers, text or bytes"
                )
            self.dtypes[dtype] = description
        return self.dtypes[dtype]


def allocate(document: Dict[str, Any]) -> List[Any]:
    """Fresh buffers for a document's arrays and bytes, to be filled in this order through `writable`."""
    if not document["buffers"]:
        return []
    fresh: List[Any] = []
    for entry in document["buffers"]:
        if "bytes" in entry:
            fresh.append(bytearray(entry["size"]))
            continue
        import numpy

        shape = [entry["shape"][axis] for axis in entry["order"]] if "order" in entry else entry["shape"]
        fresh.append(numpy.empty(shape, _dtype(entry["dtype"])))
    return fresh


def writable(content: Any) -> memoryview:
    """The bytes of a dense array, of bytes or of a bytearray. An array that isn't dense is copied."""
    if isinstance(content, (bytes, bytearray)):
        return memoryview(content)
    if content.nbytes == 0:
        return memoryview(bytearray())
    numpy = sys.modules["numpy"]
    flat = numpy.ascontiguousarray(content).reshape(-1)
    return memoryview(flat.view(numpy.uint8))


def decode(document: Dict[str, Any], contents: List[Any]) -> Any:
    """The state of a document and its filled buffers."""
    values: List[Any] = []
    for index, entry in enumerate(document["buffers"]):
        content = contents[index]
        if "bytes" in entry:
            content = bytes(content)
        elif "order" in entry:
            inverse = sorted(range(len(entry["order"])), key=entry["order"].__getitem__)
            content = content.transpose(inverse)
        values.append(content)
    return _build(document["tree"], values)


def _build(tree: Any, values: List[Any]) -> Any:
    if type(tree) is list:
        return [_build(item, values) for item in tree]
    if type(tree) is not dict:
        return tree
    ((tag, content),) = tree.items()
    if tag == "dict":
        return {key: _build(item, values) for key, item in content.items()}
    if tag == "pairs":
        return {_build(key, values): _build(item, values) for key, item in content}
    if tag == "tuple":
        return tuple(_build(item, values) for item in content)
    if tag == "int":
        return int(content, 16)
    if tag == "float":
        return struct.unpack(">d", bytes.fromhex(content))[0]
    if tag == "scalar":
        return values[content][()]
    if tag in ("array", "bytes"):
        return values[content]
    raise ValueError(f"the state has a value of kind {tag!r}, which this version does not know")


def _describe(dtype: Any) -> Any:
    """A JSON description of a dtype, or None where it would not come back as the same one."""
    import numpy

    if dtype.hasobject or dtype.kind not in ARRAY_KINDS:
        return None
    description = dtype.str if dtype.fields is None else numpy.lib.format.dtype_to_descr(dtype)
    try:
        return description if _dtype(json.loads(json.dumps(description))) == dtype else None
    except (TypeError, ValueError):
        return None


def _dtype(description: Any) -> Any:
    import numpy

    if isinstance(description, str):
        return numpy.dtype(description)
    return numpy.lib.format.descr_to_dtype(_fields(description))


def _fields(description: List[Any]) -> List[Any]:
    """JSON has no tuples, and dtype descriptions need them: for a field, its title and its shape."""
    fields = []
    for field in description:
        name = field[0] if isinstance(field[0], str) else tuple(field[0])
        kind = field[1] if isinstance(field[1], str) else _fields(field[1])
        fields.append((name, kind, *(tuple(shape) for shape in field[2:])))
    return fields


def _where(at: Any) -> str:
    keys = []
    while at is not None:
        at, key = at
        keys.append(f"[{key!r}]")
    return "state" + "".join(reversed(keys))


def _type_name(value: Any) -> str:
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return ("an " if name[0] in "aeiou" else "a ") + name


def _advice(value: Any) -> str:
    if hasattr(value, "bit_generator"):
        return "keep its bit_generator.state"
    if hasattr(value, "detach"):
        return "keep its .detach().cpu().numpy()"
    for plain in (dict, list, tuple, str, bytes, int, float):
        if isinstance(value, plain):
            return f"make it a plain one: {plain.__name__}(...)"
    if hasattr(value, "__array__"):
        return "make it a plain array: numpy.array(...)"
    return "use arrays, numbers, text, bytes, bools, None, and dicts, lists and tuples of them"
