"""What the command says of itself, and what it imports to say it."""

import json
import subprocess
import sys

import pytest

from ffdl.cli.app import SECTIONS, VERBS

WANTED = ["init", "lint", "compile", "train", "list", "show", "status", "logs", "metrics", "events", "halt", "resume"]
WANTED += [
    "run",
    "graph",
    "stop",
    "resubmit",
    "delete",
    "download",
    "wait",
    "doctor",
    "engine",
    "images",
    "frameworks",
    "version",
    "completion",
]


def test_every_verb_is_there_and_listed(shell):
    """`ffdl --help` is where a user begins."""
    assert sorted(VERBS) == sorted(WANTED)
    text = shell.ffdl("--help").stdout
    for title, verbs in SECTIONS.items():
        assert f"\n{title}:\n" in text
        for verb in verbs:
            assert f"\n  {verb} " in text


@pytest.mark.parametrize("verb", WANTED)
def test_every_verbs_help_has_an_example_and_fits_a_terminal(shell, verb):
    """An example is read before the options; lines that wrap are not."""
    text = shell.ffdl(verb, "--help").stdout
    assert f"\n  ffdl {verb}" in text or f"$(ffdl {verb}" in text
    assert max(map(len, text.splitlines())) <= 80
    assert shell.ffdl(verb, "-h").stdout == text


def test_a_verbs_short_help_says_what_its_own_help_says(shell):
    """The list is written apart from the verbs so that they need not be imported; the two must not part."""
    for verb in WANTED:
        text = shell.ffdl(verb, "--help").stdout
        first, second = (words.split()[0].lower() for words in (VERBS[verb], text.split("\n\n")[1]))
        assert first == second, verb


def test_help_imports_nothing_heavy():
    """`ffdl --help` and completion must feel instant: Hera alone takes most of a second."""
    code = (
        "import sys, json\n"
        "from ffdl.cli.app import run\n"
        "for verb in sys.argv[1:]: run([verb, '--help'])\n"
        "json.dump(sorted(sys.modules), sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *WANTED], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stderr))
    heavy = {"hera", "pydantic", "kubernetes", "rich", "yaml", "numpy", "obstore", "minio", "zipfile", "asyncio"}
    assert not loaded & heavy
    assert not any(name.startswith(("ffdl.engines", "ffdl.workflows")) for name in loaded)


def test_importing_ffdl_loads_nothing():
    """A notebook that says `import ffdl` must not wait for what it may never use."""
    code = "import sys, {}; print(*sys.modules)"
    click, ffdl = (
        set(subprocess.run([sys.executable, "-c", code.format(name)], capture_output=True, text=True).stdout.split())
        for name in ("click", "ffdl")
    )
    assert ffdl - click == {"ffdl"}


def test_no_verb_shows_the_help_and_is_bad_usage(shell):
    """A script whose variable was empty must not take that for success."""
    done = shell.ffdl(code=2)
    assert "Usage: ffdl" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("verb", "words"),
    [("lst", "`ffdl list`"), ("loglines", "`ffdl logs`"), ("emetrics", "`ffdl metrics`"), ("xyzzy", "`ffdl --help`")],
)
def test_an_unknown_verb_gets_a_suggestion(shell, verb, words):
    """FfDL's users type FfDL's verbs."""
    assert words in shell.fails(verb)


def test_the_version_is_printed(shell):
    """Bug reports begin with it."""
    assert shell.ffdl("version").stdout.startswith("ffdl 0.")


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed(shell, name):
    """`eval "$(ffdl completion bash)"` in a profile is all that users want to do for it."""
    assert "_FFDL_COMPLETE" in shell.ffdl("completion", name).stdout


def complete(shell, words):
    env = {"_FFDL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    return [line.partition(",")[2] for line in shell.ffdl(**env).stdout.split()]


def test_verbs_options_and_ids_are_completed(shell):
    """Nobody types `training-xly5uxh4ck`."""
    shell.job("training-aaaaaaaaaa")
    shell.job("training-bbbbbbbbbb", state="COMPLETED")
    assert complete(shell, "ffdl re") == ["resume", "resubmit"]
    assert complete(shell, "ffdl logs --f") == ["--follow"]
    assert complete(shell, "ffdl show ") == ["training-bbbbbbbbbb", "training-aaaaaaaaaa", "@latest"]
    assert complete(shell, "ffdl delete training-aaaaaaaaaa training-b") == ["training-bbbbbbbbbb"]


def test_completion_is_silent_where_the_engine_fails(shell):
    """An error in the middle of a command line that is being typed helps nobody."""
    shell.home.write_text("not a folder")
    assert complete(shell, "ffdl show ") == []
