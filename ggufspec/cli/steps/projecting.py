"""What ``whatif`` is given on the command line -> a cost curve and acceptances."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from ggufspec import units
from ggufspec.cli.entry.output import echo

if TYPE_CHECKING:
    from ggufspec.domain import Program
    from ggufspec.forecast.costs import CostCurve, Device
    from ggufspec.forecast.profiles import Profile
    from ggufspec.forecast.whatif import Acceptance

_NUMBER = r"\d*\.?\d+"
_RANGE = re.compile(rf"(?P<first>{_NUMBER})-(?P<last>{_NUMBER})(?:\+(?P<step>{_NUMBER}))?")
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([MGTP])\s*(?:B(?:/s)?|FLOPS)?\s*", re.IGNORECASE)
_MOST = 1e6
_MOST_PER_S = 1e21  # bytes or operations: a million times what the fastest machines do
_MOST_ACCEPTANCES = 101
_POWERS = {"M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


class Quantity(click.ParamType[float]):
    """Bytes or operations per second such as ``936G``, in powers of ten as data sheets have them."""

    name = "quantity"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        match = _QUANTITY.fullmatch(str(value))
        quantity = float(match[1]) * _POWERS[match[2].upper()] if match else 0.0
        if not 0 < quantity <= _MOST_PER_S:
            self.fail(f"{value!r} is not a quantity; give for example 936G or 71T", param, ctx)
        return quantity


class Numbers(click.ParamType[tuple[float, ...]]):
    """Positive numbers, separated by commas."""

    name = "numbers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """Return the numbers in their order."""
        try:
            numbers = tuple(float(part) for part in str(value).split(","))
        except ValueError:
            numbers = ()
        if not numbers or not all(1 / _MOST <= number <= _MOST for number in numbers):  # NaN is not
            self.fail(f"{value!r} are not positive numbers; give for example 1,1.1,1.25", param, ctx)
        return numbers


def curve(
    asked: dict[str, Any], sizes: list[int], acceptances: list[Acceptance], program: Program
) -> CostCurve:
    """Return the costs, and say on stderr what they rest on."""
    from ggufspec.forecast import costs, whatif

    if asked["profile"] is not None:
        return _measured(asked)
    rates = asked["target_tps"], asked["drafter_tps"]
    overhead_s = asked["overhead"] / 1000
    if None in rates:
        if any(rates) or asked["observed"]:
            raise click.UsageError("give both --target-tps and --drafter-tps")
        return _computed(asked, max(sizes), overhead_s)
    if asked["machine"] or asked["bandwidth"] or asked["flops"] or asked["pair"] or asked["target"]:
        raise click.UsageError("give rates, or models and a machine, not both")
    given = asked["verify_cost"]
    if asked["observed"]:
        if len(sizes) != 1 or len(acceptances) != 1 or given or asked["verify_ratio"]:
            raise click.UsageError("--observed takes one --draft and one --accept, and tells the rest itself")
        known = costs.flat(*rates, ratios=(1.0,) * (sizes[0] + 1), overhead_s=overhead_s)
        implied = whatif.implied_verify_ratio(
            known, asked["observed"], acceptances[0], n_max=sizes[0], depth=asked["ctx"], program=program
        )
        echo(_said(implied, sizes[0], asked["observed"] / rates[0]), err=True)
        given = (1.0, *(implied,) * sizes[0])
    if given is None:
        ratio = asked["verify_ratio"]
        if ratio is None:
            echo("note: verifying a draft is taken to cost no more than one token: at best", err=True)
        given = (1.0, *(ratio or 1.0,) * max(sizes))
    return costs.flat(*rates, ratios=given, overhead_s=overhead_s)


def _measured(asked: dict[str, Any]) -> CostCurve:
    """Return a stored cost curve, and say what it is of.

    Raises:
        UsageError: there is none of this id.
    """
    from ggufspec.forecast import profiles

    if any(
        asked[name]
        for name in ("target_tps", "drafter_tps", "machine", "bandwidth", "flops", "pair", "target")
    ):
        raise click.UsageError("give --profile, or rates, or models and a machine")
    stored = [each for each in profiles.known() if each.curve.draft]
    name = asked["profile"]
    found = stored[-1:] if name == "last" else [each for each in stored if each.id.startswith(name)]
    if not stored:
        raise click.UsageError(
            f"there is no profile {name!r}: none is stored yet; `ggufspec tune` measures and keeps them"
        )
    if not found:
        raise click.UsageError(
            f"there is no profile {name!r}; `--profile list` shows them, `ggufspec tune` makes them"
        )
    echo(f"costs: {_of(found[-1])}", err=True)
    return found[-1].curve


def profiles_list() -> str:
    """Return the stored cost curves of pairs, one line each."""
    from ggufspec.forecast import profiles

    return "".join(f"{each.id}  {_of(each)}\n" for each in profiles.known() if each.curve.draft)


def _of(profile: Profile) -> str:
    about = profile.curve.measured_on
    assert about is not None
    assert about.drafter is not None
    pair = f"{about.target.filename} + {about.drafter.filename}"
    cpu = about.machine.cpu if about.machine else "unknown machine"
    return f"{pair}, {units.counted(about.threads or 0, 'thread')}, {cpu}, measured at {profile.measured_at}"


def depth(asked: dict[str, Any], curve: CostCurve) -> float:
    """Return the depth to look at: --ctx, or of a measured curve the nearest depth that it knows."""
    wanted: int = asked["ctx"]
    return wanted if curve.covers(wanted) else min(max(wanted, curve.depths[0]), curve.depths[-1])


def _said(implied: float, size: int, speedup: float) -> str:
    return (
        f"observed: {speedup:.2f}× of the target alone. Verifying {size + 1} tokens took {implied:.2f} times "
        f"as long as decoding one (1 would be free, {size + 1} no cheaper than one by one)."
    )


def _computed(asked: dict[str, Any], most: int, overhead_s: float) -> CostCurve:
    from ggufspec.cli.options import models
    from ggufspec.forecast import costs, whatif
    from ggufspec.modelfiles import catalog, hub

    device = _device(asked)
    access = hub.Access(offline=asked["offline"])
    pair = models.choose(asked["pair"], asked["target"], asked["draft_model"], access)
    method = catalog.drafting_method(pair)
    if pair.draft is None and method is not None:
        raise click.UsageError(
            f"{pair.name} drafts by {method}, whose gain depends on the text: `ggufspec bench` measures it"
        )
    target, draft = models.cards(pair, access)
    if draft is None:
        raise click.UsageError("give a drafter with -md")
    depth = asked["ctx"]
    echo(f"computed for {peaks(device)}", err=True)
    echo("note: whole models on the machine, at its peaks: tokens/s are upper bounds", err=True)
    return costs.roofline(
        whatif.shape(target, depth=depth),
        whatif.shape(draft, depth=depth),
        device,
        most_tokens=most + 1,
        depths=(depth,),
        overhead_s=overhead_s,
    )


def _device(asked: dict[str, Any]) -> Device:
    from ggufspec.forecast import costs

    name, bandwidth, flops = asked["machine"], asked["bandwidth"], asked["flops"]
    if name is None and bandwidth and flops:
        return costs.Device(name="as given", bandwidth=bandwidth, flops=flops, source="the command line")
    if name is None or bandwidth or flops:
        raise click.UsageError("give rates, or --machine, or --bandwidth and --flops")
    if name not in costs.DEVICES:
        raise click.UsageError(f"no machine {name!r} is known; there are {', '.join(costs.DEVICES)}")
    return costs.DEVICES[name]


def peaks(device: Device) -> str:
    """Return a machine's published peaks in words."""
    bandwidth, flops = map(units.format_number, (device.bandwidth / 1e9, device.flops / 1e12))
    return f"{device.name}: {bandwidth} GB/s, {flops} TFLOPS ({device.source})"


def acceptances(text: str, size: int) -> list[Acceptance]:
    """Return what ``--accept`` says; a bare number is accepted over drafted tokens at γ = ``size``.

    Raises:
        ValueError: it says nothing that is an acceptance.
    """
    from ggufspec.forecast.whatif import Positions, Steady

    rate, _, at = text.partition("@")
    if not at and (match := _RANGE.fullmatch(text)):
        first, last, step = float(match["first"]), float(match["last"]), float(match["step"] or 0.1)
        if not 0 <= first <= last <= 1 or step < 0.001:
            raise ValueError(
                f"{text!r} is not a range of acceptances; give for example 0.5-0.9 or 0.5-0.9+0.05"
            )
        count = int((last - first) / step + 1e-9) + 1
        if count > _MOST_ACCEPTANCES:
            raise ValueError(f"{text!r} has {count} values, more than {_MOST_ACCEPTANCES}; use a larger step")
        return [Steady(round(first + number * step, 9)) for number in range(count)]
    try:
        numbers = tuple(float(part.rstrip("%")) / (100 if "%" in part else 1) for part in rate.split(","))
        asked = int(at) if at else size
    except ValueError:
        message = f"{text!r} is not an acceptance; give for example 0.7, 0.708@3, 0.5-0.9 or 0.9,0.8,0.7"
        raise ValueError(message) from None
    if len(numbers) > 1 and not at:
        return [Positions(numbers)]
    return [Steady.from_rate(numbers[0], asked)]
