"""`ffdl sweep`: what a cluster runs every few minutes. Not listed in the help."""

from __future__ import annotations

import click

from .settings import Settings, Verb, tell


@click.command("sweep", cls=Verb, hidden=True, examples=("ffdl --engine argo -n ffdl sweep",))
@click.pass_obj
def command(settings: Settings) -> int:
    """End jobs that can't start and remove what was left behind, in one namespace of a cluster."""
    from ..engines.argo.access import CONFIG_MAPS, Api
    from ..engines.argo.connection import connect
    from ..engines.argo.sweeping import sweep_namespace
    from ..workflows.site import CONFIG_NAME, Site

    api = Api(connect(settings.value("namespace"), settings.value("context"), settings.value("kubeconfig")))
    config = (api.find(CONFIG_MAPS, CONFIG_NAME) or {}).get("data") or {}
    failed = False
    for action, error in sweep_namespace(api, Site.from_config(config)):
        failed = failed or bool(error)
        tell(f"{action}: {error}" if error else f"{action}")
    return 4 if failed else 0
