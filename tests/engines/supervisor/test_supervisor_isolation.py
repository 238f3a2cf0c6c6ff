"""What a pod with namespaces sees of this machine, and this machine of it: run by this user and by an ordinary one."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from ffdl.engines.local import linux, sandbox, supervisor
from ffdl.engines.local.pod import Mount, Volume

pytestmark = pytest.mark.parametrize("isolation", [sandbox.NAMESPACES], indirect=True)

NOBODY = 65534
_PR_SET_DUMPABLE = 4
MS_SHARED = 1 << 20


@pytest.fixture(params=["self", "nobody"])
def as_user(request: pytest.FixtureRequest, pods) -> Callable[[Callable[[], None]], None]:
    """Runs a function as this user, or in a child process as a user with no rights at all."""

    def run(act: Callable[[], None]) -> None:
        if request.param == "self":
            return act()
        if os.geteuid():
            pytest.skip("only root can become someone else")
        for path in [pods.folder, *pods.folder.rglob("*")]:
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        child = os.fork()
        if child == 0:
            try:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
                ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # as after an exec
                sandbox._tried.cache_clear()
                if sandbox._tried():
                    act()
                    pods.close()
                os._exit(0)
            except BaseException:  # noqa: BLE001 - this is a fork: nothing may leave it
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        return None

    return run


def test_paths_of_the_contract_are_there_and_the_machines_own_too(pods, as_user) -> None:
    """Scripts use FfDL's absolute paths, and the interpreter and libraries of this machine."""
    neighbours = sorted(os.listdir("/mnt"))
    pods.mounts.append(Mount("shared", "/mnt/data/bucket", "data/bucket"))

    def act() -> None:
        pod = pods.start(
            "ls -A /mnt; echo --; touch /mnt/data/bucket/made /job/here /ffdl/run/mine; pwd; readlink -f /proc/self"
        )
        assert pods.end(pod).phase == "Succeeded"
        listed, _, rest = pods.log(pod).partition("--\n")
        assert sorted(listed.split()) == sorted({*neighbours, "data"})
        assert (pods.shared / "data/bucket/made").exists()
        assert (pods.shared / "here").exists()
        assert (pod / "volumes/run/mine").exists()
        assert rest.split()[0] == "/"

    as_user(act)
    assert sorted(os.listdir("/mnt")) == neighbours
    assert not os.path.exists("/ffdl/run")


def test_mounts_stay_in_the_pod(pods, as_user) -> None:
    """`mount` and `df` of the machine's user show nothing of a running job, and its end leaves nothing mounted."""

    def act() -> None:
        before = Path("/proc/self/mountinfo").read_text()
        pods.start("echo up > /job/up; exec sleep 1000")
        pods.wait_for("up")
        assert pods.mounts_seen() == []
        assert str(pods.folder) not in before

    as_user(act)


def test_read_only_means_it(pods, as_user) -> None:
    """A learner must not write the helper's address; nor can it make the mount writable, or undo it."""
    (pods.shared / "helper").mkdir()
    (pods.shared / "helper/address").write_text("there")
    pods.mounts.append(Mount("shared", "/ffdl/helper", "helper", read_only=True))

    def act() -> None:
        pod = pods.start(
            "cat /ffdl/helper/address; echo x > /ffdl/helper/address; rm -f /ffdl/helper/address; "
            "mount -o remount,bind,rw /ffdl/helper; umount /ffdl/helper; echo x > /ffdl/helper/new; ls /ffdl/helper"
        )
        pods.end(pod)
        lines = pods.log(pod).splitlines()
        assert lines[0].startswith("there")
        assert lines[-1] == "address"

    as_user(act)
    assert (pods.shared / "helper/address").read_text() == "there"
    assert os.listdir(pods.shared / "helper") == ["address"]


def test_overlay_takes_writes_and_the_data_stays(pods, as_user) -> None:
    """host_mount data: a script may write beside its data, as in FfDL, and the user's own folder stays as it was."""
    source = pods.folder / "data set, one:two"
    (source / "deep").mkdir(parents=True)
    (source / "a").write_text("original")
    pods.volumes["data"] = Volume("overlay", str(source))
    pods.mounts.append(Mount("data", "/ffdl/volumes/data"))
    pods.mounts.append(Mount("data", "/mnt/data/deep", "deep"))

    def act() -> None:
        init = {"prep": "cd /ffdl/volumes/data && echo by-init > b && rm -r deep/x 2>/dev/null; true"}
        pod = pods.start(
            "cd /ffdl/volumes/data && echo mine > a && cat a b && touch /mnt/data/deep/y && ls deep", init=init
        )
        assert pods.end(pod).phase == "Succeeded"
        assert pods.log(pod).split() == ["mine", "by-init", "y"]
        supervisor.cleanup(pod)
        shutil.rmtree(pod / "volumes")  # overlayfs leaves a folder that not even its owner can read

    as_user(act)
    assert (source / "a").read_text() == "original"
    assert sorted(os.listdir(source)) == ["a", "deep"]
    assert os.listdir(source / "deep") == []


def test_no_rights_beyond_the_users_own(pods, as_user) -> None:
    """The user namespace that makes this possible must not hand its capabilities to user code."""

    def act() -> None:
        pod = pods.start(
            "id -u; grep CapEff /proc/self/status; mount -t tmpfs none /ffdl/run && echo mounted; chroot / true"
        )
        pods.end(pod)
        words = pods.log(pod).split()
        assert int(words[0]) == os.geteuid()
        effective = int(words[2], 16)
        assert effective >> 21 & 1 == 0  # CAP_SYS_ADMIN
        assert os.geteuid() == 0 or effective == 0
        assert "mounted" not in words

    as_user(act)


def test_other_processes_are_not_there(pods, as_user) -> None:
    """`pkill python` in one job does not end another, nor the engine."""

    def act() -> None:
        pod = pods.start(f"kill -9 {os.getpid()} 1 2>/dev/null; ls -d /proc/[0-9]* | wc -l; echo $$")
        pods.end(pod)
        count, own = pods.log(pod).split()
        assert int(count) <= 4
        assert int(own) < 10

    as_user(act)


def test_names_resolve_as_in_the_cluster(pods, as_user) -> None:
    """PREFIX-i.PREFIX and the pod's own name resolve; torch, MPI and gloo look up gethostname()."""
    hosts = pods.folder / "hosts"
    hosts.write_text("127.0.0.1 localhost\n127.9.8.7 job-1 job-1.job\n")
    machine = os.uname().nodename, Path("/etc/hosts").read_text()

    def act() -> None:
        pod = pods.start(
            "hostname; getent hosts job-1.job; getent hosts job-0; getent hosts localhost",
            hostname="job-0",
            address="127.9.8.6",
            hosts=str(hosts),
        )
        pods.end(pod)
        words = pods.log(pod).split()
        assert words[0] == "job-0"
        assert "127.9.8.7" in words
        assert "127.9.8.6" in words

    as_user(act)
    assert (os.uname().nodename, Path("/etc/hosts").read_text()) == machine
    assert hosts.read_text().count("\n") == 2


@pytest.mark.parametrize("victim", ["supervisor", "first", "main"])
def test_killed(pods, as_user, victim: str) -> None:
    """Nothing outlives its supervisor, for an ordinary user too."""

    def act() -> None:
        pod = pods.start("setsid sleep 1000 & env -i sleep 1000 & echo up > /job/up; sleep 1000")
        pods.wait_for("up")
        os.kill(pods.pids(pod)[victim], signal.SIGKILL)
        pods.assert_nothing_left()
        assert pods.end(pod).exit_code == (-1 if victim == "supervisor" else 137)

    as_user(act)


def test_orphans_are_reaped(pods) -> None:
    """A job of days that starts and forgets helpers must not fill the process table with dead ones."""
    orphans = "for i in 1 2 3 4 5 6 7 8; do (true & ); done"
    two_are_left = "until set -- /proc/[0-9]*; [ $# = 2 ]; do sleep 0.01; done; echo $#"  # the first, and this shell
    pod = pods.start(f"{orphans}; {two_are_left}")
    pods.end(pod)
    assert pods.log(pod) == "2\n"


def test_a_long_name(pods) -> None:
    """A pod's name may be longer than a host's: it is cut as Kubernetes does, and still resolves."""
    pod = pods.start("hostname; getent hosts $(hostname)", hostname="n" * 100, address="127.9.8.6")
    assert pods.end(pod).phase == "Succeeded"
    assert pods.log(pod).split() == ["n" * 63, "127.9.8.6", "n" * 63]


def in_mounts_of_its_own(act: Callable[[], None]) -> None:
    """Runs a function in a child process that may mount what it likes."""
    if os.geteuid():
        pytest.skip("needs root")
    child = os.fork()
    if child == 0:
        try:
            linux.unshare(linux.CLONE_NEWNS)
            linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
            act()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - this is a fork: nothing may leave it
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_mounts_stay_in_the_pod_where_mounts_are_shared(pods) -> None:
    """Most machines share mounts between namespaces: a pod's must not reach the machine that way."""

    def act() -> None:
        linux.mount(None, "/", None, linux.MS_REC | MS_SHARED)
        pods.start("echo up > /job/up; exec sleep 1000")
        pods.wait_for("up")
        assert pods.mounts_seen() == []
        assert not os.path.exists("/ffdl/run")
        pods.close()

    in_mounts_of_its_own(act)


def test_overlay_that_cannot_be_is_read_only(pods) -> None:
    """In a container, whose own root is an overlay, the user's data is still safe: writes to it are refused."""
    source = pods.folder / "source"
    source.mkdir()
    (source / "a").write_text("original")
    pods.volumes["data"] = Volume("overlay", str(source))
    pods.mounts.append(Mount("data", "/ffdl/volumes/data"))

    def act() -> None:
        linux.mount("scratch", "/media", "tmpfs")
        for name in ("upper", "work"):
            os.mkdir(f"/media/{name}")
        where = str(pods.folder)
        linux.mount("over", where, "overlay", 0, f"lowerdir={where},upperdir=/media/upper,workdir=/media/work")
        pod = pods.start("cat /ffdl/volumes/data/a; echo x > /ffdl/volumes/data/a")
        assert pods.end(pod).phase == "Failed"
        assert pods.log(pod).startswith("original")
        assert "Read-only file system" in pods.log(pod)
        assert (source / "a").read_text() == "original"

    in_mounts_of_its_own(act)


def test_a_link_in_a_volume_leads_nowhere(pods) -> None:
    """User code plants a link where the next pod mounts: the mount is refused, not made elsewhere."""
    (pods.shared / "trap").symlink_to("/etc")
    pods.mounts.append(Mount("shared", "/mnt/data/x", "trap"))
    seen = pods.run("ls /mnt/data/x")
    assert seen.message == "volume shared can't be mounted at /mnt/data/x: a symbolic link is in the way"
    pods.mounts[-1] = Mount("run", "/job/trap/inner")
    seen = pods.run("true")
    assert "a symbolic link is in the way" in seen.message
    pods.mounts[-1] = Mount("shared", "/mnt/data/x", "../..")
    assert pods.run("true").phase == "Error"


def test_a_mount_inside_a_mount(pods) -> None:
    """The results folder of a `copy` data store lies in the job's folder."""
    results = pods.folder / "results"
    results.mkdir()
    pods.volumes["results"] = Volume("folder", str(results))
    pods.mounts.insert(0, Mount("results", "/job/results"))
    assert pods.run("echo kept > /job/results/r; echo beside > /job/b").phase == "Succeeded"
    assert (results / "r").read_text() == "kept\n"
    assert (pods.shared / "b").read_text() == "beside\n"


def test_a_mount_over_a_folder_of_the_machine(pods) -> None:
    """A folder that exists on this machine is covered in the pod and untouched outside."""
    pods.mounts.append(Mount("shared", "/usr/share", "covered"))
    (pods.shared / "covered").mkdir()
    pod = pods.start("ls /usr/share; echo mine > /usr/share/mine")
    pods.end(pod)
    assert pods.log(pod) == ""
    assert (pods.shared / "covered/mine").exists()
    assert not os.path.exists("/usr/share/mine")


def test_root_without_the_right_to_mount(pods) -> None:
    """Root in a container that has no CAP_SYS_ADMIN gets its namespaces by way of a user namespace."""
    if os.geteuid():
        pytest.skip("needs root")
    child = os.fork()
    if child == 0:
        try:
            libc = ctypes.CDLL(None)
            libc.prctl(24, 21, 0, 0, 0)
            arguments = [
                sys.executable,
                "-c",
                _PROGRAM,
                str(pods.make("mount -t tmpfs none /job; touch /job/x; id -u")),
            ]
            os.execv(sys.executable, arguments)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    pod = pods.folder / "pod-0"
    assert pods.log(pod).splitlines()[-1] == "0"
    assert (pods.shared / "x").exists()
    assert supervisor.observe(pod).phase == "Succeeded"


_PROGRAM = """
import pathlib, sys, time
from ffdl.engines.local import linux, sandbox, supervisor
assert sandbox._tried()
pod = pathlib.Path(sys.argv[1])
supervisor.launch(pod)
for _ in range(30000):
    if (seen := supervisor.observe(pod)) is not None and seen.ended:
        sys.exit(0)
    time.sleep(0.002)
sys.exit(3)
"""


def test_an_unknown_kind_of_isolation_is_refused(pods, monkeypatch: pytest.MonkeyPatch) -> None:
    """A typing error in FFDL_ISOLATION must not quietly mean less isolation."""
    monkeypatch.setenv(sandbox.SWITCH_ENV, "namespace")
    with pytest.raises(ValueError, match="FFDL_ISOLATION is 'namespace'"):
        supervisor.launch(pods.make("true"))
    monkeypatch.setenv(sandbox.SWITCH_ENV, sandbox.NAMESPACES)
