"""Options that place models on GPUs and CPU, besides the numbers of layers."""

from __future__ import annotations

from typing import Any

import click

from ggufspec.choices import SplitMode
from ggufspec.cli.options.axes import Axis, join_values
from ggufspec.cli.options.shared import Count, Decorator, Experts, add_options


class Devices(click.ParamType[tuple[str, ...]]):
    """Devices as ``llama-server --list-devices`` names them: ``CUDA0,CUDA1``, or ``none``."""

    name = "devices"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the names."""
        names = value if isinstance(value, tuple) else tuple(name.strip() for name in str(value).split(","))
        if not all(names) or len(set(names)) < len(names) or ("none" in names and len(names) > 1):
            self.fail(f"{value!r} is not a list of devices; examples: CUDA0, CUDA0,CUDA1, none", param, ctx)
        return names


class Proportions(click.ParamType[tuple[float, ...]]):
    """Proportions of devices such as ``3,1``."""

    name = "proportions"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the numbers."""
        try:
            numbers = value if isinstance(value, tuple) else tuple(map(float, str(value).split(",")))
        except ValueError:
            numbers = ()
        if not numbers or not all(0 <= number < 1e9 for number in numbers) or not any(numbers):
            self.fail(f"{value!r} is not a list of proportions; example: 3,1", param, ctx)
        return numbers


def _expert_options(
    all_names: tuple[str, str], some_names: tuple[str, str], field: str, model: str
) -> tuple[Decorator, ...]:
    """Return llama.cpp's two options for the experts of a mixture, which fill one field."""
    return (
        click.option(
            *all_names,
            field,
            flag_value="all",
            type=Experts(),
            help=f"Keep all experts of the {model} on the CPU.",
        ),
        click.option(
            *some_names,
            field,
            type=Experts(),
            help=f"Keep the experts of the {model}'s first N layers on the CPU.",
        ),
    )


class Workers(click.ParamType[str]):
    """Workers on other machines: ``a:50052,b:50052``, or ``none``."""

    name = "workers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the addresses as one text without spaces."""
        from ggufspec.errors import GgufspecError
        from ggufspec.llama.rpc import workers

        try:
            return ",".join(workers.parse_workers(str(value))) or workers.NO_WORKERS
        except GgufspecError as error:
            self.fail(f"{error.message}; {error.hint}", param, ctx)


def rpc_option(*, many: bool) -> Decorator:
    """Return --rpc; given several times, it is an axis."""
    repeated = " Repeat it to compare, such as with none." if many else ""
    return click.option(
        "--rpc",
        type=Workers(),
        metavar="HOST:PORT,…",
        multiple=many,
        help="Workers that lend their devices over the network (`ggufspec fleet worker`); the drafter stays "
        f"here unless --device-draft says otherwise.{repeated}",
    )


_EXPERTS: tuple[Decorator, ...] = (
    *_expert_options(("-cmoe", "--cpu-moe"), ("-ncmoe", "--n-cpu-moe"), "cpu_moe", "target"),
    *_expert_options(
        ("-cmoed", "--cpu-moe-draft"), ("-ncmoed", "--n-cpu-moe-draft"), "draft_cpu_moe", "drafter"
    ),
)

_SPLIT: Decorator = click.option(
    "-ts", "--tensor-split", type=Proportions(), help="Proportions of the model on the GPUs, such as 3,1."
)

_DEVICES: tuple[Decorator, ...] = (
    click.option(
        "-fit",
        "--fit",
        type=click.Choice(("on", "off")),
        help="Let llama.cpp offload less than requested so that the models fit.",
    ),
    click.option(
        "-dev", "--device", "devices", type=Devices(), help="GPUs to use, such as CUDA0,CUDA1; or none."
    ),
    click.option(
        "-devd",
        "--device-draft",
        "draft_devices",
        type=Devices(),
        help="GPUs for the drafter. [default: as --device]",
    ),
    _SPLIT,
    click.option(
        "-sm",
        "--split-mode",
        type=click.Choice([mode.value for mode in SplitMode]),
        help="How to split the model across GPUs.",
    ),
    click.option("-mg", "--main-gpu", type=Count(0), help="GPU for --split-mode none or row."),
)

placement_options = add_options(*_DEVICES, *_EXPERTS)
"""Add the options that PlacementOptions takes."""

machine_options = add_options(
    click.option(
        "--machine",
        metavar="NAME",
        help="Forecast for this GPU or computer: a name, or its memory bandwidth such as 936G; "
        "several with commas. `whatif --machine list` prints the names.",
    ),
    click.option(
        "--host",
        metavar="NAME",
        help="Machine whose processor computes the layers that are not on a GPU, in the same forms.",
    ),
)
"""Add the options that name machines for a forecast from rooflines."""

share_options = add_options(_SPLIT, *_EXPERTS)
"""Add the options of ``placement_options`` that change how much memory a device needs."""


def layer_options(*, many: bool = False, ngl: str = "auto", ngld: str = "auto") -> Decorator:
    """Add --ngl and --ngld.

    Args:
        many: several values make an axis, as in a sweep.
        ngl: the default for the target.
        ngld: the default for the drafter.
    """

    def layers(name: str, model: str, default: str) -> Decorator:
        axis = Axis("layers", words=("all", "auto"))
        return click.option(
            f"-{name}",
            f"--{name}",
            type=axis if many else axis.single(),
            metavar="LAYERS",
            multiple=many,
            default=[default] if many else default,
            show_default=True,
            callback=join_values if many else None,
            help=f"{model} layers on the GPU: a number, all or auto.",
        )

    return add_options(layers("ngl", "Target", ngl), layers("ngld", "Drafter", ngld))
