"""`ffdl images`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .settings import Settings, Verb, tell

if TYPE_CHECKING:
    from ..images.builder import Builder

BASE = "docker.io/library/debian:bookworm-slim"
REGISTRY = "localhost"


@click.group("images", epilog="\b\nExample:\nffdl images build")
def command() -> None:
    """Build the images that jobs on a cluster use."""


@command.command(
    "build",
    cls=Verb,
    engine=False,
    examples=(
        "ffdl images build                                          # steps, agent, learner-numpy",
        "ffdl images build --registry registry.example.org/ml --push",
        "ffdl images build --archive images/                        # files for `ctr -n k8s.io images import`",
        "ffdl images build learner-pytorch --base docker.io/library/debian:trixie-slim",
    ),
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--registry", default=REGISTRY, show_default=True, metavar="ADDRESS", help="What image names begin with.")
@click.option("--tag", metavar="TAG", help="The images' tag (default: the version of ffdl).")
@click.option("--base", default=BASE, show_default=True, metavar="IMAGE", help="A Debian with Python 3.11 or newer.")
@click.option("--push", is_flag=True, help="Send them to the registry.")
@click.option("--insecure", is_flag=True, help="The registry may speak plain HTTP, its certificate may be anyone's.")
@click.option("--archive", type=click.Path(path_type=Path), metavar="FOLDER", help="Write each to a file in FOLDER.")
@click.option("--builder", type=click.Choice(("buildah", "docker")), help="Build with this (default: what works).")
@click.pass_obj
def build(
    settings: Settings,
    names: tuple[str, ...],
    registry: str,
    tag: str | None,
    base: str,
    push: bool,
    insecure: bool,
    archive: Path | None,
    builder: str | None,
) -> None:
    """Build images: steps, agent and learner-numpy, or those named; learner-pytorch is the fourth.

    Built from the ffdl that runs this, with buildah or docker. What pip here is told of indexes, proxies and
    certificates holds for the builds and is not kept in the images.
    """
    from importlib.metadata import version

    from ..images.builder import find_builder
    from ..images.context import BY_DEFAULT, IMAGES

    for name in names:
        if name not in IMAGES:
            raise click.ClickException(f"no image is called {name!r}; there are {', '.join(IMAGES)}")
    tag = tag or version("ffdl")
    if push and registry == REGISTRY:
        raise click.ClickException("--push needs --registry: the address that the cluster pulls from")
    if archive is not None:
        archive.mkdir(parents=True, exist_ok=True)
    found = find_builder(builder, settings.verbose)
    images = {name: f"{registry}/ffdl-{name}:{tag}" for name in names or BY_DEFAULT}
    _build(found, images, base)
    for name, image in images.items():
        if archive is not None:
            file = archive / f"ffdl-{name}.tar"
            found.archive(image, file)
            tell(f"wrote {file} ({file.stat().st_size / 1e6:.0f} MB)")
        if push:
            found.push(image, insecure)
            tell(f"pushed {image}")
    for image in images.values():
        click.echo(image)
    tell(f"Jobs use them when the ConfigMap ffdl-tenant of their namespace says  registry: {registry}  tag: {tag!r}")


def _build(builder: Builder, images: dict[str, str], base: str) -> None:
    from ..images.context import write_context
    from ..images.pip_settings import write_secrets

    with tempfile.TemporaryDirectory(prefix="ffdl-images-") as folder:
        context, private = Path(folder) / "context", Path(folder) / "secrets"
        context.mkdir()
        private.mkdir(mode=0o700)
        write_context(context)
        secrets = write_secrets(private, os.environ)
        for name, image in images.items():
            tell(f"building {image} with {builder.name} ...")
            builder.build(context / f"{name}.Containerfile", image, base, secrets)
            tell(f"built {image} ({builder.size(image)})")
