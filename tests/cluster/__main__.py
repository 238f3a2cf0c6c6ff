"""python -m tests.cluster up | down | status | env | shell | load | kill | start"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path

from ffdl.images.context import BY_DEFAULT

from . import requirements
from .build import BuildError
from .cluster import ARGO, IN_PODS, Cluster, ClusterError


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    requirements.widen_path()
    start = time.monotonic()
    try:
        return run(
            Cluster(say=lambda line: print(f"{time.monotonic() - start:5.0f} s  {line}", file=sys.stderr)), options
        )
    except (BuildError, ClusterError, OSError, RuntimeError, ValueError) as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.cluster", description="A one-node Kubernetes with Argo.")
    verbs = made.add_subparsers(dest="verb", required=True, metavar="VERB")
    up = verbs.add_parser("up", help="build what is not built, start what does not run")
    up.add_argument("--install", action="store_true", help="install missing Debian packages")
    up.add_argument("--argo", choices=ARGO, default="4.0", help="the line of Argo (default 4.0)")
    up.add_argument("--finalizer", action="store_true", help="the controller captures how pods end by a finalizer")
    up.add_argument(
        "--images", nargs="*", default=list(BY_DEFAULT), metavar="NAME", help="of jobs, to build and import"
    )
    verbs.add_parser("down", help="stop everything, remove all that it made, and say what is left")
    verbs.add_parser("status", help="a line for each component")
    verbs.add_parser("env", help="print the exports that point kubectl, argo, S3 clients and ffdl at it")
    verbs.add_parser("shell", help="a shell, or a command, inside its namespaces").add_argument(
        "command", nargs=argparse.REMAINDER
    )
    verbs.add_parser("load", help="import image archives").add_argument("files", nargs="+", type=Path)
    for verb, does in (("kill", "end a component by SIGKILL"), ("start", "start a component again")):
        verbs.add_parser(verb, help=does).add_argument("name")
    return made


def run(cluster: Cluster, options: argparse.Namespace) -> int:
    match options.verb:
        case "up":
            if options.install:
                requirements.install()
            if lines := requirements.missing():
                raise ClusterError("; ".join(lines))
            cluster.up(argo=options.argo, finalizer=options.finalizer, job_images=options.images)
        case "down":
            left = cluster.down()
            print(*left, sep="\n", end="\n" if left else "")
            return int(bool(left))
        case "status":
            return status(cluster)
        case "env":
            if not cluster.running:
                raise ClusterError("it does not run: python -m tests.cluster up")
            for name, value in cluster.env().items():
                print(
                    f"export {name}={shlex.quote(value)}"
                    if name != "PATH"
                    else f'export PATH="{cluster.place.tools}:$PATH"'
                )
        case "shell":
            return cluster.shell(options.command[options.command[:1] == ["--"] :])
        case "load":
            cluster.load(*options.files)
        case "kill" | "start":
            names = [*cluster.components, *IN_PODS]
            if options.name not in names:
                raise ClusterError(f"there is no component {options.name}; there are {', '.join(names)}")
            (cluster.kill if options.verb == "kill" else cluster.start)(options.name)
    return 0


def status(cluster: Cluster) -> int:
    """Print a line for each component; returns 0 if jobs can run, else 1."""
    for name in (*cluster.components, *IN_PODS):
        pid = cluster.process(name).pid
        down = pid is None and name not in IN_PODS
        state = "does not run" if down else "healthy" if cluster.healthy(name) else "does not answer"
        print(f"{name:20} {'a pod' if name in IN_PODS else pid or '':>8} {state}")
    ready = cluster.running and cluster.ready()
    print(f"{'cluster':20} {'':8} {'ready' if ready else 'not ready'}")
    return int(not ready)


if __name__ == "__main__":
    sys.exit(main())
