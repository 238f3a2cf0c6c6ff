"""`ssh` for programs that start processes in the pods of their job: `python -m ffdl.steps.remote_client HOST COMMAND…`.

A launcher such as `mpirun` calls it with the names of its host file. Exits as the command does, with 255 where it can't
be run.
"""

from __future__ import annotations

import os
import sys
import time

from ..learner import contract
from ..learner.rendezvous import Place, connect
from ..learner.world import World
from . import remote
from .command import find_shell
from .environment import inherited

WITHIN = 120.0  # seconds for the other side to be there
_WITH_VALUE = "BbcDEeFIiJLlmOopQRSWw"  # options of ssh that the next word belongs to


class UsageError(Exception):
    """What is to be run, or where, is not to be understood."""


class LateError(Exception):
    """The other side has not answered in time."""


def parse(arguments: list[str]) -> tuple[str, str]:
    """Host and command, from ssh's arguments: options mean nothing here, words of the command are joined by blanks."""
    words = list(arguments)
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if len(option) == 2 and option[1] in _WITH_VALUE and words:
            words.pop(0)
    if len(words) < 2:
        raise UsageError("write a host and a command")
    return words[0].rpartition("@")[2], " ".join(words[1:])


def run(world: World, rank: int, command: str) -> int:
    """Runs `command` in the pod of learner `rank`; its exit status. Raises OSError."""
    deadline = time.monotonic() + WITHIN

    def look() -> None:
        if time.monotonic() > deadline:
            raise LateError(f"it was not there within {WITHIN:.0f} s")

    place = Place(world.rank, world.generation, world.key)
    with connect(place, rank, world.addresses[rank], look) as connection:
        remote.ask(connection, place, command)
        while True:
            kind, data = remote.receive(connection)
            if kind == remote.STATUS:
                return data[0]
            while data:
                data = data[os.write(kind, data) :]  # the kinds are the descriptors of the two streams


def main(arguments: list[str]) -> int:
    """The program."""
    host = "another learner"
    environment = inherited()
    try:
        host, command = parse(arguments)
        channel, world = remote.enter(environment[contract.AGENT_SOCKET_ENV])
        channel.close({"type": "bye"})
        rank = remote.rank_of(host, environment["TRAINING_ID"])
        if rank is None or rank >= len(world.addresses):
            raise UsageError("it is no learner of this job; the host file has their names")
        if rank == world.rank:
            shell = find_shell(environment)
            os.execve(shell, [shell, "-c", command], environment)
        return run(world, rank, command)
    except (UsageError, LateError, OSError, KeyError) as error:
        print(f"ffdl: nothing can be run at {host}: {error}", file=sys.stderr)
        return remote.LOST


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
