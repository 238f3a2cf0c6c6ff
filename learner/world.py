"""A generation of a job, as a learner or a parameter server is told of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Mapping, Optional, Tuple

Address = Tuple[str, int]


@dataclass(frozen=True)
class World:
    """Who trains together, and from where on. `key` is known to its members alone.

    `step`: the one that all go on from, -1 for the beginning; None: everyone from the last one of its own. `first`: the
    lowest rank that is not done, which gives parameters to servers that have none.
    """

    generation: int = 0
    rank: int = 0
    size: int = 1
    key: bytes = b""
    addresses: Tuple[Address, ...] = ()  # of the learners, by rank; none where they do not train together
    servers: Tuple[Address, ...] = ()
    mode: str = ""  # of the parameter servers
    step: Optional[int] = None
    first: int = 0

    @property
    def together(self) -> bool:
        """All learners need each other, and have collectives."""
        return len(self.addresses) > 1

    @property
    def alone(self) -> bool:
        """Nobody else is needed."""
        return not self.together and not self.servers

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> World:
        """Raises ValueError, TypeError."""
        return cls(
            generation=message.get("generation", 0),
            rank=message.get("rank", 0),
            size=message.get("size", 1),
            key=bytes.fromhex(message.get("key") or ""),
            addresses=_addresses(message.get("addresses")),
            servers=_addresses(message.get("servers")),
            mode=message.get("mode") or "",
            step=message.get("step"),
            first=message.get("first") or 0,
        )


def _addresses(listed: Optional[List[Any]]) -> Tuple[Address, ...]:
    return tuple((str(host), int(port)) for host, port in listed or ())
