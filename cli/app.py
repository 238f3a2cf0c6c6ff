"""The `ffdl` group: its verbs, loaded when used, and how errors become one line and an exit code."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import Any

import click

from .settings import INTERRUPTED, Settings, common_options

BAD_INPUT, UNAVAILABLE, BROKEN_PIPE = 2, 4, 141

SECTIONS: dict[str, dict[str, str]] = {
    "Write a job": {
        "init": "Make a folder with a job that runs as it stands.",
        "lint": "Say all that is wrong with manifests.",
        "compile": "Print the Argo Workflow that a manifest becomes.",
        "frameworks": "List the frameworks that a manifest may name.",
    },
    "Run it": {
        "train": "Submit a job.",
        "run": "Execute any Argo Workflow on this machine.",
        "halt": "Halt jobs: a checkpoint is kept, CPUs and GPUs are free.",
        "resume": "Let halted jobs go on from their checkpoints.",
        "stop": "End jobs for good; results so far are stored.",
        "resubmit": "Run a job again as a new one.",
        "wait": "Wait until a job has ended or is halted.",
    },
    "Look at it": {
        "list": "List jobs.",
        "show": "Show all about a job.",
        "status": "Print a job's state.",
        "logs": "Print what the learners wrote.",
        "metrics": "Print a job's metrics.",
        "events": "Print what happened to a job.",
        "graph": "Draw a Workflow, or a job with its states.",
    },
    "Afterwards": {
        "download": "Fetch results, code, model or checkpoint.",
        "delete": "Remove jobs; their results stay unless asked.",
    },
    "ffdl itself": {
        "doctor": "Check the engine: what is there, what is missing.",
        "engine": "Run the local engine as a service.",
        "images": "Build the images that jobs on a cluster use.",
        "version": "Print the version.",
        "completion": "Print a script that completes verbs and ids.",
    },
}
VERBS = {verb: words for section in SECTIONS.values() for verb, words in section.items()}
HIDDEN = ("sweep", "task")  # what pods run, not people
FFDL_VERBS = {
    "loglines": "logs",
    "emetrics": "metrics",
    "log": "logs",
    "ls": "list",
    "generate-completions": "completion",
}


class Verbs(click.Group):
    """Knows its verbs by name and imports one only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS and cmd_name not in HIDDEN:
            return None
        command: click.Command = importlib.import_module(f".{cmd_name}", __package__).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in VERBS and name not in HIDDEN and not ctx.resilient_parsing:
            raise click.UsageError(f"no verb is called {name!r}; {_suggestion(name)}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # caught here, because click would end with the code of a failed job
            return _broken_pipe()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, verbs in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(list(verbs.items()), col_max=12)


def _suggestion(name: str) -> str:
    if name in FFDL_VERBS:
        return f"it is `ffdl {FFDL_VERBS[name]}` here"
    import difflib

    near = difflib.get_close_matches(name, VERBS, n=1)
    return f"did you mean `ffdl {near[0]}`?" if near else "`ffdl --help` lists them"


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.pass_context
def app(ctx: click.Context) -> None:
    """Deep-learning training jobs, each one Argo Workflow, on this machine or a cluster.

    Jobs are named by id, by any unambiguous beginning of it (with or without `training-`), by the job's name, or as
    @latest. Of several jobs with one name the newest is meant; by halt, resume and stop, the only one not at its end;
    by delete, none.
    """


app.params.extend(common_options())
app.epilog = "First steps:  ffdl init hello && ffdl train hello/manifest.yml --follow"


def run(arguments: list[str] | None = None) -> int:
    """Runs `ffdl` and returns its exit code: 0 fine, 1 job failed, 2 bad input, 3 halted, 4 engine, 130 interrupted."""
    settings = Settings()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # it is closed
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (it stays open)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        result = app.main(arguments, prog_name="ffdl", standalone_mode=False, obj=settings)
        sys.stdout.flush()
    except Exception as error:  # noqa: BLE001 (the one place where an error becomes words)
        return _report(error, settings)
    except SystemExit as stop:  # shell completion ends like this
        return stop.code if isinstance(stop.code, int) else 0
    return result if isinstance(result, int) else 0


def _report(error: Exception, settings: Settings) -> int:
    if isinstance(error, BrokenPipeError):
        return _broken_pipe()
    if isinstance(error, click.Abort):
        return INTERRUPTED
    if settings.verbose:
        import traceback

        traceback.print_exception(error)
    lines, code = _words(error)
    for line in lines[:-1]:
        click.echo(line, err=True)
    click.secho("Error: ", fg="red", nl=False, err=True)
    click.echo(lines[-1], err=True)
    return code


def _broken_pipe() -> int:
    """Who read our output has gone (`ffdl logs ID | head`): nothing to say, as other programs do."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return BROKEN_PIPE


def _words(error: Exception) -> tuple[list[str], int]:
    """The lines to print, the last one as the error, and the exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return [error.ctx.get_help() if error.ctx else "", "a verb is missing"], BAD_INPUT
    if isinstance(error, click.UsageError):
        where = f" (`{error.ctx.command_path} --help` says how)" if error.ctx and error.ctx.parent else ""
        return [_one_line(error.format_message().rstrip(".")) + where], BAD_INPUT
    if isinstance(error, click.ClickException):
        return [_one_line(error.format_message())], BAD_INPUT
    problems = getattr(error, "problems", None)
    if problems:
        lines = [str(problem) for problem in problems]
        return lines if len(lines) == 1 else [*lines, f"{len(lines)} problems, nothing was done"], BAD_INPUT
    code = getattr(error, "exit_code", None)
    if isinstance(code, int):
        return [_one_line(str(error))], code
    if isinstance(error, OSError) and error.filename is not None:
        return [f"{os.fsdecode(error.filename)}: {error.strerror}"], BAD_INPUT
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ["the disk is full: where FFDL_HOME is (`ffdl delete` helps), or where this output goes"], UNAVAILABLE
    if isinstance(error, ValueError) and type(error) is not ValueError:
        return [_one_line(str(error))], BAD_INPUT
    return [f"{type(error).__name__}: {_one_line(str(error))} (a fault of ffdl's own; -v shows where)"], UNAVAILABLE


def _one_line(text: Any) -> str:
    return " ".join(str(text).split())
