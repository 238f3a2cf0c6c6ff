"""`pytest --engine local|argo`: which engine the behaviours run on, and what a run says of itself at its end."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
BEHAVIOURS = TESTS / "behaviours"
ENGINES = {"local": "this machine's engine", "argo": "a cluster"}
ONLY = {"local": BEHAVIOURS / "local", "argo": BEHAVIOURS / "cluster"}  # folders about one engine alone
CLUSTER_TIMEOUT = 900  # seconds a test may take there


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engine", choices=tuple(ENGINES), default="local", help="where tests/behaviours/ run")
    parser.addoption(
        "--no-skips", action="store_true", help="a test that is skipped is a failure: all that is needed is there"
    )


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a script; what tests start inherits it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for line in (
        "local(reason): runs on the local engine alone",
        "cluster(reason): runs on a cluster alone",
        "smoke: the few that tell whether a cluster works at all",
    ):
        config.addinivalue_line("markers", line)
    config.pluginmanager.register(Tally(config.getoption("--engine"), config.getoption("--no-skips")), "engine-tally")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    engine = config.getoption("--engine")
    if any(collection_path.is_relative_to(folder) for name, folder in ONLY.items() if name != engine):
        return True
    if engine != "local" and collection_path.is_relative_to(TESTS) and collection_path.suffix == ".py":
        return not collection_path.is_relative_to(BEHAVIOURS) or None  # the others know of no engine
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    engine = config.getoption("--engine")
    for item in items:
        if engine == "argo" and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(CLUSTER_TIMEOUT))
        other = item.get_closest_marker("cluster" if engine == "local" else "local")
        if other is not None:
            item.add_marker(pytest.mark.skip(reason=other.args[0]))


class Tally:
    """Counts what ran on the engine that was asked for and lists what did not, with the reasons."""

    def __init__(self, engine: str, no_skips: bool) -> None:
        self.engine, self.no_skips = engine, no_skips
        self.counts: Counter[str] = Counter()
        self.skips: defaultdict[str, list[str]] = defaultdict(list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        behaviour = "tests/behaviours/" in report.nodeid
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.skips[reason.removeprefix("Skipped: ")].append(report.nodeid.removeprefix("tests/"))
            self.counts["skipped"] += behaviour
        elif behaviour and report.failed:
            self.counts["failed"] += 1
        elif behaviour and report.when == "call":
            self.counts["passed"] += 1

    @property
    def nothing_ran(self) -> bool:
        """Whether this machine could have run a cluster, was asked to, and no behaviour was seen on one."""
        able = os.geteuid() == 0 and shutil.which("go") is not None
        return self.engine == "argo" and able and not self.counts["passed"] + self.counts["failed"]

    @property
    def skipped_all_the_same(self) -> int:
        """How many tests were skipped where none was to be."""
        return sum(map(len, self.skips.values())) if self.no_skips else 0

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if (self.nothing_ran or self.skipped_all_the_same) and not session.config.option.collectonly:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        if config.option.collectonly:
            return
        write = terminalreporter.write_line
        for reason, names in self.skips.items():
            write(f"skipped, {reason}: {', '.join(names[:4])}{f' and {len(names) - 4} more' if len(names) > 4 else ''}")
        counted = ", ".join(f"{number} {what}" for what, number in self.counts.items() if number)
        write(f"behaviours on {ENGINES[self.engine]}: {counted or 'none'}")
        if self.nothing_ran:
            write("nothing ran on the cluster, though this machine has root and Go: python -m tests.cluster up")
        if self.skipped_all_the_same:
            write(f"{self.skipped_all_the_same} skipped, which is a failure with --no-skips")
