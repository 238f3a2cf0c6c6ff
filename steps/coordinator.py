"""Who is in the job and what becomes of it: the helper's state machine.

Pure: events and the time go in, effects come out. The time is seconds of any clock that only goes forward. Effects are
to be carried out in order: a `Record` is durable before the `Send` behind it tells anyone.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection
from typing import Any

from ..learner import contract
from ..learner.waiting import STARTING
from ..learner.waiting import judge as judge_waiting
from .channel import Message
from .effects import Annotate, Close, DeletePod, Effect, Effects, Mark, Record, Send, Ship, Stop
from .hang import Hang
from .journal import State
from .members import Member, checkpoints_of, count, member_of, metrics_of, words
from .verdict import OUT_OF_MEMORY, judge, size
from .view import Snapshot
from .worlds import Worlds, recorded

FIRST_GRACE = 30.0  # seconds the others have once the first learner is done, where that completes the job
HALT_MARGIN = 10.0  # seconds beyond halt_grace that a halt waits for learners
DELETED_AGAIN = 2.0  # seconds after which a pod that is still, or again, there is deleted once more
MADE_AGAIN, MADE_AGAIN_EACH = 4.0, 0.1  # seconds, and a member, that a halt waits whether a deleted one is made again
RUNNING_RECORDED = 10.0  # seconds of running between two records of it


class Coordinator:
    """The state of a job with a fixed set of learners. Every method that takes an event returns what is to be done."""

    def __init__(self, spec: contract.JobSpec, job_id: str, token: str, epoch: int, state: State, now: float) -> None:
        self.spec, self.job_id, self.epoch, self.state = spec, job_id, epoch, state
        self.members: dict[int, Member] = {}
        self.worlds = Worlds(spec, job_id, token, state, self.members)
        self.halting: float | None = None  # since when
        self.snapshot = Snapshot()
        self._token = token.encode()
        self._deleted: dict[str, float] = {}  # pods that were not to start, and when that was asked for
        self._starting = float("-inf")  # when such a one was last there
        self._forced: set[str] = set()
        self._now = self._recorded = now
        self._waiting_since: float | None = None  # a pod can't start since then
        self._stuck = ""  # and why
        self._hang = Hang()
        self._complete_at: float | None = None
        if state.completed:
            self._complete_at = now + self._grace()

    @property
    def formed(self) -> bool:
        """The learners are at work."""
        return self.worlds.formed

    @property
    def over(self) -> bool:
        """The job's end is decided."""
        return self.state.completed or bool(self.state.ended)

    def finished(self, now: float) -> bool:
        """The job is over and no learner is to be waited for."""
        return self.over and all(self._gone(member, now) for member in self.members.values())

    def halted(self, now: float) -> bool:
        """The halt that has begun is carried out: no learner is to be waited for, or for none any longer."""
        if self.halting is None:
            return False
        if now - self.halting > self.spec.halt_grace + HALT_MARGIN:
            return True
        members = self.spec.learners + self.spec.servers  # a controller goes through all before it looks up again
        if now - self._starting < MADE_AGAIN + MADE_AGAIN_EACH * members or self.snapshot.busy:
            return False
        if not all(self._gone(member, now) for member in self.members.values()):
            return False
        strangers = self.snapshot.active - self.members.keys() - set(self.state.done)
        return not strangers or now - self.halting > contract.RECONNECT_WINDOW

    def hung(self, now: float) -> tuple[Member, float] | None:
        """One that others, who have finished, wait for, and that has taken no step since the time beside it."""
        finished = {*self.state.done, *self.worlds.finished}
        going = [member for member in self._learners if member.index not in finished and member.running]
        behind = [member for member in going if not self.worlds.through(member)]
        if self.over or self.halting is not None or not (finished or len(behind) < len(going)):
            return None
        return self._hang.find(behind or (going if finished else []), now)

    def outcome(self) -> dict[str, Any]:
        """What a learner that comes after the helper has ended needs to know."""
        state = self.state
        failed = {str(index): code for index, code in state.failed.items()}
        return {"completed": state.completed, "ended": state.ended, "done": sorted(state.done), "failed": failed}

    # --- events ---------------------------------------------------------------------------------------------------

    def message(self, conn: int, message: Message, now: float) -> list[Effect]:
        """`message` came on connection `conn`, which is nobody's until it has joined."""
        if message["type"] == contract.JOIN:
            return list(self._join(conn, message, now))
        member = self._member(conn)
        if member is None:
            return [Close(conn, "it did not join")]
        member.heard = now
        return list(self._handle(member, conn, message, now))

    def disconnected(self, conn: int, now: float) -> list[Effect]:
        member = self._member(conn)
        if member is not None:
            member.conn, member.lost, member.running = None, now, False
        return []

    def seen(self, snapshot: Snapshot, now: float) -> list[Effect]:
        """The Workflow looks like `snapshot` now."""
        self.snapshot = snapshot
        return list(self._seen(snapshot, now))

    def tick(self, now: float) -> list[Effect]:
        """Time has passed. To be called at least once a second."""
        return list(self._tick(now))

    def stop(self, reason: str) -> list[Effect]:
        """Ends the job by protocol, unless its end is decided already."""
        return list(self._end({"kind": "ended", "reason": reason}))

    def last(self) -> list[Effect]:
        """The job has finished: what those need who can't come to hear of it."""
        waits = any(judge_waiting(message) != STARTING for message in self.snapshot.pending.values())
        return [Stop({contract.ANNOTATION_REASON: self.state.ended})] if self.state.ended and waits else []

    # --- members --------------------------------------------------------------------------------------------------

    def _join(self, conn: int, message: Message, now: float) -> Effects:
        if not hmac.compare_digest(str(message.get("token", "")).encode("utf-8", "replace"), self._token):
            yield Send(conn, {"type": contract.REFUSED, "reason": "wrong token"})
            yield Close(conn, "wrong token")
            return
        member = member_of(message, self.spec)
        if member is None:
            yield Send(conn, {"type": contract.REFUSED, "reason": "no such member"})
            yield Close(conn, "no such member")
            return
        index = member.index
        old = self.members.get(index)
        if old is not None and member.attempt < old.attempt:
            yield Send(conn, {"type": contract.REFUSED, "reason": "a later attempt has joined"})
            yield Close(conn, "an earlier attempt")
            return
        if old is not None and old.conn is not None and old.conn != conn:
            if old.incarnation != member.incarnation:
                refusal = {"type": contract.REFUSED, "reason": "a later attempt has joined"}
                yield Send(old.conn, refusal)
            yield Close(old.conn, "it joined again")
        member.conn, member.heard, member.moved = conn, now, now
        self.members[index] = member
        if index in self.state.done or (self.state.completed and not member.running):
            member.leaving = True
            yield Send(conn, {"type": contract.FINISHED})
            return
        welcome = {"type": contract.WELCOME, "epoch": self.epoch, "generation": self.state.generation}
        if old is not None and old.attempt == member.attempt and old.incarnation != member.incarnation:
            welcome["again"] = True  # a cluster makes a pod that is deleted at its start again, under the same name
        yield Send(conn, welcome)
        if index in self.state.failed:
            yield from self._verdict(member, self.state.failed[index])
        elif self.state.ended:
            yield from self._dismiss(member)
        elif self.halting is not None:
            yield Send(conn, {"type": contract.HALT})
        else:
            if old is not None and old.incarnation != member.incarnation and self.worlds.needs(member):
                yield from self.worlds.end()
            if self.formed:
                yield Send(conn, self.worlds.message(member))
            yield from self._form()

    def _form(self) -> Effects:
        if not self.over and self.halting is None:
            yield from self.worlds.form()

    def _handle(self, member: Member, conn: int, message: Message, now: float) -> Effects:
        kind = message["type"]
        before, member.checkpoints = member.checkpoints, checkpoints_of(message, member.checkpoints)
        if member.checkpoints != before:
            yield from self.worlds.tell()
        if kind == contract.HEARTBEAT:
            member.running, member.finished = message.get("running") is True, message.get("finished") is True
            member.generation = count(message.get("generation"), None) or member.generation
            step = count(message.get("step"), member.step)
            member.moved = now if step != member.step else member.moved
            member.step, member.of = step, count(message.get("of"), member.of)
            member.metrics = metrics_of(message, member.metrics)
            member.restarts = count(message.get("restarts"), member.restarts) or 0
            yield Send(conn, {"type": contract.HEARTBEAT, "epoch": self.epoch})
        elif kind == contract.CHECKPOINTED:
            step = count(message.get("step"), None)
            if step is not None and step > self.state.checkpoints.get(member.index, -1):
                about = {"index": member.index, "step": step, "of": member.of}
                yield recorded(self.state, {"kind": "checkpoint", **about})
            yield Ship()
        elif kind == contract.RESTARTED:
            member.running = False
            generation = self.state.generation  # it says so again where it may not have been heard
            if self.worlds.needs(member) and message.get("generation", generation) == generation:
                yield from self.worlds.end()
                yield from self._form()
        elif kind == contract.HALTED:
            member.leaving, member.step = True, count(message.get("step"), member.step)
            member.metrics = metrics_of(message, member.metrics)
        elif kind == contract.DONE and not member.learns and self.spec.own_servers:
            pass  # its framework has told it that no learner needs it any more; it hears of the job's end
        elif kind == contract.DONE and not member.learns:
            yield from self._end({"kind": "ended", "reason": f"{words(member.index)} ended by itself"})
        elif kind == contract.DONE and self.worlds.lockstep and not self.over:
            yield from self._finished(member, message, now)
        elif kind == contract.DONE:
            yield from self._done(member, message, conn, now)
        elif kind == contract.FAILED:
            if self.state.completed or (self.state.ended and member.index not in self.state.failed):
                yield from self._dismiss(member)
            elif self.worlds.blames(member, message):
                self.worlds.hold(member, message, now)
            else:
                yield from self._failed(member, message)
                if not self.over and self.worlds.needs(member):
                    yield from self.worlds.end()

    # --- ends -----------------------------------------------------------------------------------------------------

    def _finished(self, member: Member, message: Message, now: float) -> Effects:
        """Has done its work in this world: nobody leaves before all have, since one that is lost takes all back."""
        finished = self.worlds.finish(member, message)
        if not self._enough([*self.state.done, *finished]):
            return
        for index in sorted(finished):
            yield recorded(self.state, {"kind": "done", "index": index})
        yield from self._settle(now)
        for index in sorted(finished):
            one = self.members[index]
            one.leaving = True
            if one.conn is not None:
                yield Send(one.conn, {"type": contract.RELEASED})
        yield from self._complete(now)

    def _done(self, member: Member, message: Message, conn: int, now: float) -> Effects:
        if member.index not in self.state.done:
            yield recorded(self.state, {"kind": "done", "index": member.index})
            yield from self.worlds.tell()
        yield from self._settle(now)
        member.leaving = True
        yield Send(conn, {"type": contract.RELEASED})
        yield from self._complete(now)
        missed = message.get("generation", self.state.generation) != self.state.generation
        if missed and not self.over and self.worlds.first == member.index:
            yield from self.worlds.end()  # it does not know of this one, where servers may wait for what it has
            yield from self._form()

    def _settle(self, now: float) -> Effects:
        """Decides whether those that are done complete the job."""
        if self._enough(self.state.done) and not self.over:
            yield self._running_record()
            yield recorded(self.state, {"kind": "completed"})
            self._complete_at = now + self._grace()

    def _enough(self, done: Collection[int]) -> bool:
        first = 1 if self.spec.completion == "first" else self.spec.learners
        return len(done) >= first or (self.spec.completion == "master" and 0 in done)

    def _grace(self) -> float:
        return FIRST_GRACE if self.spec.completion == "first" else 0.0

    def _complete(self, now: float) -> Effects:
        if self._complete_at is not None and now >= self._complete_at:
            for member in self.members.values():
                if member.conn is not None and not member.leaving:
                    yield from self._dismiss(member)

    def _failed(self, member: Member, message: Message) -> Effects:
        if member.index in self.state.failed:
            yield from self._verdict(member, self.state.failed[member.index])
            return
        verdict = judge(self.spec, self.state, member.index, message)
        if verdict.reason:
            yield from self._end(verdict.record, but=member)
        else:
            yield recorded(self.state, verdict.record)
        yield from self._verdict(member, verdict.code)

    def _verdict(self, member: Member, code: int) -> Effects:
        member.leaving = True
        if member.conn is not None:
            yield Send(member.conn, {"type": contract.VERDICT, "action": "exit", "code": code})

    def _end(self, record: dict[str, Any], but: Member | None = None) -> Effects:
        if self.over:
            return
        yield self._running_record()
        yield recorded(self.state, record)
        yield Annotate({contract.ANNOTATION_REASON: self.state.ended})
        for member in self.members.values():
            if member is not but and member.conn is not None and not member.leaving:
                yield from self._dismiss(member)

    def _dismiss(self, member: Member) -> Effects:
        """The job's end is decided: `member` is to end too."""
        member.leaving = True
        if member.conn is not None:
            end = {"type": contract.END, "reason": self.state.ended}
            yield Send(member.conn, {"type": contract.COMPLETE} if self.state.completed else end)

    def _seen(self, snapshot: Snapshot, now: float) -> Effects:
        for index, phase in snapshot.members.items():
            learns = 0 <= index < self.spec.learners
            if phase == "Succeeded" and learns and index not in self.state.done and not self.over:
                yield recorded(self.state, {"kind": "done", "index": index})
                yield from self._settle(now)
                yield from self.worlds.tell()
                yield from self._form()
            elif phase in ("Failed", "Error"):
                yield from self._end({"kind": "ended", "reason": self._lost_for_good(index)})
        for index, kills in snapshot.oom_kills.items():
            # the agent died with its container and could not ask: what Argo has granted counts all the same
            if OUT_OF_MEMORY in self.spec.retry_on and kills > self.spec.retry_attempts > 0:
                reason = f"{words(index)} ran out of memory (limit {size(self.spec.memory)}) {kills} times"
                yield from self._end({"kind": "ended", "reason": reason})
        if snapshot.failed_step:
            why = snapshot.failed_reason.removeprefix(f"{snapshot.failed_step}: ")
            reason = f"{snapshot.failed_step} failed" + (f": {why}" if why else "")
            yield from self._end({"kind": "ended", "reason": reason})
        if not snapshot.stuck:
            self._waiting_since = None
        else:
            since, self._stuck = self._waiting_since, snapshot.stuck
            self._waiting_since = now if since is None else since
        yield from self._force(snapshot)
        if snapshot.stop:
            yield from self._end({"kind": "ended", "reason": "stopped"})
        if snapshot.suspended and self.halting is None and not self.over:
            self.halting = now
            self.worlds.leave()
            yield self._running_record()
            yield Mark()
            for member in self.members.values():
                if member.conn is not None and not member.leaving:
                    yield Send(member.conn, {"type": contract.HALT})
        yield from self._keep_from_starting(now)

    def _keep_from_starting(self, now: float) -> Effects:
        """In a halt. A controller that has not heard of it makes a pod again that it finds deleted."""
        if self.halting is None:
            return
        for name in self.snapshot.pending:
            there = name in self.snapshot.starting
            if there:
                self._starting = now
            if name not in self._deleted or (there and now - self._deleted[name] > DELETED_AGAIN):
                self._deleted[name] = now
                yield DeletePod(name)

    def _force(self, snapshot: Snapshot) -> Effects:
        """A pod that does not end is on a node that is gone, unless who is in it is still heard of."""
        for name, index in snapshot.overdue:
            member = None if index is None else self.members.get(index)
            if name not in self._forced and (member is None or member.conn is None):
                self._forced.add(name)
                yield DeletePod(name, force=True)

    def _lost_for_good(self, index: int) -> str:
        message = self.snapshot.messages.get(index, "")
        if "OOMKilled" in message:
            return f"{words(index)} ran out of memory" + (f" (limit {size(self.spec.memory)})" if index >= 0 else "")
        return f"{words(index)} failed" + (f": {message}" if message else "")

    # --- time -----------------------------------------------------------------------------------------------------

    def _tick(self, now: float) -> Effects:
        passed, self._now = max(0.0, now - self._now), now
        for member in list(self.members.values()):
            if member.conn is not None and now - member.heard > contract.HEARTBEAT_TIMEOUT:
                conn = member.conn
                self.disconnected(conn, now)
                yield Close(conn, "nothing was heard of it")
        yield from self._follow_world(now)
        through = any(self.worlds.through(member) for member in self._learners)
        self._hang.note(bool(self.state.done or self.worlds.finished or through), now)
        yield from self._keep_from_starting(now)
        if self.formed and not self.over and self.halting is None and any(m.running for m in self._learners):
            self.state.running += passed
            if now - self._recorded >= RUNNING_RECORDED:
                self._recorded = now
                yield self._running_record()
            limit = self.spec.max_runtime
            if limit is not None and self.state.running > limit:
                yield from self._end({"kind": "ended", "reason": f"ran for longer than max_runtime ({limit:g} s)"})
        since = self._waiting_since
        if since is not None and now - since > self.spec.start_timeout and self.halting is None and not self.over:
            reason = f"could not start within start_timeout ({self.spec.start_timeout:g} s): {self._stuck}"
            yield from self._end({"kind": "ended", "reason": reason})
            yield Stop({contract.ANNOTATION_REASON: reason})
        yield from self._complete(now)

    def _follow_world(self, now: float) -> Effects:
        """Of those that train together: the loss of one, and failures that have no such cause."""
        worlds = self.worlds
        if not worlds.together or not self.formed or self.over:
            return
        known = [self.members[number] for number in (*worlds.needed, *worlds.servers) if number in self.members]
        away = [member for member in known if worlds.needs(member) and member.conn is None]
        if any(self._gone(member, now) for member in away):
            yield from worlds.end()
            yield from self._form()
            return
        if away:  # while one may be lost, a failure may come of that
            return
        if due := worlds.due(now):
            yield from self._failed(*due)
            if not self.over and worlds.needs(due[0]):
                yield from worlds.end()

    def _gone(self, member: Member, now: float) -> bool:
        if member.conn is not None:
            return False
        active = self.snapshot.active
        ended = member.leaving or (self.snapshot.known and member.index not in active)
        return ended or now - member.lost > contract.RECONNECT_WINDOW

    def _running_record(self) -> Record:
        return recorded(self.state, {"kind": "running", "seconds": round(self.state.running, 3)})

    @property
    def _learners(self) -> list[Member]:
        return [member for member in self.members.values() if member.learns]

    def _member(self, conn: int) -> Member | None:
        return next((member for member in self.members.values() if member.conn == conn), None)
