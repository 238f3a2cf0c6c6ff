"""The main process of a learner's pod, around the user's command, and of a parameter server's around ours.

`python -m ffdl.steps.agent`. Joins the job, runs the command, forwards halt, judges its end. Exit codes: 0 done, 75
"again, please", 70 the job failed elsewhere; anything else is the user's.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import socket
import sys
import time
import uuid

from ..learner import contract
from ..learner.checkpoint import committed
from . import exits, told
from .channel import Message
from .command import Command
from .identity import Identity, load
from .library import door, free_port
from .link import Link, address_file, helper_wait
from .metrics import extractor
from .oom import MemoryCgroup
from .output import Output
from .program import no_worlds
from .safe_files import make_readable
from .script import Heard, Script
from .start import start
from .still import STILL_MOST, Still
from .written import Written, fingerprint

HALTED_PAUSE = 2.0  # seconds a script that has halted gets to end by itself
ANSWER_WITHIN = 15.0  # seconds a halting agent waits to hear what its outcome is worth
LONG_RUN = 60.0  # seconds: a command that lived that long was not killed within moments of its start


class Agent:
    """One attempt of one learner, or parameter server. `run` returns the exit code of the pod."""

    def __init__(self, identity: Identity, token: str) -> None:
        self.identity, self.spec = identity, identity.spec
        self._port = free_port()
        join = {
            "token": token,
            "role": identity.role,
            "index": identity.index,
            "incarnation": uuid.uuid4().hex,
            "attempt": identity.attempt,
            "address": identity.address,
            "port": self._port,
        }
        self._door: socket.socket | None = None
        if identity.together:
            self._door = door(identity.address)
            join["data"] = self._door.getsockname()[1]
        now = time.monotonic()
        self._link = Link(address_file(), join, now)
        self._selector = selectors.DefaultSelector()
        self._linked: tuple[int, int] | None = None  # descriptor and events under which the link is registered
        self._link.before_close = self._unwatch_link
        self._command: Command | None = None
        self._memory = MemoryCgroup()
        self._world: Message | None = None
        self._generation = 0  # of the world in which the command was started, or says that it went on
        self._broken = False  # that world is over, and the next has not been announced
        self._still, self._written = Still(), Written(identity)
        self._renewing: float | None = None  # deadline of a command that can't go on in another world by itself
        self._exit: int | None = None
        self._halting: float | None = None  # deadline
        self._halted_at: float | None = None
        self._leaving: tuple[int, float] | None = None  # exit code, deadline
        self._signalled = False
        self._pending: tuple[Message, float] | None = None  # an outcome to be heard, and since when
        self._restart_at: float | None = None
        self._restarts = self._restarted = self._kills = 0  # in a row; in all
        self._files: tuple[int, int] = (0, 0)
        self._terminated = self._said_shell = False
        logs = os.path.join(contract.path(contract.LOG_DIR), identity.name)
        self._output = Output(logs, identity.job_id, identity.name, extractor(identity.spec.metrics))
        heard = Heard(self._place, self._whole_place, self._moved, self._committed)
        self._script = Script(
            identity.run_dir, self._selector, self._output, heard, self._door, no_worlds(identity.spec)
        )
        self._checkpoints = self._saved()

    # --- the loop -------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Everything, to the exit code."""
        self._catch_signals()
        while self._exit is None:
            self._turn()
        if self._command is not None:
            self._command.signal(signal.SIGKILL)
            self._command.finish()
        self._written.make_readable()
        self._output.close()
        if self._exit == contract.EXIT_AGAIN:
            last = {"step": self._output.step, "metrics": self._output.numbers}
            self._link.send({"type": contract.HALTED, **last}, time.monotonic())
        self._link.drop(time.monotonic())
        return self._exit

    def _catch_signals(self) -> None:
        woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(woken, selectors.EVENT_READ, "signal")
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)

    def _on_term(self, *_: object) -> None:
        self._terminated = True

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._timeout()):
            if key.data == "signal":
                with contextlib.suppress(BlockingIOError):
                    os.read(key.fd, 4096)
            elif key.data == "helper":
                for message in self._link.receive(time.monotonic()):
                    self._from_helper(message, time.monotonic())
            elif key.data == "output":
                self._pump(key.fd)
            else:
                self._script.serve(key.data, key.fd)
        now = time.monotonic()
        if self._terminated:
            self._terminated = False
            self._halt("asked to end", now)
        self._link.tick(self._status(), now)
        self._watch_link()
        self._follow_helper(now)
        self._follow_command(now)
        self._output.idle(now)

    def _status(self) -> Message:
        said: Message = {"step": self._output.step, "of": self._script.of, "metrics": self._output.numbers}
        if self.identity.together:
            said |= {"generation": 0 if self._broken else self._generation, "checkpoints": self._checkpoints}
        finished = self._pending is not None and self._pending[0]["type"] == contract.DONE
        return {"running": self._command is not None, "finished": finished, "restarts": self._restarted, **said}

    def _timeout(self) -> float:
        if not self._link.joined and self._command is None:
            return 0.05
        ends = [self._restart_at, self._halted_at, self._halting, self._leaving[1] if self._leaving else None]
        soonest = min((end for end in ends if end is not None), default=float("inf"))
        return min(0.5, max(0.01, soonest - time.monotonic()))

    def _watch_link(self) -> None:
        """Keeps the selector's idea of the link's channel, which comes and goes, true."""
        channel = self._link.channel
        if channel is None:
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.wants_write else 0)
        watched = (channel.fileno(), events)
        if self._linked != watched:
            self._unwatch_link()
            self._selector.register(channel.fileno(), events, "helper")
            self._linked = watched

    def _unwatch_link(self) -> None:
        if self._linked is not None:
            self._selector.unregister(self._linked[0])
            self._linked = None

    # --- the helper -----------------------------------------------------------------------------------------------

    def _from_helper(self, message: Message, now: float) -> None:
        kind = message["type"]
        if kind == contract.WELCOME:
            if message.get("again"):
                self._output.say(contract.EARLIER_POD)
            if self._pending is not None:
                self._link.send(self._pending[0], now)
            elif self._restart_at is not None and not self._may_start:  # it may not have heard of it
                self._tell_restarted(now)
        elif kind == contract.WORLD:
            self._enter(message, now)
        elif kind == contract.NEWS and self._world is not None:
            self._world.update(common=message.get("common"), done=message.get("done"))
            self._script.tell(message)
        elif kind == contract.BREAK:
            self._broken = True
            self._script.end_world()
        elif kind == contract.HALT:
            self._halt("the job is halted", now)
        elif kind == contract.RELEASED:
            self._exit = contract.EXIT_DONE
        elif kind == contract.VERDICT:
            code = message.get("code")
            self._exit = code if isinstance(code, int) and 0 < code < 256 else contract.EXIT_FINAL
        elif kind in (contract.COMPLETE, contract.FINISHED):
            self._leave(contract.EXIT_DONE, "the job is complete", now)
        elif kind == contract.END:
            self._leave(contract.EXIT_FINAL, f"the job has ended: {message.get('reason', '')}", now)
        elif kind == contract.REFUSED:
            if "later attempt" in str(message.get("reason", "")):
                self._leave(contract.EXIT_AGAIN, "a later attempt is running", now)
            else:
                self._link.drop(now)

    def _enter(self, world: Message, now: float) -> None:
        """Starts the command in `world`, or lets it go on there."""
        renewed = self._world is not None and world.get("generation") != self._world.get("generation")
        self._world, self._broken = world, False
        if not renewed:
            self._script.tell(world)
        if self._ending:
            return
        if self._command is None:
            if renewed and self.identity.together:
                self._pending = None  # what it had done, or what had become of it, was in a world that is over
            if self._pending is None and self._restart_at is None:
                self._start(now)
        elif renewed and self.identity.together:
            follows = self._script.renew()
            if not follows and self._renewing is None:
                self._begin_anew(self._command, "the learners begin anew from their last checkpoint", now)

    @property
    def _ending(self) -> bool:
        return self._halting is not None or self._leaving is not None

    def _follow_helper(self, now: float) -> None:
        """What is to be done when there is no helper, or what the last one left."""
        link = self._link
        if link.joined:
            return
        outcome = link.outcome
        if outcome is not None:
            link.outcome = None
            if outcome.get("completed") or self.identity.index in outcome.get("done", []):
                self._leave(contract.EXIT_DONE, "the job is complete", now)
            else:
                code = outcome.get("failed", {}).get(str(self.identity.index), contract.EXIT_FINAL)
                self._leave(int(code), f"the job has ended: {outcome.get('ended', '')}", now)
            return
        absent = now - link.absent_since
        if self._world is None:
            if absent >= helper_wait(self.identity.attempt) and self._leaving is None:
                self._output.say("the job's helper can't be reached")
                self._exit = contract.EXIT_AGAIN
        elif self._command is None and self._restart_at is None and self._pending is None:
            if not self._ending and absent > contract.HELPER_ABSENCE:
                self._exit = contract.EXIT_AGAIN
        elif self._pending is None and not self._ending:
            if absent > contract.HELPER_ABSENCE:
                self._halt(f"no helper for {absent:.0f} s", now)
            elif os.path.exists(os.path.join(contract.path(contract.HELPER_DIR), contract.HALTED_FILE)):
                self._halt("the job is halted", now)

    # --- the command ----------------------------------------------------------------------------------------------

    def _start(self, now: float) -> None:
        assert self._world is not None
        self._restart_at = None
        self._generation = int(self._world.get("generation", 0))
        self._kills, self._files = self._memory.kills(), fingerprint()
        self._script.begin()
        try:
            self._command = start(self.identity, self._world, self._port, self._script.path, self._output.write)
        except OSError as error:
            self._output.say(f"the command can't be started: {error}")
            if error.errno in (errno.ENOSPC, errno.EDQUOT, None):  # no fault of the command's; None: copying files
                self._exit = contract.EXIT_AGAIN
            else:
                self._report({"type": contract.FAILED, "reason": "crash", "code": 127}, now)
            return
        assert self._command.output is not None
        self._selector.register(self._command.output, selectors.EVENT_READ, "output")
        if os.path.basename(self._command.shell) != "bash" and not self._said_shell:
            self._said_shell = True
            self._output.say(f"the image has no bash: the command is run by {self._command.shell}")
        self._link.send({"type": contract.HEARTBEAT, **self._status()}, now)

    def _pump(self, descriptor: int) -> None:
        if self._command is None or not self._command.pump():
            self._selector.unregister(descriptor)

    def _follow_command(self, now: float) -> None:
        """Signals that are due, the end of the command, its next start."""
        command = self._command
        if command is None:
            self._follow_nothing(now)
            return
        status = command.poll()
        if status is not None:
            self._ended(command, status, now)
            return
        deadline = self._leaving[1] if self._leaving else self._halting if self._halting else self._renewing
        if deadline is None:
            self._written.keep_readable(now)
            self._keep_moving(command, now)
            self._keep_serving(command)
            return
        if now >= deadline:
            self._signalled = True
            command.signal(signal.SIGKILL)
        elif not self._signalled and self._halting is not None and self._leaving is None:
            if self._script.halting:
                self._halted_at = None
            elif self._script.halted:
                # its process is on the way out; what may run on after it is not told to go on
                self._halted_at = self._halted_at or now + HALTED_PAUSE
            else:
                self._halted_at = now
            if self._halted_at is not None and now >= self._halted_at:
                self._signalled = True
                command.signal(signal.SIGTERM)

    @property
    def _may_start(self) -> bool:
        """What others can't go on without has ended the world when it was killed: it starts again in the next one."""
        alone = not self.identity.together or (self.identity.role == contract.LEARNER and not self.spec.lockstep)
        return alone or self._behind

    @property
    def _behind(self) -> bool:
        """There is another world than the one that the command was in last."""
        return (self._world or {}).get("generation") != self._generation

    def _missed(self, failed: bool) -> bool:
        """The command has ended in another world than the one that is on: what it has done is nothing there, where all
        need all, and how it has failed may come of the loss."""
        there = self._behind and not self._broken
        return self.identity.together and there and (self.spec.lockstep or failed)

    def _keep_moving(self, command: Command, now: float) -> None:
        if self.identity.together and self._still.too_long(command, now):
            self._output.say(f"the command was stopped {STILL_MOST:.0f} s ago, and the other learners wait for it")
            command.signal(signal.SIGKILL)
        elif self._script.stuck(now):
            why = f"a call that waits for one that was lost has not returned for {contract.LEAVE_GRACE:.0f} s"
            self._begin_anew(command, why, now)

    def _begin_anew(self, command: Command, why: str, now: float) -> None:
        """Ends the command, which can't go on in another world by itself."""
        self._output.say(f"{why}: the command is started again")
        self._renewing = now + min(contract.LEAVE_GRACE, self.spec.halt_grace)
        command.signal(signal.SIGTERM)

    def _keep_serving(self, command: Command) -> None:
        """Where another learner's command runs here too, its end there does not tell that memory ran out here."""
        if self.identity.serves and self._memory.kills() > self._kills:
            command.signal(signal.SIGKILL)

    def _follow_nothing(self, now: float) -> None:
        if self._leaving is not None:
            self._exit = self._leaving[0]
        elif self._pending is not None:
            patience = ANSWER_WITHIN if self._halting is not None else contract.HELPER_ABSENCE
            if now - self._pending[1] > patience and not (self._link.joined and self._halting is None):
                self._exit = contract.EXIT_AGAIN
        elif self._halting is not None:
            self._exit = contract.EXIT_AGAIN
        elif self._restart_at is not None and now >= self._restart_at and self._may_start:
            self._start(now)

    def _ended(self, command: Command, status: int, now: float) -> None:
        out_of_memory = self._memory.kills() > self._kills
        if command.output is not None:
            with contextlib.suppress(KeyError):
                self._selector.unregister(command.output)
        command.finish()
        self._command = None
        self._script.finish()
        self._look_at_checkpoints()  # it may have died between saving one and telling of it
        self._output.flush()
        self._written.make_readable()
        if self._leaving is not None:
            return
        again = self._renewing is not None or self._missed(status != 0)
        if again and self._halting is None and not (self.identity.serves and out_of_memory):
            self._renewing, self._signalled = None, False
            if self._broken:
                self._restart_at = now
            else:
                self._start(now)
            return
        progressed = self._script.checkpointed or fingerprint() != self._files
        if progressed or now - command.started > LONG_RUN:
            self._restarts = 0
        asked, signalled, restarts = self._halting is not None, self._signalled, self._restarts
        ending = exits.Ending(status, asked, self._script.halted, signalled, out_of_memory, restarts)
        what, reason = exits.judge(ending)
        code = exits.exit_code(status)
        if what is exits.Next.DONE:
            self._report({"type": contract.DONE}, now)
        elif what is exits.Next.HALTED:
            self._exit = contract.EXIT_AGAIN
        elif what is exits.Next.RESTART:
            pause = exits.restart_pause(restarts)
            self._output.say(f"the command was killed (exit code {code}), not by us: it is started again")
            self._restarts += 1
            self._restarted += 1
            self._restart_at = now + pause
            self._tell_restarted(now)
        else:
            limit = self._memory.limit() or self.spec.memory
            failure = {"reason": reason, "code": code, "limit": limit, "progressed": progressed}
            self._report({"type": contract.FAILED, **failure}, now)

    def _tell_restarted(self, now: float) -> None:
        about = {"generation": self._generation, "checkpoints": self._checkpoints}
        self._link.send({"type": contract.RESTARTED, **about}, now)

    def _report(self, outcome: Message, now: float) -> None:
        """Tells the helper, now and again until it answers."""
        self._pending = ({**outcome, "generation": self._generation}, now)
        if self._link.joined:
            self._link.send({"type": contract.HEARTBEAT, **self._status()}, now)  # the last step too
            self._link.send(self._pending[0], now)

    def _halt(self, why: str, now: float) -> None:
        if self._ending:
            return
        self._halting = now + self.spec.halt_grace
        self._restart_at = None
        if self._command is not None:
            self._output.say(f"{why}; halting")
            self._script.halt()

    def _leave(self, code: int, why: str, now: float) -> None:
        """The job's end is decided without us: stop the command and exit with `code`."""
        if self._leaving is not None:
            return
        self._leaving = (code, now + min(contract.LEAVE_GRACE, self.spec.halt_grace))
        self._restart_at = None
        self._script.end()
        if self._command is not None:
            self._output.say(why)
            self._signalled = True
            self._command.signal(signal.SIGTERM)

    # --- what the script is told ----------------------------------------------------------------------------------

    def _whole_place(self) -> Message:
        assert self._world is not None
        return told.whole(self._world)

    def _place(self, follows: bool) -> Message:
        assert self._world is not None
        return told.place(self.identity, self._world, self._link.epoch, follows)

    def _moved(self, generation: int) -> None:
        self._generation = generation

    def _committed(self, step: int) -> None:
        make_readable(os.path.join(self.identity.checkpoint_dir, f"step-{step}"))
        self._look_at_checkpoints()
        about = {"step": step, "checkpoints": self._checkpoints}
        self._link.send({"type": contract.CHECKPOINTED, **about}, time.monotonic())

    def _look_at_checkpoints(self) -> None:
        with contextlib.suppress(OSError):
            self._checkpoints = self._saved()

    def _saved(self) -> list[tuple[int, int]]:
        """Step and generation of each checkpoint, newest first. Raises OSError."""
        found = committed(self.identity.checkpoint_dir) if self.identity.together else []
        return [one.identity for one in found[: contract.CHECKPOINTS_TOLD]]


def main() -> int:
    """The program."""
    try:
        agent = Agent(*load())
    except (OSError, ValueError, KeyError) as error:
        print(f"ffdl: the learner can't start: {error}", file=sys.stderr)
        return contract.EXIT_AGAIN if isinstance(error, OSError) else contract.EXIT_FINAL
    return agent.run()


if __name__ == "__main__":
    sys.exit(main())
