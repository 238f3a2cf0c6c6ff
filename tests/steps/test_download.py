"""Download: code, data and the last checkpoint are on the volume, whatever happens on the way."""

from __future__ import annotations

import io
import os
import random
import resource
import shutil
import signal
import stat
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ffdl.learner import checkpoint, contract
from tests.steps import s3
from tests.steps.volume import ODD_NAMES, Job, tree, until, zipped

SEED = int(os.environ.get("FFDL_TEST_SEED", random.randrange(1 << 30)))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.Server]:
    with s3.serve(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path / "pod")


def with_data(root: Path, server: s3.Server, name: str, endpoint: str = "", layout: str = "mount") -> tuple[Job, Path]:
    """A job that trains on bucket `name`, and the bucket's folder."""
    job = Job(root / "pod", data=contract.Store("s3", name, layout, endpoint or server.endpoint))
    job.credentials()
    return job, server.bucket(name)


def data_dir(job: Job, name: str) -> Path:
    return job.path(f"{contract.DATA_ROOT}/{name}")


def test_the_folders_of_a_job(job: Job) -> None:
    """A learner finds FfDL's folders, writable for whatever user its image has."""
    job.write_spec(learners=2)
    job.good("download")
    for folder in (job.logs / "learner-1", job.logs / "learner-2", job.checkpoints, job.result_dir, job.model):
        assert folder.is_dir()
        assert stat.S_IMODE(folder.stat().st_mode) & 0o777 == 0o777
    assert job.logs.stat().st_mode & stat.S_ISGID


def test_code_is_executable_and_replaced_whole(job: Job) -> None:
    """`./setup.sh` of a repository with lost modes runs, as in FfDL; a second run leaves no file of the first's."""
    job.code({"setup.sh": b"#!/bin/sh\n", "lib/a.py": b"", "ü b/-x": b"1"})
    job.good("download")
    assert tree(job.model) == {"setup.sh": b"#!/bin/sh\n", "lib/a.py": b"", "ü b/-x": b"1"}
    for found in job.model.rglob("*"):
        assert stat.S_IMODE(found.stat().st_mode) & 0o777 == 0o777
    job.code({"other": b"2"})
    job.good("download")
    assert tree(job.model) == {"other": b"2"}
    assert not job.path("/job/.ffdl").exists()


def archive_with(name: str, mode: int, content: bytes) -> bytes:
    target = io.BytesIO(zipped({"fine": b"1"}))
    with zipfile.ZipFile(target, "a") as archive:
        entry = zipfile.ZipInfo(name)
        entry.external_attr = mode << 16
        archive.writestr(entry, content)
    return target.getvalue()


@pytest.mark.parametrize(
    ("name", "mode", "content"),
    [
        ("../outside", 0o644, b"x"),
        ("/absolute", 0o644, b"x"),
        ("a/../../outside", 0o644, b"x"),
        ("..\\outside", 0o644, b"x"),
        ("link", stat.S_IFLNK | 0o777, b"/etc"),
        ("link", stat.S_IFLNK | 0o777, b"../.."),
        ("a/b/link", stat.S_IFLNK | 0o777, b"../../../journal"),
        ("fine/below", 0o644, b"x"),
    ],
)
def test_an_archive_that_reaches_outside_is_refused(job: Job, name: str, mode: int, content: bytes) -> None:
    """A zip from somewhere can't write beside the code's folder, nor lead out of it."""
    (job.path(contract.CONFIG_DIR) / contract.CODE_FILE).write_bytes(archive_with(name, mode, content))
    before = {str(found) for found in job.root.parent.rglob("*")}
    line = job.red("download")
    assert "Model zip is invalid" in line
    assert line == job.failures["download"]
    made = {str(found) for found in job.root.parent.rglob("*")} - before
    assert not any("outside" in found or "absolute" in found or "link" in found for found in made)


def test_links_within_the_code_stay_links(job: Job) -> None:
    """A link from one file of the code to another works."""
    content = archive_with("lib/current", stat.S_IFLNK | 0o777, b"../fine")
    (job.path(contract.CONFIG_DIR) / contract.CODE_FILE).write_bytes(content)
    job.good("download")
    assert os.readlink(job.model / "lib/current") == "../fine"


def test_a_broken_or_huge_archive_is_said(job: Job) -> None:
    """A damaged upload, or 10 KB that unpack to a terabyte, is an error and not a full disk."""
    target = job.path(contract.CONFIG_DIR) / contract.CODE_FILE
    target.write_bytes(b"no zip at all")
    assert "Model zip is invalid" in job.red("download")
    good = bytearray(zipped({"a": bytes(random.Random(1).randbytes(5000))}))
    good[2000] ^= 1
    target.write_bytes(bytes(good))
    assert "Model zip is invalid" in job.red("download")
    target.write_bytes(bomb())
    line = job.red("download")
    assert "limit" in line
    target.write_bytes(zipped({"a": b"good"}))
    job.good("download")
    assert job.failures == {}


def bomb() -> bytes:
    """An archive of two entries that claim 4 GB each."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", bytes(1000))
        archive.writestr("b", bytes(1000))
    data = bytearray(target.getvalue())
    at = -1
    while (at := data.find(b"PK\x01\x02", at + 1)) >= 0:
        data[at + 24 : at + 28] = (0xFFFFFFF0).to_bytes(4, "little")
    return bytes(data)


def test_code_that_lies_in_the_results_store(job: Job) -> None:
    """FfDL's host mounts had the code placed at <results>/<id>/_submitted_code/model.zip: it is found there."""
    (job.path(contract.CONFIG_DIR) / contract.CODE_FILE).unlink()
    assert "no code to run" in job.red("download")
    target = job.stored / contract.SUBMITTED_CODE
    target.parent.mkdir(parents=True)
    target.write_bytes(zipped({"there.py": b"1"}))
    job.good("download")
    assert tree(job.model) == {"there.py": b"1"}


def test_host_data_is_linked(job: Job) -> None:
    """Data on this machine is not copied."""
    job.write_spec(data=contract.Store("host", "digits"))
    assert "not there" in job.red("download")
    (job.path(contract.HOST_DATA_DIR)).mkdir(parents=True)
    (job.path(contract.HOST_DATA_DIR) / "x").write_text("1")
    job.good("download")
    job.good("download")
    assert data_dir(job, "digits").is_symlink()
    assert tree(job.path(contract.DATA_ROOT) / "digits") == {"x": b"1"}


@pytest.mark.parametrize("layout", ["mount", "copy"])
def test_data_from_s3(tmp_path: Path, server: s3.Server, layout: str) -> None:
    """Names, empty files and sizes arrive as they are; a second run fetches nothing; a changed object is fetched."""
    job, bucket = with_data(tmp_path, server, f"names-{layout}", layout=layout)
    wanted = {name: name.encode() for name in ODD_NAMES} | {"empty": b"", "deep/er/file": b"1"}
    for name, data in wanted.items():
        (bucket / name).parent.mkdir(parents=True, exist_ok=True)
        (bucket / name).write_bytes(data)
    progress = tmp_path / "progress"
    said = job.good("download", ARGO_PROGRESS_FILE=str(progress))
    place = job.path(f"/job/names-{layout}") if layout == "copy" else data_dir(job, f"names-{layout}")
    assert tree(place) == wanted
    assert f"{len(wanted)} files were fetched" in said
    done, _, total = progress.read_text().strip().partition("/")
    assert done == total
    assert "; 0 files were fetched" in job.good("download")
    (bucket / "empty").write_bytes(b"full")
    (place / "a#b").write_bytes(b"oops")
    assert "; 2 files were fetched" in job.good("download")
    assert tree(place) == wanted | {"empty": b"full"}
    assert os.access(place / "a#b", os.W_OK)
    assert not list(place.glob(".ffdl*"))


@pytest.mark.parametrize("ranges", [False, True])
def test_a_big_file_is_resumed_where_it_was_killed(tmp_path: Path, server: s3.Server, ranges: bool) -> None:
    """Killed again and again at random moments, a big download goes on; with partial answers it does not start over."""
    print("seed", SEED)
    chance = random.Random(SEED)
    with s3.Proxy(server.port, SEED) as proxy:
        proxy.ranges = ranges
        job, bucket = with_data(tmp_path, server, f"big-{ranges:d}", proxy.endpoint)
        data = random.Random(5).randbytes(64 << 20)
        (bucket / "model.bin").write_bytes(data)
        (bucket / "small").write_bytes(b"s")
        for _ in range(6):
            job.killed("download", chance.uniform(0.25, 0.6))
        before = proxy.passed
        job.good("download")
        assert tree(data_dir(job, f"big-{ranges:d}")) == {"model.bin": data, "small": b"s"}
        if ranges:
            assert proxy.passed < 6 * len(data)
            assert proxy.passed - before < len(data) + (4 << 20)


def test_killed_at_random_moments_the_folder_is_the_same(tmp_path: Path, server: s3.Server) -> None:
    """Whenever download is killed, running it again gives the same folders as if nothing had been."""
    print("seed", SEED)
    chance = random.Random(SEED)
    job, bucket = with_data(tmp_path, server, "kills")
    wanted = {f"d{i % 7}/f{i}": random.Random(i).randbytes(chance.randrange(40_000)) for i in range(400)}
    for name, data in wanted.items():
        (bucket / name).parent.mkdir(exist_ok=True)
        (bucket / name).write_bytes(data)
    job.code({f"m/{i}.py": bytes(i) for i in range(100)})
    delays = [0.1, *(chance.uniform(0.05, 0.7) for _ in range(9))]  # the first is too early to have finished
    assert sum(job.killed("download", delay) for delay in delays) >= 1
    job.good("download")
    assert tree(data_dir(job, "kills")) == wanted
    assert tree(job.model) == {f"m/{i}.py": bytes(i) for i in range(100)}


@pytest.mark.parametrize("ranges", [False, True])
def test_cut_connections_are_gone_over(tmp_path: Path, server: s3.Server, ranges: bool) -> None:
    """A network that cuts connections after some bytes makes a download slow, not wrong."""
    print("seed", SEED)
    with s3.Proxy(server.port, SEED) as proxy:
        proxy.ranges = ranges
        proxy.cut = (3_000, 400_000)
        job, bucket = with_data(tmp_path, server, f"cuts-{ranges:d}", proxy.endpoint)
        wanted = {f"f{i}": random.Random(i).randbytes(30_000) for i in range(40)}
        for name, data in wanted.items():
            (bucket / name).write_bytes(data)
        job.good("download")
        assert tree(data_dir(job, f"cuts-{ranges:d}")) == wanted
        assert proxy.connections > 3


def test_a_store_that_is_down_for_a_while(tmp_path: Path, server: s3.Server) -> None:
    """A store that comes back is waited for; one that stays away ends the job with what is missing."""
    with s3.Proxy(server.port) as proxy:
        job, bucket = with_data(tmp_path, server, "down", proxy.endpoint)
        (bucket / "x").write_bytes(b"1")
        proxy.refuse = True
        line = job.red("download", FFDL_RETRY_SECONDS="1")
        assert "bucket 'down'" in line
        assert "no connection" in line
        assert job.failures["download"] == line
        seen = proxy.connections
        process = job.start("download")
        until(lambda: proxy.connections > seen + 2)
        proxy.refuse = False
        process.communicate(timeout=30)
        assert process.returncode == 0
        assert tree(data_dir(job, "down")) == {"x": b"1"}
        assert job.failures == {}


def test_what_is_wrong_for_good_is_said_soon(tmp_path: Path, server: s3.Server) -> None:
    """A misspelt bucket or password does not take five minutes to be told."""
    job = Job(tmp_path / "pod", data=contract.Store("s3", "no-such-bucket", endpoint=server.endpoint))
    job.credentials()
    assert "Data store bucket 'no-such-bucket'" in job.red("download", FFDL_RETRY_SECONDS="300")
    server.bucket("there")
    job.write_spec(data=contract.Store("s3", "there", endpoint=server.endpoint))
    job.credentials(password="guessed-wrong")
    line = job.red("download", FFDL_RETRY_SECONDS="300")
    assert "Data store authentication information" in line
    assert "guessed" not in line


@pytest.mark.parametrize("way", ["signal", "marker"])
def test_a_halt_while_downloading(tmp_path: Path, server: s3.Server, way: str) -> None:
    """A halt is heard at once, also while a connection stands still, and what has arrived stays."""
    with s3.Proxy(server.port) as proxy:
        job, bucket = with_data(tmp_path, server, f"halt-{way}", proxy.endpoint)
        (bucket / "first").write_bytes(b"1")
        job.good("download")
        (bucket / "second").write_bytes(bytes(30 << 20))
        before = proxy.passed
        process = job.start("download")
        until(lambda: proxy.passed > before + (1 << 20))
        proxy.freeze = True
        if way == "signal":
            process.send_signal(signal.SIGTERM)
        else:
            (job.path(contract.HELPER_DIR) / contract.HALTED_FILE).touch()
        process.communicate(timeout=20)
        assert process.returncode == contract.EXIT_AGAIN
        proxy.freeze = False
        (job.path(contract.HELPER_DIR) / contract.HALTED_FILE).unlink(missing_ok=True)
        assert "; 1 files were fetched" in job.good("download")


def test_a_full_disk_is_said(tmp_path: Path, server: s3.Server) -> None:
    """A volume too small for the data ends in a line that says so."""
    job, bucket = with_data(tmp_path, server, "full")
    (bucket / "x").write_bytes(bytes(3 << 20))
    limit = 1 << 20

    process_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, process_limit[1]))
    try:
        line = job.red("download", FFDL_RETRY_SECONDS="3")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, process_limit)
    assert "volume can't be written" in line


def test_memory_is_bounded(tmp_path: Path, server: s3.Server) -> None:
    """200 MB in one file need no 200 MB of memory: steps ask for little."""
    with s3.Proxy(server.port) as proxy:
        proxy.ranges = True
        job, bucket = with_data(tmp_path, server, "memory", proxy.endpoint)
        with open(bucket / "big", "wb") as stream:
            stream.truncate(200 << 20)
        process = job.start("download")
        peak = peak_memory(process.pid)
        process.communicate(timeout=100)
        assert process.returncode == 0
        print("peak", peak() >> 20, "MiB")
        assert 0 < peak() <= 64 << 20


def peak_memory(pid: int):  # type: ignore[no-untyped-def]
    highest = [0]

    def watch() -> None:
        try:
            while True:
                for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                    if line.startswith("VmHWM"):
                        highest[0] = max(highest[0], int(line.split()[1]) << 10)
                threading.Event().wait(0.02)
        except OSError:
            pass

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()

    def result() -> int:
        thread.join(5)
        return highest[0]

    return result


def lose_volume(job: Job) -> None:
    shutil.rmtree(job.path(contract.JOB_DIR))
    job.path(contract.JOB_DIR).mkdir()


def test_the_last_checkpoint_comes_back(job: Job) -> None:
    """A job whose volume was lost goes on from what was shipped; one that has newer checkpoints keeps them."""
    job.good("download")
    job.checkpoint(10)
    job.checkpoint(20)
    job.good("ship", "--checkpoints")
    lose_volume(job)
    assert "step 20" in job.good("download")
    found = checkpoint.committed(str(job.checkpoints))
    assert [one.step for one in found] == [20]
    assert checkpoint.restore(str(job.checkpoints), print)[1]["step"] == 20  # type: ignore[index]
    job.checkpoint(30)
    assert "restored" not in job.good("download")
    assert checkpoint.committed(str(job.checkpoints))[0].step == 30


def test_each_independent_learner_gets_its_own_back(job: Job) -> None:
    """Learners on their own keep checkpoints of their own."""
    job.good("download")
    job.checkpoint(5, where="learner-1")
    job.checkpoint(7, where="learner-2")
    job.good("ship", "--checkpoints")
    lose_volume(job)
    job.good("download")
    assert [found.step for found in checkpoint.committed(str(job.checkpoints / "learner-1"))] == [5]
    assert [found.step for found in checkpoint.committed(str(job.checkpoints / "learner-2"))] == [7]


TOGETHER = ("learner-1", "learner-2", "parameter-server-1")


@pytest.fixture
def together(job: Job) -> Job:
    """Learners that go in lockstep, and their server."""
    job.write_spec(learners=2, servers=1, distribution="parameter-server", mode="sync", checkpoint_keep=1)
    job.good("download")
    return job


def saved(job: Job) -> list[list[int]]:
    return [[found.step for found in checkpoint.committed(str(job.checkpoints / where))] for where in TOGETHER]


def test_learners_in_lockstep_get_one_step_back(together: Job) -> None:
    """What some were quicker to ship is of no use: each of them goes on from the last step that all have."""
    job = together
    for where in TOGETHER:
        job.checkpoint(10, where=where)
    job.good("ship", "--checkpoints")
    job.checkpoint(20, where="learner-1")
    job.checkpoint(20, where="parameter-server-1")
    job.good("ship", "--checkpoints")
    lose_volume(job)
    job.good("download")
    assert saved(job) == [[10], [10], [10]]
    for where in TOGETHER:
        job.checkpoint(20, where=where)
    job.good("ship", "--checkpoints")
    assert {found.name for found in job.stored.glob("checkpoints/*/*")} == {"step-20"}
    for where in TOGETHER:
        job.checkpoint(30, where=where)
    assert "restored" not in job.good("download")


def test_learners_in_lockstep_get_what_one_world_has_saved(together: Job) -> None:
    """A world went back to step 10, and the volume is lost before all have shipped what they have now of step 20."""
    job = together
    job.write_spec(checkpoint_keep=2)
    for where in TOGETHER:
        job.checkpoint(10, where=where)
    job.checkpoint(20, where="learner-1")
    job.good("ship", "--checkpoints")
    for where in TOGETHER[1:]:
        job.checkpoint(20, where=where, generation=2)
    job.good("ship", "--checkpoints")
    lose_volume(job)
    job.good("download")
    assert saved(job) == [[10], [10], [10]]


def test_a_damaged_part_of_a_step_takes_all_back(together: Job) -> None:
    """One member's is damaged in the store: the step before it is brought to all, again after a kill in between."""
    job = together
    job.write_spec(checkpoint_keep=2)
    for step in (10, 20):
        for where in TOGETHER:
            job.checkpoint(step, where=where)
    job.good("ship", "--checkpoints")
    (job.stored / "checkpoints/learner-2/step-20/arrays.bin").write_bytes(b"torn")
    lose_volume(job)
    for _ in range(2):
        assert "damaged" in job.good("download")
        assert saved(job) == [[20, 10], [10], [10]]
        shutil.rmtree(job.checkpoints / "parameter-server-1")
    lose_volume(job)
    shutil.rmtree(job.stored / "checkpoints/learner-2")
    assert "no step of which there is a whole checkpoint of every member" in job.good("download")
    assert saved(job) == [[20], [], [20]]


OTHER = "training-otherother"


def becomes_another(job: Job) -> None:
    """What the job has stored is another one's, from which it is to go on."""
    job.stored.rename(job.stored.with_name(OTHER))
    lose_volume(job)
    job.write_spec(continues=OTHER)


def test_what_a_job_goes_on_from_is_brought_once(job: Job) -> None:
    """From then on it has its own checkpoints, and nothing of the other one's is of any use to it."""
    job.good("download")
    job.checkpoint(20)
    (job.checkpoints / "mine").write_text("of a script")
    job.good("ship", "--checkpoints")
    becomes_another(job)
    said = job.good("download")
    assert f"going on from {OTHER}" in said
    assert checkpoint.committed(str(job.checkpoints))[0].step == 20
    assert (job.checkpoints / "mine").read_text() == "of a script"
    job.checkpoint(30)
    shutil.rmtree(job.stored.with_name(OTHER))
    assert OTHER not in job.good("download")
    assert checkpoint.committed(str(job.checkpoints))[0].step == 30


def test_what_several_go_on_from_is_brought_whole(together: Job) -> None:
    """Killed, or halted, when some had theirs, which the helper has stored already as this job's."""
    job = together
    for where in TOGETHER:
        job.checkpoint(20, where=where)
    job.good("ship", "--checkpoints")
    becomes_another(job)
    shutil.copytree(job.stored.with_name(OTHER) / "checkpoints/learner-1", job.checkpoints / "learner-1")
    job.good("ship", "--checkpoints")
    assert (job.stored / "checkpoints/learner-1/step-20").is_dir()
    job.good("download")
    assert saved(job) == [[20], [20], [20]]


@pytest.mark.parametrize("damage", ["torn", "none in common"])
def test_a_job_that_can_not_go_on_from_what_it_was_told_fails(together: Job, damage: str) -> None:
    """Beginning anew is what its user did not ask for."""
    job = together
    for step, where in zip((10, 20, 20), TOGETHER, strict=True):
        job.checkpoint(20 if damage == "torn" else step, where=where)
    job.good("ship", "--checkpoints")
    becomes_another(job)
    if damage == "torn":
        (job.stored.with_name(OTHER) / "checkpoints/learner-2/step-20/arrays.bin").write_bytes(b"torn")
    for _ in range(2):
        assert f"no checkpoint of {OTHER} in " in job.red("download")
    shutil.rmtree(job.stored.with_name(OTHER))
    assert f"there is no checkpoint of {OTHER} in " in job.red("download")


def test_a_torn_checkpoint_is_never_restored(job: Job) -> None:
    """Cut or flipped at any byte, a checkpoint in the store is passed over for the one before it."""
    print("seed", SEED)
    chance = random.Random(SEED)
    job.good("download")
    job.checkpoint(10)
    job.checkpoint(20)
    job.good("ship", "--checkpoints")
    newest = job.stored / "checkpoints/step-20"
    names = sorted(found.name for found in newest.iterdir())
    for name in [*names, *names]:
        whole = (newest / name).read_bytes()
        at = chance.randrange(len(whole))
        torn = whole[:at] if chance.random() < 0.5 else whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        (newest / name).write_bytes(torn)
        lose_volume(job)
        job.good("download")
        assert [found.step for found in checkpoint.committed(str(job.checkpoints))] == [10], (name, at)
        (newest / name).write_bytes(whole)


def test_killed_while_restoring(tmp_path: Path, server: s3.Server) -> None:
    """Killed in the middle of a restore, the next attempt restores; nothing half is taken for a checkpoint."""
    print("seed", SEED)
    chance = random.Random(SEED)
    job = Job(tmp_path / "pod", results=contract.Store("s3", "restoring", endpoint=server.endpoint))
    job.credentials()
    server.bucket("restoring")
    job.good("download")
    job.checkpoint(10, size=20 << 20)
    (job.checkpoints / "mine.pt").write_bytes(b"own")
    job.good("ship", "--final")
    lose_volume(job)
    for _ in range(8):
        job.killed("download", chance.uniform(0.15, 0.6))
        for found in checkpoint.committed(str(job.checkpoints)):
            assert checkpoint.verify(found.path)
    job.good("download")
    assert [found.step for found in checkpoint.committed(str(job.checkpoints))] == [10]
    assert (job.checkpoints / "mine.pt").read_bytes() == b"own"


def test_a_scripts_own_files_come_back_whole_or_not_at_all(job: Job) -> None:
    """A script that knows nothing of us finds the files it had; a damaged snapshot is not given to it."""
    job.good("download")
    (job.checkpoints / "epoch-1").mkdir()
    (job.checkpoints / "epoch-1/model.pt").write_bytes(b"weights")
    (job.checkpoints / "last").write_bytes(b"epoch-1")
    job.good("ship", "--checkpoints")
    lose_volume(job)
    job.good("download")
    assert tree(job.checkpoints) == {"epoch-1/model.pt": b"weights", "last": b"epoch-1"}
    (job.stored / "checkpoints/files/last").write_bytes(b"epoch-9")
    lose_volume(job)
    assert "damaged" in job.good("download")
    assert tree(job.checkpoints) == {}


@pytest.mark.parametrize("field", ["key", "size", "digest"])
def test_a_damaged_list_of_a_scripts_own_files_is_not_gone_by(job: Job, field: str) -> None:
    """A flipped bit may as well be in the name of a field."""
    job.good("download")
    (job.checkpoints / "mine.pt").write_bytes(b"own")
    job.good("ship", "--final")
    manifest = job.stored / "checkpoints/files.json"
    manifest.write_text(manifest.read_text().replace(f'"{field}"', f'"{field}x"'))
    lose_volume(job)
    assert "is damaged; they are not restored" in job.good("download")
    assert not (job.checkpoints / "mine.pt").exists()


def test_no_results_store_no_restore(job: Job) -> None:
    """A job that keeps no results downloads all the same."""
    job.write_spec(results=None)
    job.good("download")
