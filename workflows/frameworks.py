"""The manifest's `framework`: one of the catalogue's or any image, and what runs for it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from .catalogue import CUSTOM, Choice, Entry, shipped
from .errors import nearest, shown
from .keys import CREDENTIAL, LINE, WRONG, Key, Part, PartOf, Value, Written, matching
from .tags import IMAGE, REGISTRY, REPOSITORY, TAG, meant
from .yaml_lines import Place, Report, Scalar, text


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
            "A framework of the catalogue, below, or of your site's (`ffdl frameworks` lists both); `custom`; with "
            "`image_location`, any image's name.",
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
    entry: Entry | None = None
    """What the catalogue has of `name`."""

    @classmethod
    def values(cls, read: dict[str, Any]) -> dict[str, Any]:
        return {**read, "command": str(read["command"]), "script": isinstance(read["command"], _Script)}

    @classmethod
    def check(cls, written: dict[str, Written], place: Place, path: str, report: Report) -> None:
        name, version = written.get("name"), written.get("version")
        if name is None or name.value is WRONG:
            return
        custom, own = name.value == CUSTOM, "image_location" in written
        catalogue = report.catalogue or shipped()
        entry = catalogue.entries.get(name.value)
        if not custom and entry is None and not (own and REPOSITORY.fullmatch(name.value)):
            near = nearest(name.value, catalogue.names)
            fix = (
                f"{near}, or custom with an image as version"
                if near
                else f"custom with an image as version (known: {', '.join(catalogue.names)})"
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
        elif entry is not None and not own:
            key = "image_tag" if "image_tag" in written else "version"
            tag = written.get(key)
            if tag is not None and tag.value is not WRONG and (choice := entry.choice(tag.value)).refused:
                report.say(
                    tag.at,
                    f"{path}.{key} is {shown(tag.value)}, which is not run any more: {choice.because}; "
                    f"write one that `ffdl frameworks {name.value}` lists",
                )


def image(framework: Framework) -> str:
    """The learner's image. With an `image_location` it is the one of the framework's name in that registry."""
    location = framework.image_location
    if location is None and (choice := _choice(framework)) is not None:
        return choice.image
    tag = framework.image_tag or framework.version
    name = framework.version if framework.name == CUSTOM else f"{framework.name}:{tag}"
    return f"{location.registry}/{location.namespace}/{name}" if location is not None else name


def warning(framework: Framework, here: bool = False) -> str:
    """What the user must know of the image, '' if nothing: that another one runs, or what the catalogue says of it.

    `here`: there are no images, learners run in a Python of this machine.
    """
    entry, choice = framework.entry, _choice(framework)
    if entry is None or choice is None:
        return ""
    name, version = framework.name, framework.version
    if choice.because:
        outdated = f"{name} {version} is outdated ({choice.because})"
        if here:
            return f"{outdated}; on this machine what runs is the {entry.module or name} of the learners' Python"
        return f"{outdated}; {choice.image} runs instead, unless the manifest says image_tag: {version}"
    return f"{name}: {entry.warning}" if entry.warning and not here else ""


def note(framework: Framework) -> str:
    """A word about a version that looks like a slip of the pen, else ''."""
    entry, tag = framework.entry, framework.image_tag or framework.version
    if entry is None or framework.image_location is not None or tag in (known := list(entry.known())):
        return ""
    near = meant(tag, known)
    return f"the catalogue has no {framework.name} {tag}; did you mean {near}?" if near else ""


def _choice(framework: Framework) -> Choice | None:
    """What the catalogue runs for it: an `image_tag` is taken as it is. None where it has no say."""
    entry = framework.entry
    if entry is None or framework.image_location is not None:
        return None
    if framework.image_tag is not None:
        return Choice(f"{entry.image}:{framework.image_tag}")
    return entry.choice(framework.version)
