"""Cost curves on disk: one file for each thing that was measured, the newest measurement in it.

Bundles have cost curves for others, which say of the machine that they were measured on. Forecasts lie in the
folder of their bench.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from ggufspec import paths
from ggufspec.errors import ResultsError
from ggufspec.forecast import Forecast
from ggufspec.forecast.costs import ExpertUse, MeasuredOn, Shape
from ggufspec.forecast.profiles.curves import MeasuredCurve
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.results import decode_hook, read_object, read_value, write_object

SHARED = "costs.json"
"""Its name in a bundle."""

_FORECASTS = "forecasts.json"
_ROUNDS = "rounds.json"


@dataclass(frozen=True, kw_only=True)
class Profile(MeasuredCurve):
    """A stored curve and when it was measured; ``measured_on`` of the curve says what of."""

    schema: Literal[1] = 1
    measured_at: str  # ISO 8601, UTC
    number: int = 0  # counts the measurements: a clock that was wrong once does not change their order

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits that name what was measured."""
        assert self.curve.measured_on is not None
        return _id(self.curve.measured_on)


def save(measured: MeasuredCurve) -> Path:
    """Store a curve in the place of an older one of the same things; return its file.

    Raises:
        ResultsError: it cannot be written; DiskFullError where there is no room left.
    """
    assert measured.curve.measured_on is not None
    file = _file(measured.curve.measured_on)
    profile = Profile(
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        number=1 + max((stored.number for stored in known()), default=0),
        **vars(measured),
    )
    write_object(file, profile, makes_folder=True)
    return file


def find_profile(measured_on: MeasuredOn, *, most_tokens: int, depths: tuple[int, int]) -> Profile | None:
    """Return the stored curve of these things, if it covers what is wanted of it; None for a damaged one.

    Args:
        measured_on: models, offload, build and machine.
        most_tokens: the largest batch that it must know.
        depths: the first and the last depth that it must know.
    """
    profile = read_value(_file(measured_on), Profile)
    if profile is None or profile.curve.measured_on != measured_on:
        return None
    if profile.curve.most_tokens < most_tokens:
        return None
    measured_depths = profile.curve.depths
    return profile if measured_depths[0] <= depths[0] and depths[1] <= measured_depths[-1] else None


def known() -> tuple[Profile, ...]:
    """Return all stored curves, the newest last."""
    stored = filter(None, (read_value(file, Profile) for file in _folder().glob("*.json")))
    return tuple(sorted(stored, key=lambda profile: (profile.number, profile.measured_at)))


def _file(measured_on: MeasuredOn) -> Path:
    return _folder() / f"{_id(measured_on)}.json"


def _id(measured_on: MeasuredOn) -> str:
    return hashlib.sha256(msgspec.json.encode(measured_on, enc_hook=str)).hexdigest()[:12]


def _folder() -> Path:
    return paths.data_dir() / "profiles"


class _StoredExperts(msgspec.Struct):
    use: ExpertUse


def keep_experts(card: ModelCard, use: ExpertUse) -> None:
    """Store how many experts batches of a mixture need.

    Raises:
        ResultsError: it cannot be written; DiskFullError where there is no room left.
    """
    write_object(_experts_file(card), _StoredExperts(use=use), makes_folder=True)


def kept_experts(card: ModelCard) -> ExpertUse | None:
    """Return how many experts batches of a mixture need, where that was traced; in any quantization."""
    stored = read_value(_experts_file(card), _StoredExperts) if card.n_experts else None
    return None if stored is None else stored.use


def _experts_file(card: ModelCard) -> Path:
    facts = (card.architecture, card.name, card.n_layers, card.n_embd, card.n_experts, card.n_experts_used)
    return _folder() / "experts" / f"{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}.json"


class _Forecasts(msgspec.Struct):
    """What a file holds, beside its checksum."""

    forecasts: tuple[Forecast, ...]


def keep(forecasts: Sequence[Forecast], folder: Path) -> None:
    """Write forecasts into a bench's folder.

    Raises:
        ResultsError: it cannot be written; DiskFullError where there is no room left.
    """
    write_object(folder / _FORECASTS, _Forecasts(forecasts=tuple(forecasts)))


def kept(folder: Path) -> tuple[Forecast, ...]:
    """Return the forecasts of a bench; none where it was not tuned, or by another version.

    Raises:
        ResultsError: they are damaged.
    """
    try:
        return msgspec.json.decode(read_object(folder / _FORECASTS), type=_Forecasts).forecasts
    except (OSError, ValueError):  # msgspec's errors are ValueErrors
        return ()


class ExpectedRound(msgspec.Struct, frozen=True, kw_only=True):
    """What a computed server takes for a round of all users.

    Attributes:
        users: who send requests at once.
        depth: tokens of other text before each prompt.
        draft: γ; None for the target alone.
        seconds: per round, as a crossover counts them: tokens that all users get in a round over tokens/s.
    """

    users: int
    depth: int
    draft: int | None = None
    seconds: float


class _StoredRounds(msgspec.Struct):
    rounds: tuple[ExpectedRound, ...]


def keep_rounds(rounds: Sequence[ExpectedRound], folder: Path) -> None:
    """Write what a crossover expects into the folder of its bench.

    Raises:
        ResultsError: it cannot be written; DiskFullError where there is no room left.
    """
    write_object(folder / _ROUNDS, _StoredRounds(rounds=tuple(rounds)))


def kept_rounds(folder: Path) -> tuple[ExpectedRound, ...]:
    """Return what a crossover expects; nothing where that is not known."""
    stored = read_value(folder / _ROUNDS, _StoredRounds)
    return () if stored is None else stored.rounds


@dataclass(frozen=True, kw_only=True)
class SharedProfile(MeasuredCurve):
    """A pair's cost curve with names and paths replaced, its timings, and what each model reads and computes.

    Attributes:
        measured_at: ISO 8601, UTC.
        target: what the target reads and computes.
        drafter: what the drafter reads and computes.
    """

    measured_at: str
    target: Shape
    drafter: Shape


class _SharedFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: Literal[1] = 1
    profiles: tuple[SharedProfile, ...]


def write_shared(profiles: Sequence[SharedProfile]) -> bytes:
    """Return the content of ``costs.json``."""
    return msgspec.json.encode(_SharedFile(profiles=tuple(profiles)), enc_hook=str) + b"\n"


def read_shared(content: bytes) -> tuple[SharedProfile, ...]:
    """Read what ``write_shared`` wrote.

    Raises:
        ResultsError: it is something else, or has no drafter's times or no models' sizes.
    """
    try:
        profiles = msgspec.json.decode(content, type=_SharedFile, dec_hook=decode_hook).profiles
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise ResultsError(f"{SHARED} cannot be read: {error}", "download the bundle again") from error
    for profile in profiles:
        measured_on = profile.curve.measured_on
        has_drafter = profile.curve.draft and measured_on is not None and measured_on.drafter is not None
        if not has_drafter or not all(map(_is_shape, (profile.target, profile.drafter))):
            raise ResultsError(
                f"{SHARED} has a curve without a drafter, or sizes that no model has",
                "download the bundle again",
            )
    return profiles


def _is_shape(shape: Shape) -> bool:
    """Whether some model could have a shape that came from elsewhere."""
    return (
        0 < shape.active_bytes <= shape.weight_bytes
        and 0 < shape.used_share <= 1
        and shape.kv_bytes >= 0
        and (shape.used_share < 1 or shape.active_bytes == shape.weight_bytes)
    )
