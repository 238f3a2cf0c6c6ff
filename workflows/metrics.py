"""The `evaluation_metrics` of a manifest: which collector reads a learner's logs, and what it looks for."""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from typing import Annotated, ClassVar

from pydantic import Field

from .errors import nearest, shown
from .keys import LINE, TEXT, WRONG, Key, ListOf, MapOf, Part, PartOf, Value, Written, choice, whole
from .yaml_lines import Place, Report, Scalar, text

LOGGER, REGEX = "logger", "regex_extractor"
TYPES = (
    LOGGER,
    "none",
    "null",
    "nil",
    REGEX,
    "tensorboard",
    "tensorboard_extractor",
    "emetrics_file",
    "optivist",
    "file",
)
MACROS = ("GLOG_STAMP", "TIMESTAMP", "FLOAT", "INT", "INT_ANY", "HEX")
MOST_REGEX = 2000
_MACRO = re.compile(r"%\{([A-Za-z0-9_]+)(?::([A-Za-z0-9_]+))?\}")


@lru_cache(maxsize=128)
def _compiled(written: str) -> re.Pattern[str]:
    """`written` with each macro standing for something, for its groups. Raises ValueError."""
    for name, _ in _MACRO.findall(written):
        if name not in MACROS:
            raise ValueError(
                f"has the macro {shown(name)}, which is unknown; write {nearest(name, MACROS) or ', '.join(MACROS)}"
            )
    plain = _MACRO.sub(lambda macro: f"(?P<{macro[2]}>.)" if macro[2] else "(?:.)", written)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(plain, re.MULTILINE | re.DOTALL)
    except (re.error, OverflowError, RecursionError) as error:
        why = getattr(error, "msg", None) or str(error)
        raise ValueError(f"is {shown(written)}, not a regular expression ({why}); correct it") from None


def _regex(node: Scalar) -> str:
    written = text(node)
    if len(written) > MOST_REGEX:
        raise ValueError(f"has {len(written)} characters; write at most {MOST_REGEX}, or several groups")
    _compiled(written)
    return written


class TypedValue(Part):
    title: ClassVar[str] = "in a scalar or etime of evaluation_metrics.groups"

    type: Annotated[str, Key(choice("INT", "FLOAT", "STRING", "JSONSTRING"), "Type of the value.")] = "STRING"
    value: Annotated[
        str,
        Key(
            TEXT,
            "The value, or `$name` for what the named group of `regex` matched.",
            missing="{path}.value is not set; write value: $NAME",
        ),
    ]


class Meta(Part):
    title: ClassVar[str] = "in the meta of evaluation_metrics.groups"

    time: Annotated[str | None, Key(LINE, "Accepted as in FfDL; a record's time is when its line was read.")] = None
    subid: Annotated[str | None, Key(LINE, "Names a series of records, such as `train` and `test`.")] = None


VALUES = MapOf(PartOf(TypedValue), "{loss: {type: FLOAT, value: $loss}}")


class Group(Part):
    title: ClassVar[str] = "in evaluation_metrics.groups"

    regex: Annotated[
        str | None,
        Key(
            Value("a regular expression", _regex),
            "`regex_extractor`: what a record looks like, as a Python regular expression matched from a line's start; "
            f"`%{{NAME}}` and `%{{NAME:group}}` stand for {', '.join(MACROS)}.",
        ),
    ] = None
    meta: Annotated[Meta | None, Key(PartOf(Meta), "About the records of this group.")] = None
    scalars: Annotated[dict[str, TypedValue], Key(VALUES, "The values of a record.", also=("values",))] = Field(
        default_factory=dict
    )
    etimes: Annotated[dict[str, TypedValue], Key(VALUES, "When: iteration, epoch, …")] = Field(default_factory=dict)

    @classmethod
    def check(cls, written: dict[str, Written], place: Place, path: str, report: Report) -> None:
        regex = written["regex"].value if "regex" in written else None
        if not isinstance(regex, str):
            return
        groups = _compiled(regex).groupindex
        for key in ("scalars", "etimes"):
            values = written[key].value if key in written else WRONG
            for name, each in values.items() if isinstance(values, dict) else ():
                group = each.value.removeprefix("$")
                if each.value.startswith("$") and group.isidentifier() and group not in groups:
                    fix = nearest(group, groups)
                    report.say(
                        written[key].place,
                        f"{path}.{key}.{name}.value is {shown(each.value)}, and regex has no group of that name; "
                        f"write {'$' + fix if fix else '(?P<' + group + '>…) in regex'}",
                    )


class EvaluationMetrics(Part):
    title: ClassVar[str] = "in evaluation_metrics"

    type: Annotated[
        str,
        Key(
            choice(*TYPES),
            "How metrics are found: `regex_extractor` in log lines, `emetrics_file` (or `file`, `optivist`) in "
            "`$LOG_DIR/evaluation-metrics.txt`, `tensorboard` (or `tensorboard_extractor`) in its event files; "
            "`logger` (or `none`, `null`, `nil`) not at all.",
        ),
    ] = LOGGER
    image_tag: Annotated[
        str | None, Key(LINE, "Accepted as in FfDL, where it chose the collector's image; not used.")
    ] = None
    in_: Annotated[str | None, Key(LINE, "Folder of the learner to look in, such as `$JOB_STATE_DIR/logs/tb`.")] = (
        Field(default=None, alias="in")
    )
    event_types: Annotated[
        tuple[str, ...],
        Key(ListOf(LINE, "[scalars]"), "Accepted as in FfDL; only scalars are read.", also=("eventTypes",)),
    ] = ()
    line_lookahead: Annotated[int, Key(whole(1, 1000), "`regex_extractor`: lines one match may span.")] = 4
    groups: Annotated[
        dict[str, Group],
        Key(MapOf(PartOf(Group), "{train: {regex: …, scalars: …}}"), "`regex_extractor`: what to look for, by label."),
    ] = Field(default_factory=dict)

    @classmethod
    def check(cls, written: dict[str, Written], place: Place, path: str, report: Report) -> None:
        if "type" not in written or written["type"].value != REGEX:
            return
        if "groups" not in written:
            report.say(place, f"{path}.groups is not set; write groups: with a label, its regex and its scalars")
        elif isinstance(groups := written["groups"].value, dict):
            for label, group in groups.items():
                if group.regex is None:
                    report.say(
                        written["groups"].place,
                        f"{path}.groups.{label}.regex is not set; write the expression to look for",
                    )
