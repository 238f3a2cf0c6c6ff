"""What the scripts of a command say through the learner library, and what that adds up to for the agent."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from ..learner import contract
from .channel import Message
from .metrics import from_step
from .output import Output
from .sessions import Sessions


@dataclass(frozen=True)
class Heard:
    """Whom to ask and to tell. `place` makes what a script is told when it begins, who follows or not, `world` the
    world as it is; `moved` hears of the generation in which a script goes on, `committed` of each checkpoint."""

    place: Callable[[bool], Message]
    world: Callable[[], Message]
    moved: Callable[[int], None]
    committed: Callable[[int], None]


class Script:
    """`halted`: a script has carried out a halt; `checkpointed`: one has committed a checkpoint; `of`: steps in all.

    `door` is where other learners find this one: who trains with them asks for it. `refusal` says why no script of the
    job can follow its worlds, if that is so.
    """

    def __init__(
        self,
        run_dir: str,
        selector: selectors.BaseSelector,
        output: Output,
        heard: Heard,
        door: socket.socket | None = None,
        refusal: str = "",
    ) -> None:
        self._sessions = Sessions(run_dir)
        self.path = self._sessions.path
        self._selector, self._output, self._heard = selector, output, heard
        self._door, self._refusal = door, refusal
        self._asked = False
        self._generation: int | None = None  # of the world that scripts are to go on in, once there is another
        self.halted = self.checkpointed = False
        self.of: int | None = None
        selector.register(self._sessions.listener, selectors.EVENT_READ, "library")

    @property
    def halting(self) -> bool:
        """A script is still there that will say when it has halted."""
        return self._sessions.halting

    def begin(self) -> None:
        """The command is about to start (again)."""
        self.halted = self.checkpointed = False

    def halt(self) -> None:
        """Asks every script that there is or will be."""
        self._asked = True
        self._sessions.ask_to_halt()

    def renew(self) -> bool:
        """There is another world: tells the scripts that follow. Whether there is one."""
        place = self._heard.place(True)
        self._generation = place["generation"]
        return self._sessions.move_on(place)

    def tell(self, news: Message) -> None:
        """Tells who follows what has changed in this world: `news` or the world has it."""
        about = {name: news.get(name) for name in ("common", "done")}
        self._sessions.tell_followers({"type": contract.NEWS, **about})

    def end_world(self) -> None:
        """The world is over, and another to come."""
        self._generation = None
        self._sessions.move_on({"type": contract.BREAK})

    def stuck(self, now: float) -> bool:
        """Whether one that follows waits in a call for those of a world that is over."""
        return self._sessions.stuck(now)

    def end(self) -> None:
        """The job's end is decided: there will be no other world."""
        self._sessions.tell_followers({"type": contract.END})

    def serve(self, what: str, descriptor: int) -> None:
        """`descriptor`, registered as `what`, has something for us."""
        if what == "library":
            self._arrive()
        elif descriptor in self._sessions:
            self._receive(descriptor)

    def finish(self) -> None:
        """The command has ended: hears what was still said."""
        while self._arrive():
            pass
        for descriptor in self._sessions.descriptors():
            while self._receive(descriptor):
                pass

    def _arrive(self) -> bool:
        descriptor = self._sessions.accept()
        if descriptor is not None:
            self._selector.register(descriptor, selectors.EVENT_READ, "script")
        return descriptor is not None

    def _receive(self, descriptor: int) -> bool:
        """Hears what there is. False when there is no more."""
        messages = self._sessions.receive(descriptor)
        if messages is None:
            self._selector.unregister(descriptor)
            self._sessions.drop(descriptor)
            return False
        for message in messages:
            self._hear(descriptor, message)
        return bool(messages)

    def _hear(self, descriptor: int, message: Message) -> None:
        session, kind = self._sessions[descriptor], message["type"]
        if kind == contract.HELLO and self._refusal and message.get("follows") is True:
            self._sessions.send(descriptor, {"type": contract.REFUSED, "reason": self._refusal})
        elif kind == contract.HELLO:
            session.cooperative, session.follows = True, message.get("follows") is True
            self._sessions.send(descriptor, self._heard.place(session.follows))
            if self._asked:
                self._sessions.send(descriptor, {"type": contract.HALT})
        elif kind == contract.STEP:
            self._step(message)
        elif kind == contract.CHECKPOINTED and isinstance(message.get("step"), int):
            self.checkpointed = True
            self._heard.committed(message["step"])
        elif kind == contract.PLACE:
            self._sessions.send(descriptor, self._heard.world())
        elif kind == contract.LISTENER and self._door is not None:
            self._sessions.hand(descriptor, {"type": contract.LISTENER}, self._door)
        elif kind == contract.MOVES:
            there = message.get("generation") == self._generation
            self._sessions.moves(descriptor, there)
            if there and self._generation is not None:
                self._heard.moved(self._generation)
        elif kind == contract.HALTED:
            session.halted = self.halted = True
        elif kind == "bye":
            session.cooperative = False

    def _step(self, message: Message) -> None:
        records = message.get("records")
        if not isinstance(records, list):
            records = [[message.get("step"), message.get("time"), message.get("metrics")]]
        found = []
        for record in records:
            if isinstance(record, list) and len(record) == 3 and isinstance(record[0], int):
                step, when, values = record
                when = when if isinstance(when, (int, float)) and 0 < when < 1e11 else time.time()
                found.append((from_step(step, values if isinstance(values, dict) else {}), when))
        self._output.record(found)
        if isinstance(message.get("of"), int):
            self.of = message["of"]
