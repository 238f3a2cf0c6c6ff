"""Which engine, which job, which words for an error: what all verbs share."""

import pytest


def test_flag_goes_before_environment_before_config_file(shell):
    """A default in a file, another for a session, a third for one command."""
    shell.job("training-aaaaaaaaaa")
    assert "no cluster is configured" in shell.fails("list", code=4, FFDL_ENGINE="argo")
    assert shell.ffdl("list", "-o", "name", "--engine", "local", FFDL_ENGINE="argo").stdout == "training-aaaaaaaaaa\n"
    (shell.folder / ".config" / "ffdl").mkdir(parents=True)
    (shell.folder / ".config" / "ffdl" / "config.yml").write_text("engine: argo\nnamespace: team\n")
    shell.fails("list", code=4)
    assert shell.ffdl("list", "-o", "name", FFDL_ENGINE="local").stdout == "training-aaaaaaaaaa\n"


def test_options_may_stand_before_the_verb_or_after_it(shell):
    """Both are habits; the one nearer to the verb holds."""
    assert "no cluster is configured" in shell.fails("--engine", "argo", "list", code=4)
    shell.ffdl("--engine", "argo", "list", "--engine", "local")


def test_a_cluster_is_chosen_by_flag_environment_or_file(shell):
    """Who works on several clusters sets each where it suits; nothing of it may be passed over in silence."""
    kubeconfig = shell.folder / "clusters"
    kubeconfig.write_text("contexts: [{name: home, context: {cluster: c}}]\ncurrent-context: away\n")
    asked = ("list", "--engine", "argo")
    assert "no context is called 'away'; there are home" in shell.fails(*asked, code=4, FFDL_KUBECONFIG=str(kubeconfig))
    assert "no context is called 'x'" in shell.fails(*asked, "--context", "x", code=4, KUBECONFIG=str(kubeconfig))
    assert "there is no kubeconfig file nowhere" in shell.fails(
        *asked, "--kubeconfig", "nowhere", code=4, FFDL_KUBECONFIG=str(kubeconfig)
    )
    (shell.folder / ".config" / "ffdl").mkdir(parents=True)
    (shell.folder / ".config" / "ffdl" / "config.yml").write_text(f"context: y\nkubeconfig: {kubeconfig}\n")
    assert "no context is called 'y'" in shell.fails(*asked, code=4)


def test_the_config_file_of_xdg_is_read(shell):
    """Users who moved their configuration expect it to be found there."""
    folder = shell.folder / "elsewhere" / "ffdl"
    folder.mkdir(parents=True)
    (folder / "config.yml").write_text("engine: argo\n")
    shell.fails("list", code=4, XDG_CONFIG_HOME=str(folder.parent))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("engin: local\n", "unknown key 'engin'; it may say engine, namespace, context, kubeconfig and catalogue"),
        ("engine: 3\n", "engine must be a word, not 3"),
        ("- engine\n", "must be keys and values"),
        ("engine: [\n", "not YAML"),
        ("engine: mesos\n", "no engine is called 'mesos'; there are local and argo"),
    ],
)
def test_a_wrong_config_file_is_an_error_with_its_name(shell, text, words):
    """A misspelt key that is passed over sends jobs to the wrong place."""
    (shell.folder / ".config" / "ffdl").mkdir(parents=True)
    (shell.folder / ".config" / "ffdl" / "config.yml").write_text(text)
    assert words in shell.fails("list")


def test_a_namespace_without_effect_is_told(shell):
    """-n on the local engine looks as if it chose something."""
    done = shell.ffdl("list", "-n", "team")
    assert "-n changes nothing" in done.stderr
    assert "--context changes nothing" in shell.ffdl("list", "--context", "team").stderr
    assert "-n" not in shell.ffdl("list", FFDL_NAMESPACE="team").stderr


def test_a_job_is_found_by_what_people_type(shell):
    """Whole ids, beginnings with and without `training-`, a name, and the newest."""
    first = shell.job("training-abcdefghij", name="first job")
    second = shell.job("training-abxyzxyzxy", name="second")
    for text in (first, "training-abc", "abc", "first job"):
        assert shell.ffdl("show", text, "-o", "name").stdout.strip() == first
    assert shell.ffdl("show", "@latest", "-o", "name").stdout.strip() == second


def test_a_name_goes_before_the_beginning_of_another_jobs_id(shell):
    """`ffdl stop q` means the job called q, not the one whose random id happens to begin like that."""
    shell.job("training-qqqqqqqqqq", name="other")
    named = shell.job("training-aaaaaaaaaa", name="q")
    assert shell.ffdl("show", "q", "-o", "name").stdout.strip() == named
    assert shell.ffdl("show", "qq", "-o", "name").stdout.strip() == "training-qqqqqqqqqq"


def test_what_means_several_jobs_or_none_is_refused(shell):
    """Halting or deleting the wrong one can't be undone."""
    shell.job("training-abcdefghij", name="same")
    shell.job("training-abxyzxyzxy", name="same")
    words = "may be any of 2 jobs: training-abxyzxyzxy, training-abcdefghij; give an id"
    assert shell.fails("show", "ab") == f"'ab' {words}"
    assert shell.fails("stop", "same") == f"'same' {words}"
    assert shell.fails("show", "training-zz") == "no job 'training-zz'; `ffdl list -a` shows all"
    assert shell.fails("show", "") == "an empty job id"
    assert shell.fails("show", "../../etc") == "no job '../../etc'; `ffdl list -a` shows all"


def test_a_name_means_the_newest_of_its_jobs_or_the_one_that_has_not_ended(shell):
    """Whoever works on a script trains under one name all day."""
    shell.job("training-aaaaaaaaaa", name="same", ago=90, state="FAILED")
    halted = shell.job("training-bbbbbbbbbb", name="same", ago=60, state="HALTED")
    newest = shell.job("training-cccccccccc", name="same", state="COMPLETED")
    assert shell.ffdl("show", "same", "-o", "name").stdout.strip() == newest
    assert f"{halted} goes on" in shell.ffdl("resume", "same").stderr
    assert "may be any of 3 jobs" in shell.fails("delete", "same")


def test_of_jobs_that_have_all_ended_the_newest_is_named_when_one_is_to_be_changed(shell):
    """`ffdl halt` was too late, and says for which."""
    shell.job("training-aaaaaaaaaa", name="same", ago=90, state="FAILED")
    newest = shell.job("training-cccccccccc", name="same", state="COMPLETED")
    assert newest in shell.fails("halt", "same")


def test_latest_without_jobs_says_how_to_get_one(shell):
    """The first command of a new user may be `ffdl logs @latest`."""
    assert shell.fails("logs", "@latest") == "there is no job yet; `ffdl init NAME` makes one to try"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("show",), "Missing argument 'ID' (`ffdl show --help` says how)"),
        (("list", "--frob"), "No such option"),
        (("list", "-o", "xml"), "'xml' is not one of"),
        (("wait", "x", "--timeout", "soon"), "'soon' is not a duration; write it like 90s, 10m or 1h30m"),
        (("train", "missing.yml"), "missing.yml: No such file or directory"),
        (("train", "."), "is a folder; name the manifest in it"),
        (("logs", "x", "--learner", "0"), "0 is not in the range x>=1"),
    ],
)
def test_bad_usage_is_one_line_and_code_2(shell, arguments, words):
    """Scripts tell a mistyped command from a failed job by the code, people by the line."""
    assert words in shell.fails(*arguments)


def test_verbose_shows_where_an_error_came_from(shell):
    """For a bug report, and only when asked."""
    import subprocess

    from tests.cli.shell import FFDL

    done = subprocess.run(
        [FFDL, "-v", "show", "x"], env=shell.env, cwd=shell.folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert done.stderr.endswith("Error: no job 'x'; `ffdl list -a` shows all\n")


def test_an_engine_that_cannot_work_is_code_4(shell):
    """A script may try again later; a failed job it may not."""
    shell.home.write_text("not a folder")
    assert "can't be used" in shell.fails("list", code=4)


def test_a_reader_that_goes_away_is_no_error(shell):
    """`ffdl list | head -1` must not end in words about a pipe."""
    import subprocess

    from tests.cli.shell import FFDL

    for number in range(40):
        shell.job(f"training-aaaaaaaa{number:02}", name="x" * 4000)
    command = f"{FFDL} list -a; echo code $? >&2"
    done = subprocess.run(
        ["bash", "-c", f"({command}) | head -c 10"], env=shell.env, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == "code 141\n"
