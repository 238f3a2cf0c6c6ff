"""The cluster: brought up, looked at, hurt on purpose, and taken down."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from . import (
    build,
    cgroups,
    components,
    health,
    images,
    install,
    jobs,
    keys,
    leftovers,
    namespaces,
    requirements,
    settings,
)
from .place import ADDRESSES, NAMESPACE, NODE, Place
from .processes import Process, wait_for

# Of each line of Argo: the build, its version, and its controller's folder in argo-config.
ARGO = {"4.0": ("argo", "4.0.2", "controller"), "3.7": ("argo-3.7", "3.7.6", "controller-3.7")}
FIRST, LAST = ("etcd", "apiserver", "containerd"), ("devices", "policies")
# Components that are pods: the Deployment, and the program in it.
IN_PODS = {"argo-controller": ("workflow-controller", "workflow-controller"), "argo-server": ("argo-server", "argo")}


class ClusterError(Exception):
    """A cluster that can't be made or spoken to; says why in a line."""


class Cluster:
    """A one-node Kubernetes with Argo on this machine."""

    def __init__(self, place: Place | None = None, say: Callable[[str], None] = lambda line: None) -> None:
        self.place = place or Place.default()
        self.say = say

    # What it consists of

    @functools.cached_property
    def builds(self) -> dict[str, Path]:
        """Where its programs are, once `up` has built them."""
        return {name: build.place(self.place.cache, name) for name in build.NAMES}

    @functools.cached_property
    def components(self) -> dict[str, components.Component]:
        """The processes beside the pods, by name, in order of start."""
        return components.components(self.place, self.builds)

    def process(self, name: str) -> Process:
        return Process(self.place.run, name)

    @property
    def running(self) -> bool:
        """Whether its namespaces exist: whatever else has died can be started again."""
        return self.process("namespaces").pid is not None

    # Up and down

    def up(self, *, argo: str = "4.0", finalizer: bool = False, job_images: Sequence[str] = ()) -> None:
        """Build what is not built and start whatever does not run. A crashed cluster is swept away first.

        `argo` is a line of ARGO; `finalizer` has the controller capture how pods end by a finalizer on each;
        `job_images` are built from this checkout and imported.
        """
        line, version, controller = ARGO[argo]
        built = {name: self._built(name) for name in (*build.NAMES, line)}
        own = images.own({**built, "argo": built[line]}, version)
        archives = {image.name: images.archive(image, self.place.cache / "images") for image in own}
        with self._alone():
            self.say("starting")
            if not self.running:
                before = leftovers.noted(self.place)  # that of a crashed one: it has changed the machine since
                self._sweep()
                leftovers.note(self.place, before or leftovers.look(self.place))
            self._start_all()
            self._load_once(archives.values())
            self.say("applying Argo and argo-config")
            install.basics(self.place, self.kubectl)
            install.argo(self.place, self.kubectl, built[line], version)
            install.configuration(self.kubectl, f"{controller}-capturing" if finalizer else controller)
            self.start(*IN_PODS)
            if job_images:
                self.say(f"building the images of jobs: {', '.join(job_images)}")
                self._load_once(jobs.archives(self.place.cache, archives[images.DEBIAN], job_images))
            build.tidy(self.place.cache, [*built.values(), *archives.values()])
            self.say("waiting until it is ready")
            wait_for(self.ready, f"the cluster (see {self.place.run}/logs)", 180, 0.2)

    def _built(self, name: str) -> Path:
        if not build.place(self.place.cache, name).exists():
            self.say(f"building {name}")
        return build.build(self.place.cache, name)

    def down(self) -> list[str]:
        """Stop everything and remove what it made; returns a line for each thing that is left all the same."""
        with self._alone():
            before = leftovers.noted(self.place)
            self._sweep()
            return leftovers.restore(self.place, before) if before else []

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        self.place.cache.mkdir(parents=True, exist_ok=True)
        with (self.place.cache / f".{self.place.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _start_all(self) -> None:
        cgroups.create(self.place.name)
        namespaces.connect(self.place, namespaces.hold(self.place, cgroups.entry(self.place.name)))
        keys.make(self.place)
        settings.write(self.place)
        for folder in ("etcd", "s3", "volumes"):
            (self.place.run / folder).mkdir(exist_ok=True)
        self._write_tools()
        self.start(*FIRST)  # some of the others give up where there is no API server, the last where there is no node
        self.start(*(name for name in self.components if name not in LAST))
        wait_for(lambda: self.kubectl("get", "nodes", "-o", "name"), "the node")
        self.start(*LAST)

    def _sweep(self) -> None:
        if left := cgroups.end(self.place.name):
            raise ClusterError(f"processes that can't be killed: {left}")
        subprocess.run(["ip", "link", "delete", self.place.name], capture_output=True)
        cgroups.remove(self.place.name)
        if self.place.run.exists():
            shutil.rmtree(self.place.run)

    def _write_tools(self) -> None:
        self.place.tools.mkdir(exist_ok=True)
        ctr = requirements.program("ctr", self.place.tools)
        tools = {
            "kubectl": f"{self.builds['onenode']}/onenode kubectl",
            "argo": f"{self.builds['argo']}/argo",
            "ctr": f"{ctr} --address {self.place.containerd} --namespace k8s.io",
        }
        for name, command in tools.items():
            tool, new = self.place.tools / name, self.place.tools / f".{name}"
            new.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            new.chmod(0o755)
            new.rename(tool)  # it may be in use

    # One component at a time

    def start(self, *names: str, within: float = 60) -> None:
        """Start components unless they run, all at once, and wait until they are healthy."""
        for name in names:
            if name in IN_PODS:
                self._scale(name, 1)
            else:
                self._launch(name)

        def up(name: str) -> bool:
            if self.process(name).pid is None:
                raise ClusterError(f"{name} has ended, see {self.process(name).log}")
            return self.healthy(name)

        for name in names:
            if name in IN_PODS:
                wait = ["-n", "argo", f"--timeout={within:.0f}s"]
                self.kubectl("rollout", "status", "deployment", IN_PODS[name][0], *wait)
            else:
                wait_for(functools.partial(up, name), f"{name} (see {self.process(name).log})", within)

    def _scale(self, name: str, replicas: int) -> None:
        self.kubectl("scale", "deployment", IN_PODS[name][0], "-n", "argo", f"--replicas={replicas}")

    def _launch(self, name: str) -> None:
        holder = self.process("namespaces").pid
        if holder is None:
            raise ClusterError("the cluster does not run: python -m tests.cluster up")
        component, process = self.components[name], self.process(name)
        command = [*namespaces.enter(holder), *component.command]
        if process.known.get("command") != command:  # of an earlier version
            process.kill()
        if process.pid is None:
            for socket in component.sockets:
                socket.unlink(missing_ok=True)
            process.start(command, cgroups.entry(self.place.name))

    def healthy(self, name: str) -> bool:
        """Whether a component runs and, if it can be asked, says that all is well."""
        if name in IN_PODS:
            try:
                deployment = self.kubectl("get", "deployment", IN_PODS[name][0], "-n", "argo", "-o", "json")
            except ClusterError:
                return False
            return health.rolled_out(json.loads(deployment))
        check = self.components[name].healthy
        return self.process(name).pid is not None and (check is None or check())

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """End a component by a signal; it stays down until `start`."""
        if name not in IN_PODS:
            self.process(name).kill(number)
            return
        self._scale(name, 0)
        for pid in cgroups.members(self.place.name):
            with contextlib.suppress(OSError):  # ended meanwhile
                if Path(f"/proc/{pid}/exe").readlink().name == IN_PODS[name][1]:
                    os.kill(pid, number)

    # What its users need

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl printed, asked as the administrator; ClusterError with what it complained about."""
        command = [str(self.place.tools / "kubectl"), f"--kubeconfig={self.place.kubeconfig}", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, env={**os.environ, **self.env()})
        if done.returncode:
            raise ClusterError(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def load(self, *archives: Path) -> None:
        """Import images (OCI or docker archives)."""
        for file in archives:
            done = subprocess.run([self.place.tools / "ctr", "images", "import", file], capture_output=True, text=True)
            if done.returncode:
                raise ClusterError(f"{file} can't be imported: {done.stderr.strip()}")

    def _load_once(self, archives: Iterable[Path]) -> None:
        """Import archives of the cache, whose names tell what they hold, unless that was done."""
        for file in archives:
            mark = self.place.run / "loaded" / f"{file.parent.name}-{file.name}"
            if not mark.exists():
                self.load(file)
                mark.parent.mkdir(exist_ok=True)
                mark.touch()

    def tenant(self, namespace: str, *options: str) -> None:
        """Make a namespace a tenant, by argo-config/tenant and options of argo-config."""
        install.tenant(self.place, self.kubectl, namespace, *options)

    def user(self, name: str, namespace: str = NAMESPACE) -> Path:
        """A kubeconfig for a user of a tenant, with a token of their own, valid for a day."""
        return install.user(self.place, self.kubectl, name, namespace)

    def env(self) -> dict[str, str]:
        """The environment in which kubectl, argo, S3 clients and ffdl find this cluster."""
        return {
            "NO_PROXY": ",".join(filter(None, [os.environ.get("NO_PROXY"), ADDRESSES])),
            "KUBECONFIG": str(self.place.kubeconfig),
            "KUBECTL": str(self.place.tools / "kubectl"),
            "PATH": f"{self.place.tools}:{os.environ['PATH']}",
            "FFDL_ENGINE": "argo",
            "FFDL_NAMESPACE": NAMESPACE,
            "AWS_ENDPOINT_URL": self.place.s3,
            "AWS_ACCESS_KEY_ID": components.S3_KEYS[0],
            "AWS_SECRET_ACCESS_KEY": components.S3_KEYS[1],
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def shell(self, command: Sequence[str] = ()) -> int:
        """Run a command (default: the user's shell) inside the cluster's namespaces; returns its exit code."""
        holder = self.process("namespaces").pid
        if holder is None:
            raise ClusterError("the cluster does not run: python -m tests.cluster up")
        inside = [*namespaces.enter(holder), *(command or [os.environ.get("SHELL", "/bin/bash")])]
        return subprocess.run(inside, env={**os.environ, **self.env()}).returncode

    def ready(self) -> bool:
        """Whether jobs can run: every component healthy, the node ready with its devices, Argo and DNS available."""
        if not all(self.healthy(name) for name in self.components):
            return False
        try:
            node = json.loads(self.kubectl("get", "node", NODE, "-o", "json"))
            deployments = json.loads(self.kubectl("get", "deployments", "-A", "-o", "json"))["items"]
        except ClusterError:
            return False
        return health.node(node) and health.deployments(deployments)
