"""A training script's session with its job: progress, metrics, checkpoints, and the point where a halt takes place."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple, TypeVar, Union

from . import contract
from .errors import PeerLost
from .values import count, number
from .world import World

T = TypeVar("T")

if TYPE_CHECKING:  # the rest is imported when a session begins: importing this library costs next to nothing
    import socket
    from typing import Callable

    from .channel import Channel
    from .moving import Moving
    from .overlay import Overlay
    from .parameter_server import Optimizer, Parameters, ParameterServer
    from .saver import Saver
    from .termination import Termination

    State = Union[Dict[Any, Any], Callable[[], Dict[Any, Any]]]

CHECKPOINT_DIR_ENV = "CHECKPOINT_DIR"
BY_HAND = {"interval": 60.0, "keep": 3}  # a job's defaults
NEXT_WORLD_WITHIN = 60.0  # seconds from the loss of another learner until the job's helper has noticed
LOSS_TOLD_WITHIN = 5.0  # seconds that an error of one's own waits to hear that it was another's


class Halted(SystemExit):
    """The job was asked to halt, and the state that was given is saved. Uncaught, it ends the script with code 75."""

    def __init__(self) -> None:
        super().__init__(contract.EXIT_AGAIN)


def run(train: Callable[[Session], T]) -> T:
    """Calls `train(job)` in a session, and returns what it returns.

    For learners that train together: when one of them is lost, the others' next `step` or collective raises PeerLost.
    They then wait, in the same process, until all are there again, and `train` is called anew: it restores the last
    state that all have saved. So it is with any other error (a framework's own) at the time of such a loss.
    """
    job = Session(follows=True)
    try:
        while True:
            try:
                with _finishing(job):
                    return train(job)
            except PeerLost as error:
                job._renew(error)
            except Exception as error:
                if not job._lost_another():
                    raise
                lost = PeerLost(f"{type(error).__name__}: {error}")
                lost.__cause__ = error
                job._renew(lost)
    finally:
        job._close()


@contextlib.contextmanager
def _finishing(job: Session) -> Iterator[None]:
    """A script that ends itself, with `sys.exit()`, has finished as well."""
    try:
        yield
    except SystemExit as ending:
        if not ending.code:
            job._finish()
        raise
    job._finish()


@contextlib.contextmanager
def session() -> Iterator[Session]:
    """This learner's session with its job, for a `with` statement.

    Outside a job the script runs all the same: nothing is reported and, unless CHECKPOINT_DIR is set, nothing is saved
    or restored. With CHECKPOINT_DIR set by hand, checkpoints work as in a job (every 60 s, the last 3 stay) and SIGTERM
    halts.
    """
    job = Session()
    try:
        with _finishing(job):
            yield job
    finally:
        job._close()


class Session:
    """What a script may say to its job. Made by `session()` and `run`."""

    rank = 0  # this learner among those that train together
    size = 1
    generation = 0  # counts the worlds of the job

    def __init__(self, follows: bool = False) -> None:
        self._follows = follows  # it goes on from one world to the next
        self._overlay: Optional[Overlay] = None
        self._server: Optional[ParameterServer] = None
        self._channel: Optional[Channel] = None
        self._saver: Optional[Saver] = None
        self._halt = False
        self._checked = False
        self._step = 0
        self._saved_step = 0
        self._saved_at = time.monotonic()
        self._held: Optional[State] = None
        self._termination: Optional[Termination] = None
        self._moving: Optional[Moving] = None
        told = self._join()
        self._enter(told)
        self._interval: Optional[float] = told.get("interval")
        self._steps: Optional[int] = told.get("steps") or None
        folder = told.get("checkpoint_dir") or os.environ.get(CHECKPOINT_DIR_ENV)
        if folder:
            from .saver import Saver

            about = {"generation": self.generation, "epoch": told.get("epoch", 0), "world_size": self.size}
            self._saver = Saver(os.path.abspath(folder), told.get("keep", 1), about, self._committed)
        if self._channel is not None or self._saver is not None:
            from .termination import Termination

            self._termination = Termination(self._terminated, self._forget)
        if follows and self.world.key:
            from .moving import Moving

            self._moving = Moving(self._moves, lambda: self._saver is not None and self._saver.busy)

    def restore(self) -> Optional[Dict[Any, Any]]:
        """The state of the last committed checkpoint, or None.

        A damaged one is passed over for the one before it. Raises OSError where there are some and none can be read.
        Learners that train together go on from the last one that all have: where that is damaged, DamagedError.
        """
        if self._saver is None:
            return None
        from . import checkpoint, saver

        begins = self.world.step
        if begins is None:
            found = checkpoint.restore(self._saver.folder, saver.warn)
        else:
            found = checkpoint.restore_at(self._saver.folder, begins)
            self._step = self._saved_step = max(begins, 0)  # also at the beginning, which has no checkpoint
        if found is None:
            return None
        self._step = self._saved_step = found[0].step
        state: Dict[Any, Any] = found[1]
        return state

    def step(self, step: int, of: Optional[int] = None, state: Optional[State] = None, **metrics: Any) -> None:
        """Reports that `step` steps (of `of`) are done, with metrics (numbers). The state is saved when it is time to.

        `state` is a dict, or a function that returns one and is called only when it is needed. When the job is to halt,
        this commits the state and raises Halted. Raises TypeError for a state that can't be saved or a metric that is
        not a number.
        """
        step = count("step", step)
        self._step = step
        if self._server is not None and self.world.step is None:
            self.hold(state)  # its servers may leave for a halt before its next step
        now = time.monotonic()
        channel = self._channel
        if channel is not None:
            of = None if of is None else count("of", of)
            channel.record(step, of, {name: number(name, value) for name, value in metrics.items()}, now)
            if channel.halted(now):
                self._halt = True
            self.look()
        if self._server is not None and self._server.leaving:
            self._halt = True
        due = state is not None and self._is_due(now)
        hindered = self._saver is None or self._saver.busy
        if due and channel is not None and not channel.reach():
            hindered = True  # the next attempt does again what nobody has heard of
        if self._overlay is not None and self.size > 1:
            due, hindered = self._agree(self._overlay, due, hindered)
        if self._halt:
            self._halt_with(state)
        if state is None or self._saver is None or hindered:
            return
        if due:
            self._servers_save()
            self.snapshot(step, state() if callable(state) else state)
        elif not self._checked and not callable(state):
            self._checked = True  # a state that can't be saved is an error now, not at the first checkpoint
            self._saver.prepare(state, copies=self._interval is not None or self._steps is not None)

    def overlay(self) -> Overlay:
        """Collectives among the learners of this world, of one where this learner is on its own.

        Raises PeerLost; RuntimeError where learners come and go (`async`, `easgd`): there are none among them.
        """
        if self._overlay is None:
            from .overlay import Overlay, Place

            world = self.world
            if self.size > 1 and not world.together:
                why = f"with mode: {world.mode} learners come and go, and have no collectives"
                raise RuntimeError(f"{why}: write mode: sync, or average")
            place = Place(self.rank, self.generation, world.key)
            if not world.together:
                self._overlay = Overlay(place, world.addresses[:1] or [("", 0)])
            else:
                with self.listener() as listener:
                    self._overlay = Overlay(place, world.addresses, listener, self.look)
        return self._overlay

    def parameter_server(
        self, parameters: Union[Parameters, Any], optimizer: Optimizer, **options: Any
    ) -> ParameterServer:
        """The job's parameter servers, which keep `parameters` (a dict of arrays, or one) for all learners.

        `options` as of `learner.parameter_server.ParameterServer`. Where a job has none, and outside of one, the
        optimizer works here. Raises PeerLost, Mismatch.
        """
        from .parameter_server import ParameterServer
        from .rendezvous import Place

        world = self.world
        if world.together:
            self.overlay()  # by which all agree when to save and halt
        place = Place(self.rank, self.generation, world.key)
        mode = world.mode or "sync"
        if self._server is not None:
            self._server.close()
        options = {"look": self.look, "learners": self.size, **options}
        self._server = ParameterServer(place, world.servers, parameters, optimizer, mode, **options)
        return self._server

    def save(self, state: State) -> bool:
        """Saves `state` now, as that of the last step. Returns whether it is on the disk; False outside a job.

        Where it could not be written there is a warning, and the last committed checkpoint stays. Raises TypeError.
        """
        self._servers_save()
        if self._saver is None:
            return False
        self._spare()
        done = self._saver.save(self._step, state() if callable(state) else state)
        self._saved_at, self._saved_step = time.monotonic(), self._step
        return done

    # --- for parameter servers, which are members of the job as well ----------------------------------------------

    @property
    def halting(self) -> bool:
        """The job was asked to halt, or this process to end."""
        return self._halt or (self._channel is not None and self._channel.halt)

    def look(self) -> None:
        """Hears what the job has to say. Raises PeerLost when this world is over."""
        channel = self._channel
        if channel is not None and self._follows:
            channel.look()
            if channel.ended:
                raise Halted
            if channel.broken or channel.world.get("generation") != self.generation:
                raise PeerLost("another member of the job was lost")

    def listener(self) -> socket.socket:
        """Where other members find this one. Raises ConnectionError."""
        if self._channel is None:
            raise ConnectionError("there is no job")
        return self._channel.listener()

    @property
    def done(self) -> List[int]:
        """The learners that are, in a world where they come and go."""
        return self._channel.done if self._channel is not None else []

    @property
    def at(self) -> int:
        """The last step that was reported, restored or saved."""
        return self._step

    def snapshot(self, step: int, state: Dict[Any, Any]) -> None:
        """Copies `state`, and saves the copy while the caller goes on."""
        if self._saver is not None:
            self._spare()
            # one that all need is saved before the next: nobody saves while another is busy
            self._saver.snapshot(step, state, insists=self.world.step is not None)
        self._step = self._saved_step = step
        self._saved_at = time.monotonic()

    def hold(self, state: Optional[State]) -> None:
        """`state` is what `leave` saves, as that of the last step, until there is another world."""
        self._held = state

    def leave(self) -> None:
        """Halts with what it holds, or else with what is saved already. Raises Halted."""
        if self._held is not None:
            self._halt_with(self._held)
        if self._saver is not None:
            self._saver.finish()
        if self._channel is not None:
            self._channel.close({"type": contract.HALTED, "step": self._step})
        raise Halted

    # --------------------------------------------------------------------------------------------------------------

    def _spare(self) -> None:
        if self._saver is not None and self._channel is not None:
            self._saver.spared = self._channel.common

    def _servers_save(self) -> None:
        if self._server is not None:
            self._server.save(self._step)

    def _join(self) -> Dict[str, Any]:
        address = os.environ.get(contract.AGENT_SOCKET_ENV)
        if not address:
            return BY_HAND
        from .channel import Channel, RefusedError

        try:
            self._channel = Channel(address, self._follows)
        except RefusedError as error:
            raise SystemExit(f"ffdl: {error}") from None
        except OSError as error:
            # Nothing is trained yet, and without the agent's word a state could be saved in the wrong place.
            _say(f"no agent at {address} ({error}); asking for another attempt")
            raise SystemExit(contract.EXIT_AGAIN) from None
        return self._channel.world

    def _agree(self, overlay: Overlay, due: bool, hindered: bool) -> Tuple[bool, bool]:
        """Halting and saving are for all at one step, and the first rank says when it is time to save."""
        import numpy as np

        wishes = np.array([self._halt, due and self.rank == 0, hindered], np.int32)
        overlay.all_reduce(wishes, "max")
        self._halt, due, hindered = (bool(wish) for wish in wishes)
        return due, hindered

    def _lost_another(self) -> bool:
        """Whether an error may come of another learner's loss, which the job tells of within moments."""
        channel = self._channel
        deadline = time.monotonic() + LOSS_TOLD_WITHIN
        while channel is not None and not self.world.alone and time.monotonic() < deadline:
            if channel.broken or channel.ended or channel.world.get("generation") != self.generation:
                return True
            channel.wait(0.2)
        return False

    def _renew(self, error: PeerLost) -> None:
        """Waits for the next world. Raises `error` where there is none to come, Halted where the job is to halt."""
        channel = self._channel
        self._leave_overlay()
        if channel is None or self.world.alone:
            raise error
        _free(error)
        if self._saver is not None:
            self._saver.finish()
        deadline = time.monotonic() + NEXT_WORLD_WITHIN
        while channel.world.get("generation") == self.generation:
            if not channel.broken and time.monotonic() > deadline:
                raise error
            channel.wait(0.5)
            if channel.ended:
                raise Halted
            if self.halting:
                _say("halted between two worlds")
                self.leave()
        if self._halt and not channel.halt:  # this process alone is to end: another will be in the next world
            self.leave()
        self._enter(channel.world)
        self._moves()
        _say(f"{error}; going on in generation {self.generation}")

    def _enter(self, told: Dict[str, Any]) -> None:
        self.world = World.from_message(told)
        self.rank, self.size, self.generation = self.world.rank, self.world.size, self.world.generation
        self._held = None
        if self._saver is not None:
            self._saver.about.update(generation=self.generation, world_size=self.size)
            self._saved_at = time.monotonic()

    def _moves(self) -> None:
        channel = self._channel
        if channel is not None:
            channel.tell({"type": contract.MOVES, "generation": self.generation})

    def _finish(self) -> None:
        """Tells the others that it calls no more. Raises PeerLost where this world is over: then it is not done."""
        if self._saver is not None:  # it may take its time, in which another may be lost
            self._saver.finish()
        channel = self._channel
        if channel is not None and self._follows:
            channel.look()
            if channel.broken or (channel.world.get("generation") != self.generation and not channel.ended):
                raise PeerLost("another member of the job was lost")
        if self._overlay is not None:
            self._overlay.finish()
            self._overlay = None

    def _leave_overlay(self) -> None:
        if self._overlay is not None:
            self._overlay.close()
        if self._server is not None:
            self._server.close()
        self._overlay = self._server = None

    def _is_due(self, now: float) -> bool:
        if self._interval is not None and now - self._saved_at >= self._interval:
            return True
        every = self._steps
        return every is not None and self._step // every != self._saved_step // every

    def _halt_with(self, state: Optional[State]) -> None:
        saved = state is not None and self.save(state)
        if saved:
            _say(f"halted at step {self._step}, its state is saved")
        elif state is None:
            _say(f"halted at step {self._step}, which gave no state to save")
        else:
            _say(f"halted at step {self._step}, its state could not be saved; the last committed checkpoint stays")
        if self._channel is not None:
            checkpoint = self._step if saved else None
            self._channel.flush()
            self._channel.tell({"type": contract.HALTED, "step": self._step, "checkpoint": checkpoint})
        raise Halted

    def _committed(self, step: int) -> None:
        if self._channel is not None:
            self._channel.tell({"type": contract.CHECKPOINTED, "step": step})

    def _close(self) -> None:
        self._leave_overlay()
        if self._saver is not None:
            self._saver.finish()
        if self._moving is not None:
            self._moving.end()
        if self._channel is not None:
            self._channel.close({"type": "bye"})
        self._channel = self._saver = None
        if self._termination is not None:
            self._termination.end()

    def _terminated(self) -> None:
        self._halt = True

    def _forget(self) -> None:
        """In a forked child (a data loader), which has no session: that is its parent's."""
        self._overlay = self._server = None  # their connections are the parent's: closed with the last reference
        if self._channel is not None:
            self._channel.drop()
        self._channel = self._saver = None
        self._halt = False


def _free(error: BaseException) -> None:
    """Frees what the frames of an error and of those that led to it hold: the next world's arrays need the room."""
    found = [error]
    for one in found:
        traceback.clear_frames(one.__traceback__)
        found += [each for each in (one.__cause__, one.__context__) if each is not None and each not in found]


def _say(text: str) -> None:
    print(f"ffdl: {text}", file=sys.stderr, flush=True)
