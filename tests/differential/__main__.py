"""python -m tests.differential [--seed S] [--count N] [--only NAME] [--resume] [--recorded]"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from . import known as explained
from . import record, replay, simulated, trees
from .case import Case, written
from .grammar import generate
from .jobs import jobs
from .record import Record

HALT = "FFDL_DIFFERENTIAL_HALT"  # names a file: while it exists no further Workflow is started on the cluster


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    cases = [case for case in chosen(options) if any(fnmatch.fnmatch(case.name, p) for p in options.only or ["*"])]
    if options.show:
        return show(cases)
    table = Table()
    known = records(cases, options)
    for case in cases:
        if case.digest in known:
            table.add(known[case.digest])
    missing = [case for case in cases if case.digest not in known]
    if missing and not options.recorded:
        run_on_argo(missing, table, options)
    elif missing:
        print(f"{len(missing)} of {len(cases)} Workflows are not recorded, the first is {missing[0].name}")
    if options.keep:
        keep(cases)
    return table.end()


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m tests.differential",
        description="Runs Workflows on a real Argo and on the embedded engine, and compares what becomes of them.",
    )
    made.add_argument("--seed", type=int, help="of the first Workflow made at random (default: a random one, printed)")
    made.add_argument("--count", type=int, help="how many are made at random (default 100; 0 with --only)")
    made.add_argument("--only", action="append", metavar="NAME", help="Workflows of this name or pattern, repeatable")
    made.add_argument(
        "--simulated", action="store_true", help="those made at random, on Argo's controller without pods"
    )
    made.add_argument("--resume", action="store_true", help="take what earlier runs on Argo have left")
    made.add_argument("--recorded", action="store_true", help="no cluster: compare with what is recorded alone")
    made.add_argument("--keep", action="store_true", help="write what was seen into tests/differential/recorded")
    made.add_argument("--show", action="store_true", help="print the recorded trees and compare nothing")
    return made


def chosen(options: argparse.Namespace) -> Iterator[Case]:
    """The Workflows written by hand, and those of the seeds asked for."""
    if not options.simulated:
        yield from written()
        yield from jobs()
    count = options.count if options.count is not None else 100 if options.seed is not None else 0
    seed = random.randrange(1 << 20) if options.seed is None else options.seed
    if count:
        print(f"--seed {seed} --count {count}")
    for case in (generate(seed + i) for i in range(count)):
        yield simulated.simulated(case) if options.simulated else case


def records(cases: list[Case], options: argparse.Namespace) -> dict[str, Record]:
    """What is known already of what Argo does with `cases`, by digest."""
    if not (options.resume or options.recorded or options.show or options.keep):
        return {}
    wanted = {case.digest for case in cases}
    found = {one.digest: one for one in record.all_recorded().values() if one.digest in wanted}
    for digest in wanted - found.keys():
        if one := record.cached(digest):
            found[digest] = one
    return found


def run_on_argo(cases: list[Case], table: Table, options: argparse.Namespace) -> None:
    from . import argo  # needs a cluster and its client

    folder = record.cache()
    folder.mkdir(parents=True, exist_ok=True)

    def done(one: Record, seconds: float) -> None:
        if one.cut_short:
            print(f"{one.name:40} still has pods after {seconds:.0f} s, and is not recorded", flush=True)
            return
        (folder / f"{one.digest}.json").write_text(json.dumps(asdict(one)))
        table.add(one, seconds)

    halt = os.environ.get(HALT)
    with argo.namespace() as api:
        if options.simulated:
            simulated.Kubelet(api).start()
        at_once = simulated.AT_ONCE if options.simulated else argo.AT_ONCE
        argo.run(api, cases, done, lambda: not (halt and Path(halt).exists()), at_once)


def keep(cases: list[Case]) -> None:
    """Writes the records of `cases` to the repository's files, one a group, and drops those of no case."""
    record.RECORDED.mkdir(exist_ok=True)
    groups: dict[str, dict[str, Record]] = {}
    for case in cases:
        if one := record.cached(case.digest):
            groups.setdefault(case.group, {})[case.name] = one
    for group, found in groups.items():
        path = record.RECORDED / f"{group}.json.gz"
        old = record.read(path) if path.exists() else {}
        wanted = {case.digest for case in cases if case.group == group} | (
            {one.digest for one in old.values()} if group == "random" else set()
        )
        record.write(path, {name: one for name, one in (old | found).items() if one.digest in wanted})


def show(cases: list[Case]) -> int:
    known = record.all_recorded()
    for case in cases:
        one = record.cached(case.digest) or known.get(case.name)
        if one is not None:
            print(f"== {case.name}\n{trees.outline(one.tree)}")
            for event in one.events:
                print(f"  {event['at']:6.1f} s  {json.dumps({k: v for k, v in event.items() if k != 'at'})}")
    return 0


class Table:
    """A line a Workflow as it comes in; at the end the differences that nobody has explained."""

    def __init__(self) -> None:
        self.results: list[tuple[str, list[str]]] = []
        self.refused: list[str] = []
        self.known: dict[explained.Known, list[str]] = {}  # the Workflows in which each shows
        self.start = time.monotonic()

    def add(self, one: Record, seconds: float | None = None) -> None:
        refused = replay.refused(one)
        unexplained, known = explained.split(one.name, [] if refused else replay.differences(one))
        differences = [str(found) for found in unexplained]
        for why in known:
            self.known.setdefault(why, []).append(one.name)
        nodes = one.status.get("nodes") or {}
        pods = sum(node["type"] == "Pod" for node in nodes.values())
        verdict = "refused" if refused else "known differences" if known else "same"
        verdict = f"{len(differences)} differences" if differences else verdict
        took = "" if seconds is None else f"{seconds:5.0f} s"
        phase = one.status.get("phase", "") if one.ended else "never ends"
        print(f"{one.name:40} {phase:10} {len(nodes):3} nodes {pods:3} pods {took:8} {verdict}", flush=True)
        self.results.append((one.name, differences))
        if refused:
            self.refused.append(f"{one.name}: {refused}")

    def end(self) -> int:
        different = [(name, found) for name, found in self.results if found]
        for name, found in different:
            print(f"\n== {name}")
            print("\n".join(f"  {line}" for difference in found for line in difference.splitlines()))
        known = {name for names in self.known.values() for name in names} - {name for name, _ in different}
        same = len(self.results) - len(different) - len(known) - len(self.refused)
        took = time.monotonic() - self.start
        print(
            f"\n{len(self.results)} Workflows in {took:.0f} s: {same} the same, {len(known)} with known differences, "
            f"{len(different)} different, {len(self.refused)} refused by the embedded engine"
        )
        lines = [f"{one.why}: {' '.join(names)}" for one, names in self.known.items()]
        for line in [*lines, *self.refused]:
            print(f"  {line}")
        return int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
