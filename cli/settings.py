"""What every verb shares: which engine, which job. Flags go before the environment, that before the config file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ..engines.base import Engine
    from ..engines.status import JobStatus
    from ..workflows.catalogue import Catalogue

FINE, JOB_FAILED, HALTED_CODE, INTERRUPTED = 0, 1, 3, 130
ENGINES = ("local", "argo")
CLUSTER_KEYS = ("namespace", "context", "kubeconfig")
CONFIG_KEYS = ("engine", *CLUSTER_KEYS, "catalogue")
_KNOWN = f"{', '.join(CONFIG_KEYS[:-1])} and {CONFIG_KEYS[-1]}"
LATEST = "@latest"
Meant = Literal["newest", "unfinished", "only"]
F = TypeVar("F", bound=Callable[..., Any])


class Settings:
    """The choices that hold for one run of `ffdl`."""

    def __init__(self) -> None:
        self.flags: dict[str, str] = {}
        self.verbose = False
        self._engine: Engine | None = None
        self._catalogue: Catalogue | None = None
        self._config: dict[str, str] | None = None

    def value(self, key: str) -> str | None:
        """One of CONFIG_KEYS, from a flag, a variable such as FFDL_ENGINE, or the config file."""
        return self.flags.get(key) or os.environ.get(f"FFDL_{key.upper()}") or self._from_config(key)

    def engine(self, python: str | None = None) -> Engine:
        """The engine that is wanted; `python` is what its learners run in, for those that take one."""
        if self._engine is None:
            from ..engines.client import open_engine

            name = self.value("engine") or "local"
            if name not in ENGINES:
                raise click.ClickException(f"no engine is called {name!r}; there are {' and '.join(ENGINES)}")
            if name == "local":
                for key in CLUSTER_KEYS:
                    if key in self.flags:
                        flag = "-n" if key == "namespace" else f"--{key}"
                        tell(f"Note: the local engine has no {key}; {flag} changes nothing")
                self._engine = open_engine(name, python=python)
            else:
                namespace, context, kubeconfig = map(self.value, CLUSTER_KEYS)
                self._engine = open_engine(name, namespace=namespace, context=context, kubeconfig=kubeconfig)
        return self._engine

    def catalogue(self) -> Catalogue:
        """The frameworks there are: ffdl's, and those in the file that the setting `catalogue` names."""
        if self._catalogue is None:
            from ..engines.catalogue import read_catalogue

            self._catalogue = read_catalogue(self.value("catalogue"))
        return self._catalogue

    def find(self, text: str, meant: Meant = "newest") -> str:
        """The id of the one job that `text` means: an id, @latest, a job's whole name, or a beginning of an id.

        Of several jobs with one name it is the newest for who only looks; `meant="unfinished"` is for what changes a
        job: the only one that has not ended, else refused; `meant="only"` for what can't be undone: always refused.
        """
        from ..engines.base import NoSuchJob

        engine = self.engine()
        ids = engine.ids()
        if text == LATEST:
            if not ids:
                raise NoSuchJob("there is no job yet; `ffdl init NAME` makes one to try")
            return ids[0]
        if text in ids:
            return text
        if not text:
            raise click.ClickException("an empty job id")
        matches = [] if text.startswith("training-") else _meant(text, engine.list(), meant)
        matches = matches or [job_id for job_id in ids if job_id.startswith((text, f"training-{text}"))]
        if not matches:
            raise NoSuchJob(f"no job {text!r}; `ffdl list -a` shows all")
        if len(matches) > 1:
            some = ", ".join(matches[:4]) + (", …" if len(matches) > 4 else "")
            raise click.ClickException(f"{text!r} may be any of {len(matches)} jobs: {some}; give an id")
        return matches[0]

    def _from_config(self, key: str) -> str | None:
        if self._config is None:
            self._config = _read_config()
        return self._config.get(key)


def _meant(name: str, jobs: Sequence[JobStatus], meant: Meant) -> list[str]:
    """The ids of those of the jobs, newest first, that somebody may mean by this name."""
    named = [job for job in jobs if job.name == name]
    if meant == "unfinished":
        named = [job for job in named if not job.terminal] or named[:1]
    return [job.id for job in (named[:1] if meant == "newest" else named)]


def config_file() -> str:
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "ffdl", "config.yml")


def _read_config() -> dict[str, str]:
    path = config_file()
    if not os.path.exists(path):
        return {}
    import yaml

    try:
        with open(path, encoding="utf-8") as stream:
            values = yaml.safe_load(stream) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise click.ClickException(f"{path}: must be keys and values; it may say {_KNOWN}")
    for key, value in values.items():
        if key not in CONFIG_KEYS:
            raise click.ClickException(f"{path}: unknown key {key!r}; it may say {_KNOWN}")
        if not isinstance(value, str):
            raise click.ClickException(f"{path}: {key} must be a word, not {value!r}")
    return values


def tell(message: str) -> None:
    """Talk goes to stderr: stdout is for data."""
    click.echo(message, err=True)


def on_terminal(stream: Any) -> bool:
    """Whether colours and progress make sense there."""
    return bool(stream.isatty()) and os.environ.get("TERM") != "dumb"


def _remember(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    settings = ctx.find_object(Settings)
    if settings is None or not value:
        return
    if parameter.name == "verbose":
        settings.verbose = True
    elif parameter.name is not None:
        settings.flags[parameter.name] = value


def common_options() -> list[click.Parameter]:
    """Options that stand before the verb or after it."""
    return [
        click.Option(
            ["--engine"], type=click.Choice(ENGINES), expose_value=False, callback=_remember,
            help="Where jobs run (also FFDL_ENGINE; default: local).",
        ),
        click.Option(
            ["-n", "--namespace"], metavar="NAME", expose_value=False, callback=_remember,
            help="A cluster's namespace (also FFDL_NAMESPACE; default: the context's).",
        ),
        click.Option(
            ["--context"], metavar="NAME", expose_value=False, callback=_remember,
            help="Which cluster of the kubeconfig, and as whom (also FFDL_CONTEXT).",
        ),
        click.Option(
            ["--kubeconfig"], metavar="FILE", expose_value=False, callback=_remember,
            help="Where clusters are described (also FFDL_KUBECONFIG; default: KUBECONFIG, ~/.kube/config).",
        ),
        click.Option(
            ["-v", "--verbose"], is_flag=True, expose_value=False, callback=_remember,
            help="Say where in the program an error came from.",
        ),
    ]  # fmt: skip


class Verb(click.Command):
    """A command with the common options and examples of its use."""

    def __init__(self, *arguments: Any, examples: tuple[str, ...] = (), engine: bool = True, **keywords: Any) -> None:
        keywords["params"] = [*keywords.get("params", ()), *(common_options() if engine else common_options()[-1:])]
        super().__init__(*arguments, **keywords)
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples" if len(self.examples) > 1 else "Example"):
            for example in self.examples:
                formatter.write(f"  {example}\n")


def complete_ids(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Job ids for the shell, with state and name; nothing at all if the engine can't be asked."""
    from click.shell_completion import CompletionItem

    settings = ctx.find_object(Settings) or Settings()
    try:
        statuses = settings.engine().list()
    except Exception:  # noqa: BLE001 (a message would garble the user's command line)
        return []
    items = [CompletionItem(s.id, help=f"{s.state} {s.name}") for s in statuses]
    items.append(CompletionItem(LATEST, help="the newest job"))
    return [item for item in items if item.value.startswith(incomplete)]


def complete_files_and_ids(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Job ids as long as one begins so, else files."""
    from click.shell_completion import CompletionItem

    return (complete_ids(ctx, parameter, incomplete) if incomplete else []) or [CompletionItem(incomplete, type="file")]


job_argument = click.argument("job_id", metavar="ID", type=click.STRING, shell_complete=complete_ids)
jobs_argument = click.argument("job_ids", metavar="ID...", nargs=-1, required=True, shell_complete=complete_ids)


def output_option(*formats: str) -> Callable[[F], F]:
    return click.option(
        "-o",
        "--output",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="The form of the output.",
    )


UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(text: str) -> float:
    """An option's type: `90`, `90s`, `10m`, `1h30m`, `2d` -> seconds."""
    import re

    pieces = re.findall(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)", text)
    if not pieces or "".join(number + unit for number, unit in pieces) != text:
        raise click.BadParameter(f"{text!r} is not a duration; write it like 90s, 10m or 1h30m")
    return sum(float(number) * UNITS[unit or "s"] for number, unit in pieces)
