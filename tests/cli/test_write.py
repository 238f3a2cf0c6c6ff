"""Writing a job: init, lint, compile, and what train does before anything runs."""

import subprocess
import sys
import zipfile

import pytest
import yaml

MANIFEST = (
    "name: tiny\nlearners: 1\ncpus: 1\nmemory: 512MB\nframework:\n  name: custom\n  version: img\n  command: 'true'\n"
)


@pytest.fixture
def manifest(shell):
    """A small manifest in a folder with a script."""
    folder = shell.folder / "job"
    folder.mkdir()
    (folder / "train.py").write_text("print('x')\n")
    (folder / "manifest.yml").write_text(MANIFEST)
    return folder / "manifest.yml"


def test_a_new_job_is_right_as_it_stands(shell):
    """The first two commands of a new user: nothing to edit, and the words name the next one."""
    done = shell.ffdl("init", "my job")
    assert "ffdl train 'my job/manifest.yml' --follow" in done.stderr
    assert done.stdout == ""
    assert "nothing is wrong" in shell.ffdl("lint", "my job/manifest.yml").stderr
    workflow = yaml.safe_load(shell.ffdl("compile", "my job/manifest.yml").stdout)
    assert workflow["metadata"]["annotations"]["ffdl.org/name"] == '"my job"'


def test_a_new_jobs_script_also_runs_by_hand(shell):
    """A script is tried before it is submitted; it must learn something real without an engine."""
    shell.ffdl("init", "hello")
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=shell.folder / "hello", capture_output=True, text=True, timeout=280
    )
    assert done.stdout.splitlines()[-1] == "trained: accuracy 1.00"
    assert (shell.folder / "hello" / "model.json").exists()


def test_a_new_jobs_name_may_be_anything(shell):
    """Folders have the names they have; the manifest quotes them."""
    names = ["ünï cödé", "x: y", "x" * 200, "-dash", "a/b", '"', "{name}"]
    for name in names:
        shell.ffdl("init", "--", name)
    shell.ffdl("lint", *(f"./{name}/manifest.yml" for name in names))


def test_init_overwrites_nothing(shell):
    """A second `init` in the same place must not cost the user's script."""
    (shell.folder / "mine").mkdir()
    (shell.folder / "mine" / "train.py").write_text("precious")
    assert shell.fails("init", "mine") == "mine exists and is not an empty folder; choose another name"
    assert (shell.folder / "mine" / "train.py").read_text() == "precious"


def test_lint_says_everything_at_once_and_ends_with_2(shell, manifest):
    """One round of editing, not one for each error; an editor reads FILE:LINE."""
    manifest.write_text(MANIFEST + "gpuz: 1\nmemory_: 2\n")
    done = shell.ffdl("lint", str(manifest), code=2)
    lines = done.stdout.splitlines()
    assert [line.split(" ")[0] for line in lines] == [f"{manifest}:9:", f"{manifest}:10:"]
    assert "gpus" in lines[0]
    assert done.stderr == f"{manifest}: 2 problems\n"
    problems = yaml.safe_load(shell.ffdl("lint", str(manifest), "-o", "json", code=2).stdout)
    assert [(p["file"], p["line"]) for p in problems] == [(str(manifest), 9), (str(manifest), 10)]


def test_lint_looks_at_several_manifests(shell, manifest):
    """`ffdl lint jobs/*/manifest.yml` in a repository's checks."""
    assert shell.ffdl("lint", str(manifest), str(manifest)).stderr == "2 files: nothing is wrong\n"
    assert "missing.yml: No such file" in shell.fails("lint", "missing.yml", str(manifest))


def test_lint_and_compile_need_no_secrets(shell, manifest):
    """Checks run where the credentials are not; `train` is what needs them."""
    manifest.write_text(MANIFEST + "env:\n  TOKEN: ${MY_TOKEN}\n")
    shell.ffdl("lint", str(manifest))
    assert "MY_TOKEN" not in shell.ffdl("compile", str(manifest)).stdout
    assert "MY_TOKEN" in shell.fails("train", str(manifest))


def test_all_problems_are_shown_by_train_too(shell, manifest):
    """Who did not lint must not be told one at a time."""
    manifest.write_text(MANIFEST + "gpuz: 1\nmemory_: 2\n")
    done = shell.ffdl("train", str(manifest), code=2)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert [line.split(" ")[0] for line in lines[:2]] == [f"{manifest}:9:", f"{manifest}:10:"]
    assert lines[2] == "Error: 2 problems, nothing was done"
    manifest.write_text(MANIFEST + "gpuz: 1\n")
    assert shell.fails("train", str(manifest)).startswith(f"{manifest}:9: ")


def test_compile_writes_to_stdout_or_a_file_the_same_bytes(shell, manifest):
    """The Workflow is committed beside the job and compared."""
    first = shell.ffdl("compile", str(manifest)).stdout
    shell.ffdl("compile", str(manifest), "-o", "workflow.yml")
    assert (shell.folder / "workflow.yml").read_text() == first
    assert yaml.safe_load(first)["kind"] == "Workflow"


def test_a_dry_run_prints_what_would_run_and_submits_nothing(shell, manifest):
    """An inspectable object before every act."""
    done = shell.ffdl("train", str(manifest), "--dry-run", "--set", "learners=3", "--name", "other: one")
    workflow = yaml.safe_load(done.stdout)
    assert workflow["metadata"]["annotations"]["ffdl.org/name"] == '"other: one"'
    assert '"learners": 3' in workflow["metadata"]["annotations"]["ffdl.org/summary"]
    assert workflow["metadata"]["name"].startswith("training-")
    assert shell.ffdl("list", "-o", "name").stdout == ""


@pytest.mark.parametrize("override", ["cpus", "=2", "cpuz=2", "cpus=many"])
def test_a_wrong_override_is_an_error_that_names_it(shell, manifest, override):
    """It would be silently another job."""
    assert override.split("=")[0] in shell.fails("train", str(manifest), "--set", override)


def test_what_can_never_run_here_is_refused_at_once(shell, manifest):
    """A job that would wait for ever is worse than an error."""
    assert "100 CPUs, this machine has 4" in shell.fails("train", str(manifest), "--set", "cpus=100")
    assert shell.ffdl("list", "-o", "name").stdout == ""


def test_defaults_that_do_not_fit_are_told(shell, manifest):
    """FfDL's default of 5 CPUs is lowered on a small machine, with a word; a written value never is."""
    manifest.write_text(MANIFEST.replace("cpus: 1\n", ""))
    done = shell.ffdl("train", str(manifest), "--dry-run")
    assert done.stderr.startswith("Note: cpus is not set: 4 a learner")


def test_code_that_cannot_be_sent_is_refused_before_anything_is_submitted(shell, manifest):
    """A wrong path, a link to a secret, a file that is no zip."""
    assert "nowhere: no such folder or zip file" in shell.fails("train", str(manifest), "nowhere")
    assert "not a zip file" in shell.fails("train", str(manifest), str(manifest))
    (manifest.parent / "key").symlink_to("/etc/hostname")
    assert "'key' is a symbolic link out of the code's folder" in shell.fails("train", str(manifest))
    with zipfile.ZipFile(shell.folder / "x.zip", "w") as archive:
        archive.writestr("train.py", "")
    shell.ffdl("train", str(manifest), "x.zip", "--dry-run")
    assert shell.ffdl("list", "-o", "name").stdout == ""


def test_paths_in_a_manifest_are_relative_to_it(shell, manifest):
    """A job's folder is moved and submitted from anywhere."""
    stores = {
        "id": "d",
        "type": "mount_volume",
        "training_data": {"container": "in"},
        "training_results": {"container": "out"},
        "connection": {"type": "host_mount", "path": "data"},
    }
    (manifest.parent / "data" / "in").mkdir(parents=True)
    manifest.write_text(MANIFEST + yaml.safe_dump({"data_stores": [stores]}))
    workflow = yaml.safe_load(shell.ffdl("train", "job/manifest.yml", "--dry-run").stdout)
    paths = {volume["hostPath"]["path"] for volume in workflow["spec"]["volumes"] if "hostPath" in volume}
    assert paths == {str(manifest.parent / "data" / "in"), str(manifest.parent / "data" / "out")}


def test_a_missing_cluster_is_told_at_once(shell, manifest):
    """Before anything is packed or sent."""
    words = (
        "no cluster is configured: there is no kubeconfig file (looked for ~/.kube/config); name one with --kubeconfig"
    )
    assert shell.fails("train", str(manifest), "--engine", "argo", code=4) == words
