"""The helper: the one place where a job is one thing. Coordinates learners, watches the Workflow, ships and reports.

`python -m ffdl.steps.checkpoint`. Ends with 0 when the job's end is decided and carried out, 75 when it is halted or
another helper has taken over, 70 when it can't work at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from dataclasses import replace
from typing import Any

from ..learner import contract
from . import shipper as shipping
from .channel import Channel, ClosedError
from .coordinator import Coordinator
from .effects import Annotate, Close, DeletePod, Effect, Mark, Record, Send, Ship, Stop
from .journal import Journal
from .outside import in_cluster
from .report import Pace, progress, report
from .storage import retry_seconds
from .view import LocalView, Snapshot, View

STRANGERS_MOST = 64  # connections that have not joined yet
JOIN_WITHIN = 10.0  # seconds
SETTLE = 0.05  # seconds between a change of the Workflow and reading it: writers replace several files at once
FINAL_SHIP = 60.0  # seconds that the end of a job waits for one try; the step store-results uploads everything anyway
PHASE_REPORTED = 0.25  # seconds between two reports of different phases; within one it is REPORT_INTERVAL
METRICS_SAID = 10.0  # seconds between two lines of metrics
ALONE_LOOK = 1.0  # seconds between two looks whether there is a newer helper
LASTING = (Annotate, DeletePod, Mark, Stop)  # effects that outlive the helper: none is to come of an older one


class Helper:
    """The shell around the coordinator: sockets, clock, files, processes."""

    def __init__(self, spec: contract.JobSpec, job_id: str, token: str, view: View) -> None:
        self.view, self.spec = view, spec
        self.epoch = view.take_epoch()
        self.journal = Journal(contract.path(contract.JOURNAL_DIR), self.epoch)
        self.shipper = shipping.Shipper()
        self._pace = Pace()
        self.coordinator = Coordinator(spec, job_id, token, self.epoch, self.journal.state, time.monotonic())
        self._helper_dir = contract.path(contract.HELPER_DIR)
        self._marker = os.path.join(self._helper_dir, contract.HALTED_FILE)
        self._address_file = os.path.join(self._helper_dir, contract.ADDRESS_FILE)
        self._selector = selectors.DefaultSelector()
        self._channels: dict[int, Channel] = {}
        self._strangers: dict[int, float] = {}  # connection -> since when
        self._next_conn = 1
        self._terminated = self._superseded = False
        self._reported = self._said = 0.0
        self._report: dict[str, Any] = {}
        self._look_at = self._ship_at = self._alone_at = 0.0
        self._address = b""

    def run(self) -> int:
        """Everything, to the exit code."""
        os.makedirs(self._helper_dir, exist_ok=True)
        snapshot = self._look()
        if not snapshot.suspended:
            self._remove_marker()
        if self.journal.state.unshipped:
            self._want(shipping.CHECKPOINTS, shipping.LOGS)
        self._do(self.coordinator.seen(snapshot, time.monotonic()))
        listener = self._open_port()
        self._ship_at = time.monotonic() + self._ship_interval()
        while True:
            self._turn(listener)
            now = time.monotonic()
            if self._terminated:
                return contract.EXIT_AGAIN
            if self._superseded:
                print("another helper has taken over", file=sys.stderr, flush=True)
                return contract.EXIT_AGAIN
            if self.coordinator.finished(now):
                return self._finish(listener)
            if self.coordinator.halted(now):
                return self._halt(listener)

    # --- one turn of the loop -------------------------------------------------------------------------------------

    def _open_port(self) -> socket.socket:
        host = os.environ.get(contract.POD_IP_ENV) or "127.0.0.1"
        listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, "listener")
        if self.view.watch.descriptor is not None:
            self._selector.register(self.view.watch.descriptor, selectors.EVENT_READ, "watch")
        woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(woken, selectors.EVENT_READ, "signal")
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)
        self._write_address({"host": host, "port": listener.getsockname()[1]})
        return listener

    def _on_term(self, *_: object) -> None:
        self._terminated = True

    def _write_address(self, address: dict[str, Any]) -> None:
        if not self._overtaken():
            self._address = json.dumps({**address, "epoch": self.epoch}).encode()
            contract.atomic_write(self._address_file, self._address)

    def _keep_address(self) -> None:
        """An older helper may have put its own in the place of this one's: a write that hung takes place one day."""
        found = b""
        with contextlib.suppress(FileNotFoundError), open(self._address_file, "rb") as stream:
            found = stream.read()
        if found != self._address and not self._overtaken():
            contract.atomic_write(self._address_file, self._address)

    def _overtaken(self) -> bool:
        """There is a newer helper: nobody is to hear of this one any more."""
        self._superseded = self._superseded or self.view.epoch() != self.epoch
        return self._superseded

    def _turn(self, listener: socket.socket) -> None:
        now = time.monotonic()
        timeout = min(1.0, max(0.0, self._look_at - now)) if self._look_at else 1.0
        ready = self._selector.select(timeout)
        if time.monotonic() - self._alone_at > ALONE_LOOK:  # before all else: this process may have been stopped
            self._alone_at = time.monotonic()
            if self._overtaken():
                return
            self._keep_address()
        for key, events in ready:
            if key.data == "listener":
                self._accept(listener)
            elif key.data == "watch":
                self.view.watch.drain()
                self._look_at = min(self._look_at or float("inf"), time.monotonic() + SETTLE)
            elif key.data == "signal":
                os.read(key.fd, 4096)
            else:
                self._serve(int(key.data), events)
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + self.view.watch.interval
            self._do(self.coordinator.seen(self._look(), now))
        self._do(self.coordinator.tick(now))
        for conn in [conn for conn, since in self._strangers.items() if now - since > JOIN_WITHIN]:
            self._close(conn, "it did not join")
        if now >= self._ship_at:
            self._ship_at = now + self._ship_interval()
            self._want(shipping.CHECKPOINTS, shipping.LOGS)
        self._poll_shipper(now)
        self._say(now)

    def _look(self) -> Snapshot:
        snapshot = self.view.read()
        if not snapshot.failed_step or self.coordinator.over:
            return snapshot
        name = os.path.join(contract.path(contract.JOURNAL_DIR), contract.FAILURES_DIR, f"{snapshot.failed_step}.json")
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError), open(name, encoding="utf-8") as stream:
            return replace(snapshot, failed_reason=" ".join(str(json.load(stream)["reason"]).split()))
        return snapshot

    def _ship_interval(self) -> float:
        return self.spec.checkpoint_interval or 60.0

    def _want(self, *what: str) -> None:
        if self.spec.results is not None:
            self.shipper.want(*what)

    def _poll_shipper(self, now: float) -> None:
        was_idle = self.shipper.idle
        self.shipper.poll(now)
        if self.shipper.idle and not was_idle and self.journal.state.unshipped:
            self._record({"kind": "unshipped", "what": ""})

    # --- connections ----------------------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            sock, _ = listener.accept()
            if len(self._strangers) >= STRANGERS_MOST:  # the oldest goes: who comes may be a member
                self._close(next(iter(self._strangers)), "there are too many")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            conn, self._next_conn = self._next_conn, self._next_conn + 1
            self._channels[conn] = Channel(sock)
            self._strangers[conn] = time.monotonic()
            self._selector.register(sock, selectors.EVENT_READ, conn)

    def _serve(self, conn: int, events: int) -> None:
        channel = self._channels.get(conn)
        if channel is None:  # what another has said in this turn has closed it
            return
        try:
            if events & selectors.EVENT_WRITE:
                channel.flush()
                self._interest(conn)
            for message in channel.receive():
                if conn not in self._channels:
                    return
                self._do(self.coordinator.message(conn, message, time.monotonic()))
                if any(member.conn == conn for member in self.coordinator.members.values()):
                    self._strangers.pop(conn, None)
        except ClosedError as error:
            self._close(conn, str(error))

    def _interest(self, conn: int) -> None:
        channel = self._channels[conn]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.wants_write else 0)
        self._selector.modify(channel, events, conn)

    def _close(self, conn: int, why: str) -> None:
        channel = self._channels.pop(conn, None)
        if channel is None:
            return
        if self._strangers.pop(conn, None) is not None:
            print(f"a connection that had not joined was closed: {why}", file=sys.stderr, flush=True)
        self._selector.unregister(channel)
        channel.close()
        self._do(self.coordinator.disconnected(conn, time.monotonic()))

    # --- effects --------------------------------------------------------------------------------------------------

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if self._superseded or (isinstance(effect, LASTING) and self._overtaken()):
                return
            if isinstance(effect, Send):
                self._send(effect)
            elif isinstance(effect, Record):
                self._record(effect.record)
            elif isinstance(effect, Close):
                self._close(effect.conn, effect.why)
            elif isinstance(effect, Annotate):
                self.view.annotate(effect.annotations)
            elif isinstance(effect, Stop):
                self.view.stop(effect.annotations)
            elif isinstance(effect, DeletePod):
                self.view.delete_pod(effect.name, effect.force)
            elif isinstance(effect, Mark):
                contract.atomic_write(self._marker, b"")
            elif isinstance(effect, Ship):
                self._want(shipping.CHECKPOINTS)

    def _send(self, effect: Send) -> None:
        channel = self._channels.get(effect.conn)
        if channel is None:
            return
        try:
            channel.send(effect.message)
            self._interest(effect.conn)
        except ClosedError as error:
            self._close(effect.conn, str(error))

    def _record(self, record: dict[str, Any]) -> None:
        # what an older helper writes is read by no one: it must not tell anyone of it either. One that has begun before
        # the write is seen after it, one that begins later reads what was written.
        if not self._overtaken():
            self.journal.write(record)
            self._overtaken()

    def _remove_marker(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            if not self._overtaken():  # it may be of the newer one's halt
                os.unlink(self._marker)

    # --- reporting ------------------------------------------------------------------------------------------------

    def _say(self, now: float, storing: str = "", force: bool = False) -> None:
        age = now - self._reported
        if age < PHASE_REPORTED and not force:
            return
        made = report(self.coordinator, self._pace, now, time.time(), storing)
        if age < contract.REPORT_INTERVAL and made["message"] == self._report.get("message") and not force:
            return
        self._reported = now
        if not force and {**made, "time": 0} == {**self._report, "time": 0}:
            return
        self._report = made
        try:
            self.view.report(made)
            share, target = progress(self.coordinator), os.environ.get("ARGO_PROGRESS_FILE")
            if share and target:
                with open(target, "w") as stream:
                    stream.write(f"{share[0]}/{share[1]}\n")
        except OSError as error:
            print(f"no report: {error}", file=sys.stderr, flush=True)
        if made["metrics"] and now - self._said >= METRICS_SAID:
            self._said = now
            print(json.dumps({"step": made["step"], "of": made["of"], **made["metrics"]}), flush=True)

    # --- the end --------------------------------------------------------------------------------------------------

    def _finish(self, listener: socket.socket) -> int:
        """The end is decided and the learners are gone: tell those that come later, end."""
        self._do(self.coordinator.last())
        self._say(time.monotonic(), force=True)
        self._write_address({"host": "", "port": 0, "outcome": self.coordinator.outcome()})
        self._ship_last(FINAL_SHIP, again=False)
        self._remove_marker()
        listener.close()
        return contract.EXIT_DONE

    def _halt(self, listener: socket.socket) -> int:
        """The learners are gone: ship, within a bound; last of all see whether the job was resumed meanwhile."""
        listener.close()
        shipped = self._ship_last(retry_seconds(contract.SHIP_WAIT_ON_HALT), again=True)
        if self._overtaken():
            return contract.EXIT_AGAIN
        what = "" if shipped else (self.shipper.failure or "shipping took too long")
        if what != self.journal.state.unshipped:
            record = {"kind": "unshipped", "what": what}
            self.journal.state.apply(record)
            self._record(record)
        self._say(time.monotonic(), force=True)
        snapshot = self.view.read(fresh=True)
        self._do(self.coordinator.seen(snapshot, time.monotonic()))  # pods that were just being made
        if not snapshot.suspended:
            self._remove_marker()
        return contract.EXIT_AGAIN

    def _ship_last(self, seconds: float, again: bool) -> bool:
        if self.spec.results is None:
            return True
        self.shipper.want(shipping.FINAL)
        try:
            return self.shipper.finish(time.monotonic() + seconds, again)
        finally:
            self.shipper.close()


def open_view(job_id: str) -> View:
    """The local engine mounts its control folder; a pod of a cluster has a token instead. Raises OSError."""
    control = contract.path(contract.CONTROL_DIR)
    if os.path.isdir(control) or not in_cluster():
        return LocalView(control)
    from .cluster_view import ClusterView  # they cost memory that the local engine's helpers need not have
    from .kube import Kube

    return ClusterView(Kube.of_this_pod(), job_id, contract.path(contract.JOURNAL_DIR))


def main() -> int:
    """The program."""
    view: View | None = None
    try:
        with open(os.path.join(contract.path(contract.CONFIG_DIR), contract.JOB_FILE), encoding="utf-8") as stream:
            spec = contract.JobSpec.from_json(stream.read())
        with open(os.path.join(contract.path(contract.TOKEN_DIR), contract.TOKEN_FILE), encoding="utf-8") as stream:
            token = stream.read().strip()
        job_id = os.environ[contract.JOB_ID_ENV]
        view = open_view(job_id)
        helper = Helper(spec, job_id, token, view)
    except (OSError, ValueError, KeyError) as error:
        print(f"the helper can't start: {error}", file=sys.stderr)
        if view is not None:
            view.close()
        return contract.EXIT_AGAIN if isinstance(error, OSError) else contract.EXIT_FINAL
    try:
        return helper.run()
    finally:
        helper.shipper.close()
        view.close()


if __name__ == "__main__":
    sys.exit(main())
