"""The options of a bench that name servers that run already."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggufspec.cli.options.shared import add_options
from ggufspec.cli.options.tuned import refuse_typed

if TYPE_CHECKING:
    from ggufspec.measure import Request

server_options = add_options(
    click.option(
        "--url",
        metavar="URL",
        multiple=True,
        help="Measure a running server with OpenAI's API: llama-server, vLLM, SGLang or another one. Name "
        "three that are started alike for a verdict: each is one load of the model.",
    ),
    click.option(
        "--url-drafting",
        metavar="URL",
        multiple=True,
        help="The same for a server of the same target that drafts; both are measured in turn.",
    ),
    click.option("--served-model", metavar="NAME", help="Model to request, where a server has several."),
    click.option(
        "--api-key-file",
        type=click.Path(dir_okay=False, path_type=Path),
        multiple=True,
        help="File with the servers' key; name one for each server if they differ. "
        "[default: GGUFSPEC_API_KEY]",
    ),
)
"""Add --url, --url-drafting, --served-model and --api-key-file."""


def with_servers(request: Request) -> Request:
    """Return a request without settings that mean nothing to a server that runs already.

    Raises:
        click.UsageError: the command line has such an option.
    """
    from dataclasses import fields, replace

    from ggufspec.cli.options.values import PlacementOptions, RuntimeOptions
    from ggufspec.measure import LOADED

    if not request.names_servers:
        return request
    grouped = (field.name for group in (PlacementOptions, RuntimeOptions) for field in fields(group))
    refuse_typed({*LOADED, "engine", *grouped}, "a server that runs already (--url)")
    default = type(request)()
    return replace(request, **{name: getattr(default, name) for name in (*LOADED, "engine")})
