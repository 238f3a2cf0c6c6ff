"""What the end of a command means: a pure function of its exit status and of what went on around it."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import Enum

from ..learner import contract
from . import verdict

_KILLED = (-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGKILL, 128 + signal.SIGTERM)


class Next(Enum):
    """What the agent does next."""

    DONE = "done"  # report it and be released
    HALTED = "halted"  # exit 75
    RESTART = "restart"  # start the command again in place
    FAILED = "failed"  # report `reason` and be judged


@dataclass(frozen=True)
class Ending:
    """`status`: negative for a signal. `asked`: a halt was asked for; `halted`: a script has carried it out.

    `signalled`: we sent a signal. `out_of_memory`: the kernel killed for memory meanwhile. `restarts`: in place, in a
    row, so far.
    """

    status: int
    asked: bool = False
    halted: bool = False
    signalled: bool = False
    out_of_memory: bool = False
    restarts: int = 0


RESTARTS_MOST = 6  # in a row, each within moments of its start and without a new checkpoint


def judge(ending: Ending) -> tuple[Next, str]:
    """What to do, and for FAILED the reason."""
    if ending.asked:
        # a script that ends with 0 on our signal has stopped, not completed
        completed = ending.status == 0 and not ending.halted and not ending.signalled
        return (Next.DONE if completed else Next.HALTED), ""
    if ending.status == 0:
        return Next.DONE, ""
    if ending.status == contract.EXIT_AGAIN:
        return Next.FAILED, verdict.AGAIN
    if ending.out_of_memory:
        return Next.FAILED, verdict.OUT_OF_MEMORY
    if ending.status in _KILLED:
        return (Next.RESTART, "") if ending.restarts < RESTARTS_MOST else (Next.FAILED, verdict.KILLED)
    return Next.FAILED, verdict.CRASH


def exit_code(status: int) -> int:
    """The exit code of a process that ended with `status`, as a shell would say it."""
    return status if status >= 0 else 128 - status


def restart_pause(restarts: int) -> float:
    """Seconds before the command is started again, `restarts` times having been tried in a row."""
    return 0.0 if restarts == 0 else 0.5 * 2.0 ** (restarts - 1)
