"""What a verification has found so far, and whether files and cost curves follow from the runs."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

from ggufspec.domain import ModelFile
from ggufspec.errors import ChartError, GgufspecError, ResultsError
from ggufspec.forecast import profiles, whatif
from ggufspec.forecast.costs import CostCurve, MeasuredOn
from ggufspec.forecast.profiles import Profile, SharedProfile
from ggufspec.harmless import one_line
from ggufspec.modelfiles import gguf
from ggufspec.publishing import copying
from ggufspec.publishing.derived import (
    BENCHES,
    CHARTS,
    Facts,
    can_write_parquet,
    derive_files,
    library_versions,
)
from ggufspec.publishing.redacting import Redactor
from ggufspec.report import frames
from ggufspec.report.text import formats
from ggufspec.results import ResultSet, archive


def find_costs(benches: Sequence[ResultSet]) -> tuple[SharedProfile, ...]:
    """Return the stored cost curves of the machines, llama.cpps and pairs of benches.

    Curves without timings cannot be verified, and are left out. So are those of models whose files are gone.
    """
    return tuple(
        shared
        for profile in profiles.known()
        if profile.timings and any(belongs(profile.curve.measured_on, bench) for bench in benches)
        for shared in _share(profile)
    )


def belongs(setup: MeasuredOn | None, bench: ResultSet) -> bool:
    """Whether a bench has the pair, the llama.cpp and the machine of a cost curve."""
    if setup is None or setup.drafter is None or setup.machine != bench.meta.machine:
        return False
    drafter = setup.drafter
    pairs = dict.fromkeys(spec.pair for spec in bench.runs.specs)
    return setup.build in (bench.meta.build, *bench.meta.builds.values()) and any(
        _is_same(pair.target, setup.target) and pair.draft is not None and _is_same(pair.draft, drafter)
        for pair in pairs
    )


def _is_same(model: ModelFile, other: ModelFile) -> bool:
    """Whether two models have one content or, where that is not known, one place."""
    if model.content is not None and other.content is not None:
        return model.content == other.content
    return (model.filename, model.path) == (other.filename, other.path)


def _share(profile: Profile) -> Iterator[SharedProfile]:
    setup = profile.curve.measured_on
    if setup is None or setup.drafter is None or setup.target.path is None or setup.drafter.path is None:
        return
    paths = setup.target.path, setup.drafter.path
    try:
        shapes = [whatif.shape(gguf.read_card(path), depth=0) for path in paths]
    except (GgufspecError, OSError):  # moved or replaced since
        return
    yield SharedProfile(
        measured_at=profile.measured_at,
        curve=profile.curve,
        timings=profile.timings,
        verify_timings=profile.verify_timings,
        target=shapes[0],
        drafter=shapes[1],
    )


def redact_costs(profile: SharedProfile, redactor: Redactor) -> SharedProfile:
    """Return a cost curve as it is published."""
    setup = profile.curve.measured_on
    assert setup is not None
    redacted = replace(
        redactor.redact_value(setup),
        build=None if setup.build is None else copying.redact_build(setup.build, redactor),
        machine=None if setup.machine is None else copying.redact_machine(setup.machine, redactor),
    )
    return replace(profile, curve=replace(profile.curve, measured_on=redacted))


def recompute(profile: SharedProfile) -> CostCurve:
    """Return the curve that follows from a profile's timings.

    Raises:
        ValueError: the timings give no curve.
        ArithmeticError: the timings give no curve.
    """
    setup = profile.curve.measured_on
    assert setup is not None
    return profiles.fit(profile.timings, setup, verify_timings=profile.verify_timings)


_MOST_RUNS_NAMED = 5
_CLOSE = 1e-9  # relative: sums round differently on other processors and Pythons


@dataclass(kw_only=True)
class Report:
    """What has been found so far.

    Attributes:
        findings: sentences on what does not follow.
        unchecked: what cannot be recomputed -> of which runs or files.
        n_runs: runs whose logs were read again.
        n_figures: figures that follow from these logs.
    """

    findings: list[str] = field(default_factory=list)
    unchecked: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    n_runs: int = 0
    n_figures: int = 0

    def find(self, sentence: str) -> None:
        """Add a finding."""
        self.findings.append(one_line(sentence))

    def skip(self, reason: str, *names: str) -> None:
        """Add runs or files to what cannot be recomputed for a reason; without names, all of them."""
        self.unchecked[reason] += names

    def sentences(self) -> Iterator[str]:
        """Yield what cannot be recomputed, with the first few names."""
        for reason, names in self.unchecked.items():
            more = len(names) - _MOST_RUNS_NAMED
            listed = ", ".join(names[:_MOST_RUNS_NAMED]) + (f" and {more} more" if more > 0 else "")
            yield one_line(f"{reason}: {listed}" if names else reason)


def is_close(first: Any, second: Any) -> bool:
    """Whether two values are equal, numbers up to rounding."""
    if isinstance(first, float) or isinstance(second, float):
        numbers = isinstance(first, int | float) and isinstance(second, int | float)
        return numbers and math.isclose(first, second, rel_tol=_CLOSE, abs_tol=1e-12)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(is_close, first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(is_close(first[key], second[key]) for key in first)
    return bool(first == second)


_SVG_TEXT = re.compile(rb'aria-label="([^"]*)"|>([^<>]+)<')
_UNDRAWN = "charts, as they cannot be drawn here"
SIZES = "what the models of cost curves read and compute, as the models are not in the bundle"


def check_derived(
    benches: Sequence[ResultSet],
    files: Mapping[str, Path],
    facts: Facts,
    report: Report,
    derived: Mapping[str, bytes] | None,
) -> None:
    """Make tables, charts, report and texts again, unless they are given, and compare."""
    can_compare = can_write_parquet()
    made_here = replace(facts, with_parquet=facts.with_parquet and can_compare)
    try:
        expected = _derive(benches, made_here, report) if derived is None else derived
    except (GgufspecError, ValueError, KeyError, ArithmeticError) as error:
        report.find(f"tables and charts cannot be made from the runs: {error}")
        return
    can_draw = _UNDRAWN not in report.unchecked
    others = {archive.HASHES, archive.FACTS, profiles.SHARED}
    present = {name for name in files if not name.startswith(f"{BENCHES}/")} - others
    is_same = facts.versions == library_versions()
    for name in sorted(present - expected.keys()):
        if name.endswith(".parquet") and facts.with_parquet and not can_compare:
            report.skip("Parquet tables, as pyarrow is not installed here", name)
        elif facts.with_charts and not can_draw and name.startswith(f"{CHARTS}/"):
            report.skip(_UNDRAWN, name)
        else:
            report.find(f"{name} does not follow from the benches")
    for name in sorted(expected.keys() - present):
        report.find(f"{name} is missing, although the benches have figures for it")
    for name in sorted(expected.keys() & present):
        _check_file(name, files[name].read_bytes(), expected[name], report, is_same=is_same)


def _derive(benches: Sequence[ResultSet], facts: Facts, report: Report) -> Mapping[str, bytes]:
    """Make the files again; without charts if they cannot be drawn here."""
    try:
        return derive_files(benches, facts)
    except ChartError:
        report.skip(_UNDRAWN)
        return derive_files(benches, facts, draws=False)


def check_costs(benches: Sequence[ResultSet], files: Mapping[str, Path], report: Report) -> None:
    """Compare cost curves with their timings, and what they were measured on with the benches."""
    file = files.get(profiles.SHARED)
    if file is None:
        return
    try:
        shared = profiles.read_shared(file.read_bytes())
    except ResultsError as error:
        report.find(error.message)
        return
    report.skip(SIZES)
    for number, profile in enumerate(shared):
        label = f"{profiles.SHARED}, curve {number}"
        if not any(belongs(profile.curve.measured_on, bench) for bench in benches):
            report.find(f"{label} is of a pair, a llama.cpp or a machine that no bench has")
        try:
            follows = is_close(asdict(recompute(profile)), asdict(profile.curve))
        except (ValueError, ArithmeticError):
            follows = False
        if follows:
            report.n_figures += len(profile.curve.points)
        else:
            report.find(f"{label} does not follow from its timings")


def _check_file(name: str, content: bytes, expected: bytes, report: Report, *, is_same: bool) -> None:
    """Compare a file with the one that is made here.

    Args:
        name: its path.
        content: the bundle's.
        expected: ours.
        report: what is found is added to it.
        is_same: whether the same versions of ggufspec and its libraries made both.
    """
    if content == expected:
        return
    if name.endswith((".json", ".parquet")):
        if not _same_tables(name, content, expected, is_same=is_same):
            report.find(f"{name} does not follow from the runs")
    elif name.endswith(".svg") and _svg_texts(content) == _svg_texts(expected):
        report.skip("how charts are drawn: their numbers follow, but fonts or libraries differ here", name)
    elif is_same:
        report.find(f"{name} does not follow from the runs")
    else:
        report.skip(
            "files that other versions of ggufspec or its libraries made, and that differ from ours", name
        )


def _same_tables(name: str, content: bytes, expected: bytes, *, is_same: bool) -> bool:
    """Whether two tables have the same values; where other versions made one, in the columns of both."""
    try:
        rows, ours = _read_table(name, content), _read_table(name, expected)
    except (ValueError, TypeError, OSError, RecursionError, GgufspecError):
        return False
    if len(rows) != len(ours):
        return False
    for row, our_row in zip(rows, ours, strict=True):
        if is_same and row.keys() != our_row.keys():
            return False
        if not all(is_close(row[key], our_row[key]) for key in row.keys() & our_row.keys()):
            return False
    return True


def _read_table(name: str, content: bytes) -> list[dict[str, Any]]:
    if name.endswith(".parquet"):
        return formats.records(frames.read_parquet(BytesIO(content)))
    rows = json.loads(content)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("not a table")
    return rows


def _svg_texts(content: bytes) -> list[bytes]:
    """Return the texts and the data labels of a chart, which name each of its numbers."""
    texts = (match[1] or match[2] for match in _SVG_TEXT.finditer(content))
    return [text.strip() for text in texts if text and text.strip()]
