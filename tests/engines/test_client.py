"""The Python API: what a notebook or a program does with jobs."""

import re
import subprocess
import sys
import textwrap

import pytest

from ffdl import Client, TrainingJob, read_catalogue
from ffdl.engines.base import EngineError, NoSuchJob
from ffdl.engines.client import active_python, new_job_id
from ffdl.workflows.errors import ManifestError

PATIENCE = 240.0  # seconds

MANIFEST = """\
name: tiny
cpus: 0.5
memory: 256MB
halt_grace: 2s
framework: {name: custom, version: img, command: "%s"}
"""


@pytest.fixture
def client(tmp_path, monkeypatch):
    """A client with an engine of its own; its jobs are deleted afterwards."""
    monkeypatch.setenv("FFDL_MACHINE", "cpus=4,memory=16GiB")
    client = Client(home=tmp_path / "home", python=sys.executable)
    yield client
    for job in client.jobs():
        job.delete(results=True)


def test_a_job_is_submitted_waited_for_and_found_again(client, tmp_path):
    """The whole of a program's life with a job, and that it may end before the job does."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "words").write_text("from the code\n")
    job = client.submit(TrainingJob.from_manifest(MANIFEST % "cat words"), code=tmp_path / "code")
    assert job.wait(timeout=PATIENCE).state == "COMPLETED"
    again = client.job(job.id)
    assert [line.text for line in again.logs()] == ["from the code"]
    assert [found.id for found in client.jobs()] == [job.id]
    assert again.state == "COMPLETED"
    assert again.workflow()["kind"] == "Workflow"
    assert again.download(tmp_path / "out", "definition").suffix == ".zip"
    again.delete()
    with pytest.raises(NoSuchJob):
        client.job(job.id)


def test_a_sites_frameworks_hold_for_programs_too(client, tmp_path, monkeypatch):
    """A nightly program submits what people submit by hand."""
    site, manifest = tmp_path / "site.yml", tmp_path / "manifest.yml"
    site.write_text("plain: {image: team/plain, module: module_that_is_nowhere}")
    manifest.write_text("name: m\ncpus: 1\nframework: {name: plain, version: 3, command: 'true'}\n")
    with pytest.raises(ManifestError, match="'plain', which is unknown"):
        client.train(manifest)
    with pytest.raises(EngineError, match="has no module_that_is_nowhere, which plain jobs import; name a Python"):
        Client(client.engine, catalogue=site).train(manifest)
    monkeypatch.setenv("FFDL_CATALOGUE", str(site))
    with pytest.raises(EngineError, match="has no module_that_is_nowhere"):
        client.train(manifest)
    with pytest.raises(ManifestError, match="'plain', which is unknown"):
        TrainingJob.from_manifest(manifest.read_text())
    job = TrainingJob.from_manifest(manifest.read_text(), catalogue=read_catalogue())
    assert job.image == "team/plain:3"


def test_waiting_has_a_limit_and_ends_at_a_halt(client):
    """A notebook cell must come back."""
    job = client.submit(TrainingJob.from_manifest(MANIFEST % "sleep 1000"))
    with pytest.raises(TimeoutError, match=f"{job.id} is still"):
        job.wait(timeout=0.5)
    job.halt(timeout=PATIENCE)
    assert job.wait(timeout=PATIENCE).state == "HALTED"
    job.resume()
    job.stop()
    assert job.wait(timeout=PATIENCE).state == "FAILED"


def test_logs_can_be_followed(client):
    """Lines come while the job runs, and the loop ends with it."""
    job = client.submit(TrainingJob.from_manifest(MANIFEST % "seq 3"))
    assert [line.text for line in job.logs(follow=True)] == ["1", "2", "3"]


def test_an_engine_that_is_not_there_is_an_error_in_one_line(tmp_path, monkeypatch):
    """Programs show it to people as it is."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    with pytest.raises(EngineError, match="no cluster is configured: there is no kubeconfig file"):
        Client("argo")
    with pytest.raises(EngineError, match="no engine is called 'mesos'; there are local and argo"):
        Client("mesos")


def test_ids_are_names_that_kubernetes_takes_and_never_the_same():
    """The id is the Workflow's name, a host name and a label."""
    ids = {new_job_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch(r"training-[a-z2-7]{10}", job_id) for job_id in ids)


def test_learners_run_in_the_environment_that_is_active(monkeypatch, tmp_path):
    """What works in the user's shell works in the job, also if ffdl is installed elsewhere."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    assert active_python() == sys.executable
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "nowhere"))
    assert active_python() == sys.executable
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    assert active_python() == str(tmp_path / "bin" / "python")


def test_the_names_are_there_and_loaded_when_used():
    """`from ffdl import TrainingJob, Client` is the documented line; `import ffdl` costs nothing."""
    code = """
        import sys
        import ffdl
        assert "ffdl.engines.client" not in sys.modules
        from ffdl import Client
        assert "hera" not in sys.modules
        from ffdl import TrainingJob
        assert dir(ffdl) == ["Client", "TrainingJob", "learner", "pack", "read_catalogue"]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
