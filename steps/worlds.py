"""Which learners train together, and when that changes.

A world is a generation and its members: learners, ranked by index, and parameter servers. It is announced once all are
there. When a member is lost, comes back as another process or starts its command again, all go on in the next one.

How much a loss matters is a matter of how they work. Learners on their own do not disturb one another. Those that go in
lockstep (peers; parameter servers in the modes sync and average) are each needed by all others, and begin anew at the
last step that all have saved, servers as well, which none removes before there is another. In the other modes a learner
may come and go, a server may not; each goes on from the last state of its own.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from ..learner import contract
from .channel import Message
from .effects import Effects, Record, Send
from .journal import State
from .members import Member
from .verdict import OUT_OF_MEMORY

FAILURE_HELD = 3.0  # seconds that a failure in a world waits for the loss of another learner, which may be its cause


class Worlds:
    """The worlds of a job. `formed`: one is on. `finished`: who has done all its work in it. `first`: the
    lowest rank in it that had not."""

    def __init__(
        self, spec: contract.JobSpec, job_id: str, token: str, state: State, members: Mapping[int, Member]
    ) -> None:
        self.formed = False
        self.finished: set[int] = set()
        self.first = 0
        self.together = spec.distribution != "none"
        self.lockstep = spec.lockstep
        self._broken = False  # the learners were told that the last world is over
        self._told: dict[str, Any] = {}  # the news, as members were told last
        self._left = False  # it is; else it may be one that an earlier helper has formed
        self._failures: dict[int, tuple[Message, float]] = {}  # held, in the order in which they came
        self._spec, self._job_id, self._token = spec, job_id, token.encode()
        self._state, self._members = state, members

    @property
    def needed(self) -> list[int]:
        """Learners that are not done, by rank."""
        return [index for index in range(self._spec.learners) if index not in self._state.done]

    @property
    def servers(self) -> list[int]:
        """The numbers of the parameter servers."""
        return [~index for index in range(self._spec.servers)]

    @property
    def common(self) -> int:
        """The newest step of which all members have what one and the same world has saved; -1: none."""
        members = [self._members[number] for number in (*self.needed, *self.servers) if number in self._members]
        for one in members[0].checkpoints if members else ():
            if all(one in member.checkpoints for member in members):
                return one[0]
        return -1

    def needs(self, member: Member) -> bool:
        """Whether the others can't go on without it."""
        return self.lockstep if member.learns else True

    def through(self, member: Member) -> bool:
        """Where learners come and go, one may have taken all its steps and wait for the others'."""
        return self.together and not self.lockstep and 0 < (member.of or 0) <= (member.step or 0)

    def form(self) -> Effects:
        """Announces the world once all that are needed are there."""
        needed = [*self.needed, *self.servers]
        present = [self._members[i] for i in needed if i in self._members and self._members[i].conn is not None]
        if self.formed or len(present) < len(needed):
            return
        self.formed, self._left = True, False
        if self._broken or not all(self._goes_on(member) for member in present):
            self._broken = False
            self.finished.clear()
            begins = self.common if self.lockstep else -1
            yield recorded(self._state, {"kind": "world", "generation": self._state.generation + 1, "step": begins})
        self._told = self._news
        going = [member.index for member in present if member.learns and not member.finished]
        self.first = 0 if self.lockstep else min(going, default=0)
        for member in present:
            if member.conn is not None:
                yield Send(member.conn, self.message(member))

    def tell(self) -> Effects:
        """Tells members what is new in this world, if anything is."""
        if not self.formed or self._news == self._told:
            return
        self._told = self._news
        for member in self._members.values():
            if member.conn is not None and (self.lockstep or not member.learns):
                yield Send(member.conn, {"type": contract.NEWS, **self._told})

    @property
    def _news(self) -> dict[str, Any]:
        """What may change while a world goes on: the step that none is to remove; where learners come and go, who will
        not come back, which servers need to know."""
        if self.lockstep:
            return {"common": self.common, "done": []}
        return {"common": None, "done": sorted(self._state.done)}

    def end(self) -> Effects:
        """One of those that train together is lost: the others wait for the next world."""
        if self.together and self.formed:
            self.leave()
            self._broken = True
            for member in self._members.values():
                if member.conn is not None and not member.leaving:
                    yield Send(member.conn, {"type": contract.BREAK, "generation": self._state.generation})

    def leave(self) -> None:
        """No world is on any more, and nobody has to be told."""
        self.formed, self._left = False, True
        self.finished.clear()
        self._failures.clear()

    def finish(self, member: Member, message: Message) -> set[int]:
        """`member` says that it has done its work; who has, in this world. What was done in an earlier one is not."""
        if not self._left and message.get("generation") == self._state.generation:
            self.finished.add(member.index)
        return self.finished

    def blames(self, member: Member, message: Message) -> bool:
        """Whether its failure may come of another's. That memory ran out does not."""
        return self.together and member.index not in self._state.failed and message.get("reason") != OUT_OF_MEMORY

    def hold(self, member: Member, message: Message, now: float) -> None:
        """Its command failed. Where another is lost that is no wonder, and it starts again in the next world."""
        generation = self._state.generation
        if self.formed and message.get("generation", generation) == generation:
            self._failures.setdefault(member.index, (message, now))

    def due(self, now: float) -> tuple[Member, Message] | None:
        """The first failure that is nobody else's fault, held no longer."""
        for index, (message, at) in self._failures.items():
            if now - at > FAILURE_HELD:
                del self._failures[index]
                return self._members[index], message
        return None

    def message(self, member: Member) -> Message:
        """What `member` is told of its world."""
        world: dict[str, Any] = {
            "type": contract.WORLD,
            "generation": self._state.generation,
            "rank": member.index if member.learns else ~member.index,
            "size": self._spec.learners,
            "master": _master(self._members.get(0)),
        }
        if self.together:
            world |= {
                "key": self._key(),
                "servers": self._addresses(self.servers),
                "mode": self._spec.mode,
                "step": self._state.step if self.lockstep else None,
                **self._told,
                "first": self.first,
            }
        if self.lockstep:
            needed = self.needed
            world |= {
                "size": len(needed),
                "master": _master(self._members.get(needed[0]) if needed else None),
                "addresses": self._addresses(needed),
                "meeting": self._meeting(needed),
                "serving": self._meeting(self.servers if self._spec.own_servers else []),
            }
            if member.learns:
                world["rank"] = needed.index(member.index) if member.index in needed else 0
        return world

    def _addresses(self, numbers: list[int]) -> list[list[Any]]:
        members = [self._members[number] for number in numbers if number in self._members]
        return [[member.address, member.data] for member in members]

    def _meeting(self, numbers: list[int]) -> list[list[Any]]:
        """Where frameworks' own processes of these meet."""
        members = [self._members[number] for number in numbers if number in self._members]
        return [[member.address, member.port] for member in members]

    def _goes_on(self, member: Member) -> bool:
        """Its command runs already, or has done all its work, in this very world."""
        return (member.running or member.finished) and (
            not self.together or member.generation == self._state.generation
        )

    def _key(self) -> str:
        """Known to the learners of this world alone."""
        about = f"world {self._job_id} {self._state.generation}".encode()
        return hmac.new(self._token, about, hashlib.sha256).hexdigest()


def _master(member: Member | None) -> dict[str, Any]:
    """Where a framework's own processes meet."""
    return {"index": member.index, "address": member.address, "port": member.port} if member else {}


def recorded(state: State, record: dict[str, Any]) -> Record:
    """`record`, applied to the state that it changes."""
    state.apply(record)
    return Record(record)
