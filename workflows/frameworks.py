"""The frameworks a manifest may name: the image of each, the Python module a learner needs of it, how to get that.

And the manifest's `framework`, which chooses one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from .errors import nearest, shown
from .keys import CREDENTIAL, LINE, WRONG, Key, Part, PartOf, Value, Written, matching
from .yaml_lines import Place, Report, Scalar, text

CUSTOM = "custom"


@dataclass(frozen=True)
class Entry:
    """`repository` is FfDL's; `module` is imported by the training script; `install` is the command that brings it."""

    repository: str
    module: str | None
    install: str


CATALOGUE = {
    "tensorflow": Entry("tensorflow/tensorflow", "tensorflow", "pip install tensorflow"),
    "pytorch": Entry("pytorch/pytorch", "torch", "pip install torch"),
    "caffe": Entry("bvlc/caffe", "caffe", "conda install -c conda-forge caffe"),
    "caffe2": Entry("caffe2ai/caffe2", "caffe2", "pip install 'torch<2', which holds caffe2"),
    "h2o3": Entry("opsh2oai/h2o3-ffdl", "h2o", "pip install h2o"),
    "horovod": Entry("uber/horovod", "horovod", "pip install horovod"),
    "pytorchmpi": Entry("tomcli/pytorch", "torch", "pip install torch"),
    "numpy": Entry("ffdl-learner-numpy", "numpy", "pip install numpy"),
    CUSTOM: Entry("", None, ""),
}

_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_PART = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}"
TAG = re.compile(_TAG)
REGISTRY = re.compile(rf"{_PART}(?::[0-9]{{1,5}})?")
REPOSITORY = re.compile(rf"{_PART}(?:/{_PART}){{0,8}}")
IMAGE = re.compile(rf"(?:{REGISTRY.pattern}/)?{REPOSITORY.pattern}(?::{_TAG})?(?:@sha256:[0-9a-f]{{64}})?")


class _Script(str):
    """A command from a literal block."""


def _command(node: Scalar) -> str:
    """FfDL put a command on one line; a literal block is a script and stays as it is."""
    command = text(node)
    return _Script(command) if node.style == "|" else command.replace("\n", " ").strip()


_COMMAND = Value("a command", _command)
_REGISTRY = matching(REGISTRY, "a registry's address", "registry.example.org:5000")
_NAMESPACE = matching(REPOSITORY, "an image's name", "my-team")
_IMAGE_TAG = matching(TAG, "an image's tag", "latest")


class ImageLocation(Part):
    title: ClassVar[str] = "in framework.image_location"

    registry: Annotated[
        str,
        Key(
            _REGISTRY,
            "Address of the registry.",
            missing="{path}.registry is not set; write its address",
        ),
    ]
    namespace: Annotated[
        str,
        Key(_NAMESPACE, "Namespace in it.", missing="{path}.namespace is not set; write its name"),
    ]
    access_token: Annotated[str | None, Key(CREDENTIAL, "Token that may pull the image.")] = None
    email: Annotated[str | None, Key(LINE, "Address that goes with the token.")] = None


class Framework(Part):
    title: ClassVar[str] = "in framework"
    refused: ClassVar[dict[str, str]] = {"image": "is no key; write name: custom and version: IMAGE"}

    name: Annotated[
        str,
        Key(
            LINE,
            "One of " + ", ".join(f"`{name}`" for name in CATALOGUE) + "; with `image_location`, any image's name.",
            missing="Framework name is not set; write name: numpy, or another framework",
        ),
    ]
    version: Annotated[
        str,
        Key(
            LINE,
            "Version of the framework, the tag of its image; with `custom`, the whole image.",
            missing="Framework version is not set; write version: latest, or the tag of an image",
        ),
    ]
    command: Annotated[
        str,
        Key(
            _COMMAND,
            "What each learner runs, with bash, in the folder of the code. Folded and quoted text is one line; "
            "a literal block (`|`) is a script and kept as it is.",
            missing="Training command is not set; write command: python train.py",
        ),
    ]
    script: bool = False
    """`command` is a literal block."""
    image_tag: Annotated[str | None, Key(_IMAGE_TAG, "Tag of the image, where it is not `version`.")] = None
    image_location: Annotated[ImageLocation | None, Key(PartOf(ImageLocation), "A registry of your own.")] = None

    @classmethod
    def values(cls, read: dict[str, Any]) -> dict[str, Any]:
        return {**read, "command": str(read["command"]), "script": isinstance(read["command"], _Script)}

    @classmethod
    def check(cls, written: dict[str, Written], place: Place, path: str, report: Report) -> None:
        name, version = written.get("name"), written.get("version")
        if name is None or name.value is WRONG:
            return
        custom, own = name.value == CUSTOM, "image_location" in written
        if name.value not in CATALOGUE and not (own and REPOSITORY.fullmatch(name.value)):
            near = nearest(name.value, CATALOGUE)
            fix = (
                f"{near}, or custom with an image as version"
                if near
                else f"custom with an image as version (known: {', '.join(CATALOGUE)})"
            )
            report.say(name.at, f"{path}.name is {shown(name.value)}, which is unknown; write {fix}")
        if version is not None and version.value is not WRONG:
            pattern, what = (IMAGE, "the name of an image") if custom else (TAG, "the tag of an image")
            if not pattern.fullmatch(version.value):
                example = "pytorch/pytorch:latest" if custom else "latest"
                report.say(
                    version.at, f"{path}.version is {shown(version.value)}, not {what}; write one such as {example}"
                )
        if custom and "image_tag" in written:
            report.say(
                written["image_tag"].place, f"{path}.image_tag is not used with custom; write the tag in version"
            )


def image(framework: Framework) -> str:
    """The learner's image. With an `image_location` it is the one of the framework's name in that registry."""
    tag = framework.image_tag or framework.version
    known = CATALOGUE.get(framework.name)
    location = framework.image_location
    if framework.name == CUSTOM:
        name = framework.version
    elif location is not None or known is None:
        name = f"{framework.name}:{tag}"
    else:
        name = f"{known.repository}:{tag}"
    return f"{location.registry}/{location.namespace}/{name}" if location is not None else name
