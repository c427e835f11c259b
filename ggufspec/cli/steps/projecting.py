"""From the options of ``whatif`` to a cost curve and acceptances."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ggufspec import units
from ggufspec.cli.entry.output import echo

if TYPE_CHECKING:
    from ggufspec.cli.options.values import WhatIfOptions
    from ggufspec.domain import Program
    from ggufspec.forecast.costs import CostCurve, DevicePeaks
    from ggufspec.forecast.profiles import Profile
    from ggufspec.forecast.whatif import Acceptance

_NUMBER = r"\d*\.?\d+"
_RANGE = re.compile(rf"(?P<first>{_NUMBER})-(?P<last>{_NUMBER})(?:\+(?P<step>{_NUMBER}))?")
_MOST_ACCEPTANCES = 101
_MOST_DIGITS = 18  # of a draft size
_RATES, _ALPHAS = "0.7, 0.708@3, 0.5-0.9, 0.9,0.8,0.7", "0.7, 0.5-0.9"


def make_curve(
    options: WhatIfOptions, sizes: list[int], acceptances: list[Acceptance], program: Program
) -> CostCurve:
    """Return the cost curve, and print on standard error where it comes from.

    Raises:
        UsageError: the options are incomplete, or contradict each other.
    """
    from ggufspec.forecast import costs, whatif

    if options.profile is not None:
        return _load_profile(options, options.profile)
    target_tps, drafter_tps, ratios = options.target_tps, options.drafter_tps, options.verify_cost
    overhead_s = options.overhead / 1000
    if target_tps is None or drafter_tps is None:
        if target_tps or drafter_tps or options.observed:
            raise click.UsageError("--target-tps and --drafter-tps are needed together")
        return _compute_curve(options, max(sizes), overhead_s)
    if options.names_models:
        raise click.UsageError("use either rates, or models and a machine")
    if options.observed:
        if len(sizes) != 1 or len(acceptances) != 1 or ratios or options.verify_ratio:
            raise click.UsageError(
                "--observed needs one --draft and one --accept, and excludes --verify-cost and --verify-ratio"
            )
        free = costs.flat_curve(
            target_tps, drafter_tps, ratios=(1.0,) * (sizes[0] + 1), overhead_s=overhead_s
        )
        ratio = whatif.implied_verify_ratio(
            free, options.observed, acceptances[0], n_max=sizes[0], depth=options.ctx, program=program
        )
        echo(_describe_observed(ratio, sizes[0], options.observed / target_tps), err=True)
        ratios = (1.0, *(ratio,) * sizes[0])
    if ratios is None:
        if options.verify_ratio is None:
            echo(
                "note: without --verify-cost, verifying a draft counts as one token: the best case", err=True
            )
        ratios = (1.0, *(options.verify_ratio or 1.0,) * max(sizes))
    return costs.flat_curve(target_tps, drafter_tps, ratios=ratios, overhead_s=overhead_s)


def _load_profile(options: WhatIfOptions, name: str) -> CostCurve:
    """Return a stored cost curve, and print what it was measured on.

    Raises:
        UsageError: there is none of this id.
    """
    from ggufspec.forecast import profiles

    if options.target_tps or options.drafter_tps or options.names_models:
        raise click.UsageError("use either --profile, or rates, or models and a machine")
    stored = [profile for profile in profiles.known() if profile.curve.draft]
    matching = (
        stored[-1:] if name == "last" else [profile for profile in stored if profile.id.startswith(name)]
    )
    if not stored:
        raise click.UsageError(
            f"there is no profile {name!r}: none is stored yet; `ggufspec tune` measures one"
        )
    if not matching:
        raise click.UsageError(
            f"there is no profile {name!r}; `--profile list` lists them, `ggufspec tune` measures one"
        )
    echo(f"costs: {_describe_profile(matching[-1])}", err=True)
    return matching[-1].curve


def list_profiles() -> str:
    """Return the stored cost curves of pairs, one per line."""
    from ggufspec.forecast import profiles

    return "".join(
        f"{profile.id}  {_describe_profile(profile)}\n" for profile in profiles.known() if profile.curve.draft
    )


def _describe_profile(profile: Profile) -> str:
    setup = profile.curve.measured_on
    assert setup is not None
    assert setup.drafter is not None
    pair = f"{setup.target.filename} + {setup.drafter.filename}"
    cpu = setup.machine.cpu if setup.machine else "unknown machine"
    return f"{pair}, {units.counted(setup.threads or 0, 'thread')}, {cpu}, measured at {profile.measured_at}"


def choose_depth(options: WhatIfOptions, curve: CostCurve) -> float:
    """Return the context depth in tokens: --ctx, or the nearest depth that the curve covers."""
    if curve.covers(options.ctx):
        return options.ctx
    return min(max(options.ctx, curve.depths[0]), curve.depths[-1])


def _describe_observed(ratio: float, size: int, speedup: float) -> str:
    return (
        f"observed: {speedup:.2f}× of the target alone. Verifying {size + 1} tokens took {ratio:.2f} times "
        f"as long as decoding one (1: free, {size + 1}: no cheaper than decoding them one by one)."
    )


def _compute_curve(options: WhatIfOptions, most: int, overhead_s: float) -> CostCurve:
    from ggufspec.cli.options import models
    from ggufspec.forecast import costs, whatif
    from ggufspec.modelfiles import catalog, hub

    device = _choose_device(options)
    access = hub.Access(offline=options.offline)
    pair = models.choose_pair(options.pair, options.target, options.draft_model, access)
    method = catalog.drafting_method(pair)
    if pair.draft is None and method is not None:
        raise click.UsageError(
            f"{pair.name} drafts with {method}, whose gain depends on the text; measure it: ggufspec bench"
        )
    target, draft = models.read_cards(pair, access)
    if draft is None:
        raise click.UsageError("there is no drafter: name one with --draft-model")
    echo(f"computed for {describe_device(device)}", err=True)
    echo("note: all layers on this machine at its peak rates: tokens/s are upper bounds", err=True)
    return costs.roofline(
        whatif.shape(target, depth=options.ctx),
        whatif.shape(draft, depth=options.ctx),
        device,
        most_tokens=most + 1,
        depths=(options.ctx,),
        overhead_s=overhead_s,
    )


def _choose_device(options: WhatIfOptions) -> DevicePeaks:
    from ggufspec.forecast import costs

    name, bandwidth, flops = options.machine, options.bandwidth, options.flops
    if name is None and bandwidth and flops:
        return costs.DevicePeaks(name="as given", bandwidth=bandwidth, flops=flops, source="the command line")
    if name is None or bandwidth or flops:
        raise click.UsageError(
            "costs are missing: use --target-tps and --drafter-tps, or --machine, or --bandwidth and --flops"
        )
    if name not in costs.DEVICES:
        raise click.UsageError(f"unknown machine: {name!r}; known are {', '.join(costs.DEVICES)}")
    return costs.DEVICES[name]


def describe_device(device: DevicePeaks) -> str:
    """Return a machine's published peak rates as text."""
    bandwidth, flops = map(units.format_number, (device.bandwidth / 1e9, device.flops / 1e12))
    return f"{device.name}: {bandwidth} GB/s, {flops} TFLOPS ({device.source})"


def parse_acceptances(accept: str | None, alpha: str | None) -> list[Acceptance]:
    """Return the acceptances of ``--accept`` or of ``--alpha``.

    Args:
        accept: acceptance rates at every γ (0.7, 0.5-0.9), a rate at one γ (0.708@3), or shares by position.
        alpha: probabilities that each token is accepted (0.7, 0.5-0.9).

    Raises:
        UsageError: not exactly one of the two was given.
        ValueError: the text is not an acceptance.
    """
    from ggufspec.forecast.whatif import AcceptanceRate, Positions, Steady

    if accept is not None and alpha is not None:
        raise click.UsageError("use either --accept or --alpha")
    if alpha is not None:
        return [Steady(value) for value in _parse_range(alpha) or (_parse_share(alpha, _ALPHAS),)]
    if accept is None:
        raise click.UsageError("the acceptance is missing, for example --accept 0.7")
    rate, _, size = accept.partition("@")
    if size:
        if not size.isdecimal() or len(size) > _MOST_DIGITS:
            raise ValueError(f"{accept!r} is not an acceptance; examples: {_RATES}")
        return [Steady.from_rate(_parse_share(rate, _RATES), int(size))]
    if "," in accept:
        return [Positions(tuple(_parse_share(part, _RATES) for part in accept.split(",")))]
    return [AcceptanceRate(value) for value in _parse_range(accept) or (_parse_share(accept, _RATES),)]


def _parse_range(text: str) -> list[float]:
    """Return the values of a range such as 0.5-0.9+0.05; none where the text is not one."""
    match = _RANGE.fullmatch(text)
    if match is None:
        return []
    first, last, step = float(match["first"]), float(match["last"]), float(match["step"] or 0.1)
    if not 0 <= first <= last <= 1 or step < 0.001:
        raise ValueError(f"{text!r} is not a range of acceptances; examples: 0.5-0.9, 0.5-0.9+0.05")
    count = int((last - first) / step + 1e-9) + 1
    if count > _MOST_ACCEPTANCES:
        raise ValueError(
            f"{text!r} has {count} values; at most {_MOST_ACCEPTANCES} are allowed: use a larger step"
        )
    return [round(first + number * step, 9) for number in range(count)]


def _parse_share(text: str, examples: str) -> float:
    try:
        return float(text.rstrip("%")) / (100 if "%" in text else 1)
    except ValueError:
        raise ValueError(f"{text!r} is not an acceptance; examples: {examples}") from None


def is_rate_at_every_size(acceptances: Sequence[Acceptance], sizes: Sequence[int]) -> bool:
    """Whether one acceptance rate is assumed at several γ, which no drafter has."""
    from ggufspec.forecast.whatif import AcceptanceRate

    return len(sizes) > 1 and isinstance(acceptances[0], AcceptanceRate)
