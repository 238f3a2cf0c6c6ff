"""python -m tests.faults [--only PATTERN] [--runs N] [--again] [--any-commit] [--gentle] [--list]"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster import requirements
from tests.cluster.cluster import Cluster, ClusterError
from tests.faults.matrix import PAGE, chosen, matrix
from tests.faults.records import HELD, Record, Records, cache_folder, of
from tests.faults.scenarios import SCENARIOS
from tests.faults.table import page


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    requirements.widen_path()
    records = Records(cache_folder())
    cluster = Cluster()
    scenarios = chosen(options.only, options.gentle)
    try:
        if options.list:
            for scenario in scenarios:
                print(f"{scenario.name}  ({scenario.bound:.0f} s from {scenario.counted})")
            return 0
        if not scenarios:
            print("faults: no scenario is called so; --list shows all", file=sys.stderr)
            return 2
        if not (cluster.running and cluster.ready()):
            print("faults: no cluster runs here: python -m tests.cluster up", file=sys.stderr)
            return 2
        for name, value in cluster.env().items():
            os.environ[name] = value
        bad = run(cluster, records, options)
    except (ClusterError, RuntimeError, TimeoutError) as error:
        print(f"faults: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("faults: interrupted; the same command goes on", file=sys.stderr)
        return 130
    return int(bool(bad))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.faults", description="Faults, done to real jobs on a cluster.")
    made.add_argument(
        "--only", action="append", default=[], metavar="PATTERN", help="scenarios with this in their name"
    )
    made.add_argument("--runs", type=int, default=1, help="how often each is to have been run (default 1)")
    made.add_argument("--again", action="store_true", help="run also what was run at this commit")
    made.add_argument("--any-commit", action="store_true", help="what held when it was last run need not be run again")
    made.add_argument("--gentle", action="store_true", help="only what no other job of the cluster feels")
    made.add_argument("--list", action="store_true", help="print the scenarios and run none")
    return made


def run(cluster: Cluster, records: Records, options: argparse.Namespace) -> list[Record]:
    """Runs what is due; returns those of all the chosen scenarios' runs that did not hold."""
    scenarios = chosen(options.only, options.gentle)
    with tempfile.TemporaryDirectory(prefix="ffdl-faults-") as folder, matrix(cluster, records, Path(folder)) as made:
        todo = scenarios * options.runs if options.again else made.due(scenarios, options.runs, options.any_commit)
        reference = made.reference() if todo else ""
        for number, scenario in enumerate(todo, 1):
            print(f"[{number}/{len(todo)}] {scenario.name} ...", flush=True)
            tell(made.run(scenario, reference), records)
            PAGE.write_text(page(SCENARIOS, records.all(), made.setting, time.time(), os.cpu_count() or 1))
        done = [record for scenario in scenarios for record in of(records.all(), scenario.name, made.setting)]
    bad = [record for record in done if record.verdict != HELD]
    print(f"{len(done) - len(bad)} of {len(done)} runs held")
    for record in bad:
        print(f"  {record.scenario}: {record.verdict} {record.said}")
    return bad


def tell(record: Record, records: Records) -> None:
    recovery = "" if record.recovery is None else f" in {record.recovery:.1f} s"
    print(f"    {record.verdict}{recovery} {record.said} {'; '.join(record.notes)}".rstrip(), flush=True)
    if records.story(record).exists():
        print(f"    {records.story(record)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
