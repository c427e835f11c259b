"""Two benches side by side: what is equal is joined, what must not be compared is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module

from ggufspec import arms, stats
from ggufspec.arms import Arm
from ggufspec.domain import Drafting, RunSpec
from ggufspec.errors import ResultsError, SlowerError
from ggufspec.results import ResultSet

Identity = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One arm in both benches; ``change`` is the second's speed over the first's, paired by prompt."""

    before: Arm
    after: Arm
    change: stats.Significance
    texts_equal: int | None  # prompts on which both wrote the same, greedy runs only; no synthetic ones
    texts: int


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All arms that both benches have, and all of them together.

    ``overall`` weighs every prompt of every arm alike; ``differences`` name what the benches do not share.
    ``no_verdict`` says why ratios alone are given; None where they carry verdicts.
    """

    before: str  # ids of the two benches
    after: str
    rows: tuple[Row, ...]
    overall: stats.Significance
    differences: Mapping[str, tuple[str, str]]
    unmatched: tuple[str, ...]
    no_verdict: str | None = None

    def verdict(self, change: stats.Significance) -> str | None:
        """Return what a change means, in a word; None where no verdict is given."""
        return None if self.no_verdict else change.verdict.value

    def _repr_html_(self) -> str:
        """Return what a notebook shows; looked up when one asks, because reports stand on floors above."""
        page: str = import_module("ggufspec.report.notebook").comparison_html(self)
        return page


def compare(before: ResultSet, after: ResultSet, *, threshold: float = 0.01) -> Comparison:
    """Compare two benches of the same models and prompts: other builds, machines, settings.

    Args:
        before: what to compare with.
        after: what is judged.
        threshold: the smallest change of speed that matters, 0.01 for 1 %.

    Raises:
        ResultsError: they have no arm in common, or measured different texts or samplers.
    """
    _refuse_other_prompts(before, after)
    first, second = _by_identity(before), _by_identity(after)
    common = [identity for identity in first if identity in second]
    if not common:
        raise ResultsError(
            f"{before.meta.id} and {after.meta.id} have no arm in common",
            "compare benches of the same models, draft sizes, sampling and -n",
        )
    rows = tuple(_rows(first, second, common, threshold))
    overall = stats.significance(
        _pooled(row.after for row in rows), _pooled(row.before for row in rows), threshold=threshold
    )
    if not rows or overall is None:
        raise ResultsError(
            f"{before.meta.id} and {after.meta.id} share no prompt that both measured",
            "see their failed runs",
        )
    left_out = [*(first.keys() - second.keys()), *(second.keys() - first.keys())]
    return Comparison(
        before=before.meta.id,
        after=after.meta.id,
        rows=rows,
        overall=overall,
        differences=dict(_differences(before, after, rows)),
        unmatched=tuple(sorted(" ".join(str(part) for part in identity[:4]) for identity in left_out)),
        no_verdict=_no_verdict(before, after),
    )


def _no_verdict(before: ResultSet, after: ResultSet) -> str | None:
    engines = before.meta.engine, after.meta.engine
    if engines[0] == engines[1]:
        return None
    return (
        f"no verdict: {before.meta.id} was measured with the engine {engines[0]} and {after.meta.id} with "
        f"{engines[1]}, other programs that draft and time in their own way; measure both with one --engine"
    )


def _rows(
    first: Mapping[Identity, Arm], second: Mapping[Identity, Arm], common: list[Identity], threshold: float
) -> Iterator[Row]:
    for identity in common:
        before, after = first[identity], second[identity]
        change = stats.significance(after.rates, before.rates, threshold=threshold)
        if change is None:
            continue
        ours, theirs = _texts(after), _texts(before)
        shared = ours.keys() & theirs.keys()
        own_words = before.spec.sampling.greedy and not before.synthetic
        yield Row(
            before=before,
            after=after,
            change=change,
            texts_equal=sum(_same(ours[p], theirs[p]) for p in shared) if own_words and shared else None,
            texts=len(shared),
        )


def _by_identity(results: ResultSet) -> dict[Identity, Arm]:
    """Name arms by what must be equal; settings join in where one bench has several of them."""
    groups = arms.group(results)
    names = [_identity(arm.spec) for arm in groups]
    if len(set(names)) == len(names):
        return dict(zip(names, groups, strict=True))
    return {(*_identity(arm.spec), *_settings(arm.spec).values()): arm for arm in groups}


def _identity(spec: RunSpec) -> Identity:
    drafting = spec.drafting
    return (
        spec.role.value,
        " + ".join(arms.models(spec)),
        f"γ={drafting.n_max}" if drafting else "",
        " ".join(_manner(drafting)) if drafting else "",
        spec.n_predict,
        spec.sampling,
    )


def _manner(drafting: Drafting) -> Iterator[str]:
    if drafting.p_min:
        yield f"p-min={drafting.p_min:g}"
    if drafting.synthetic:
        yield f"synthetic={','.join(f'{rate:g}' for rate in drafting.synthetic)}"


def _settings(spec: RunSpec) -> dict[str, object]:
    return {
        "GPU layers": spec.offload.target_layers,
        "drafter's GPU layers": spec.offload.draft_layers,
        "threads": spec.threads,
        "KV type": spec.kv_type,
        "ubatch": spec.ubatch,
        "context": spec.context,
    }


def _differences(
    before: ResultSet, after: ResultSet, rows: tuple[Row, ...]
) -> Iterator[tuple[str, tuple[str, str]]]:
    one, two = before.meta, after.meta
    facts: dict[str, tuple[object, object]] = {
        "llama.cpp": (one.build.version, two.build.version),
        "commit": (one.build.commit, two.build.commit),
        "backend": (one.build.backend, two.build.backend),
        "engine": (one.engine, two.engine),
        "machine": (one.machine.hostname, two.machine.hostname),
        "processor": (one.machine.cpu, two.machine.cpu),
        "GPUs": (", ".join(one.machine.gpus), ", ".join(two.machine.gpus)),
        "GPU driver": (one.machine.gpu_driver or "", two.machine.gpu_driver or ""),
    }
    for row in rows:
        ours, theirs = _settings(row.before.spec), _settings(row.after.spec)
        facts |= {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}
    return ((name, (str(a), str(b))) for name, (a, b) in facts.items() if a != b)


def _refuse_other_prompts(before: ResultSet, after: ResultSet) -> None:
    ours, theirs = (
        {spec.prompt.id: spec.prompt.text for spec in results.current.specs} for results in (before, after)
    )
    other = sorted(name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name])
    if other:
        raise ResultsError(
            f"prompt {other[0]} has another text in {after.meta.id} than in {before.meta.id}",
            "measure both with the same prompts and the same template",
        )


def _texts(arm: Arm) -> dict[str, str]:
    found: dict[str, str] = {}
    for spec, text in zip(arm.good.specs, arm.good.column("text"), strict=True):
        if text is not None:
            found.setdefault(spec.prompt.id, text)
    return found


def _same(one: str, two: str) -> bool:
    return one.startswith(two) or two.startswith(one)  # drafting writes up to a draft more


def _pooled(groups: Iterator[Arm]) -> dict[stats.Cell, float]:
    return {
        (f"{number}/{prompt}", repeat): rate
        for number, arm in enumerate(groups)
        for (prompt, repeat), rate in arm.rates.items()
    }


def raise_if_slower(compared: Comparison, share: float) -> None:
    """Fail where an arm is slower by more than a share, beyond what chance explains.

    Raises:
        SlowerError: naming the slowest arm.
        ResultsError: two engines were compared, so nothing can be called slower.
    """
    if compared.no_verdict:
        raise ResultsError(
            compared.no_verdict, "compare two benches of one engine, or leave --fail-slower out"
        )
    slower = [row for row in compared.rows if row.change.verdict is stats.Verdict.SLOWER]
    if slower:
        worst = min(slower, key=lambda row: row.change.ratio.value)
        name = " ".join(str(part) for part in _identity(worst.before.spec)[:3] if part)
        raise SlowerError(
            f"{len(slower)} of {len(compared.rows)} rows are slower by more than {share:.1%}, most of all "
            f"{name}: {worst.change.ratio.value:.3f} of its speed before",
            "measure both again on a quiet machine before you blame the build",
        )
