"""Two benches side by side: what is equal is joined, what must not be compared is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from ggufspec import notebooks, stats
from ggufspec.analysis import arms
from ggufspec.analysis.arms import Arm
from ggufspec.domain import Drafting, FileIdentity, FileUse, ModelFile, RunSpec
from ggufspec.errors import GgufspecError, ResultsError, SlowerError
from ggufspec.llama.install import releases
from ggufspec.results import ResultSet

Identity = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One arm in both benches; ``change`` is the second's speed over the first's, paired by prompt."""

    before: Arm
    after: Arm
    change: stats.Effect
    texts_equal: int | None  # prompts on which both wrote the same, greedy runs only; no synthetic ones
    texts: int


@dataclass(frozen=True, kw_only=True)
class BenchComparison:
    """All arms that both benches have, and all of them together.

    ``overall`` weighs every prompt of every arm alike; ``differences`` name what the benches do not share.
    ``by_name`` says that models count as the same where their files have the same name, because one of the
    benches does not say what they hold.
    ``no_verdict`` says why ratios alone are given; None where they carry verdicts.
    """

    before: str  # ids of the two benches
    after: str
    rows: tuple[Row, ...]
    overall: stats.Effect
    differences: Mapping[str, tuple[str, str]]
    unmatched: tuple[str, ...]
    by_name: bool = False
    no_verdict: str | None = None

    def verdict(self, change: stats.Effect) -> str | None:
        """Return what a change means, in a word; None where no verdict is given."""
        return None if self.no_verdict else change.verdict.value

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return notebooks.html(self)


def compare(before: ResultSet, after: ResultSet, *, threshold: float = 0.01) -> BenchComparison:
    """Compare two benches of the same models and prompts: other builds, machines, settings.

    Models are the same where they hold the same, whatever their names are. Older benches do not say what
    theirs hold; then the names count.

    Args:
        before: what to compare with.
        after: what is judged.
        threshold: the smallest change of speed that matters, 0.01 for 1 %.

    Raises:
        ResultsError: they have no arm in common, or measured different texts or samplers.
        GgufspecError: the threshold is not a fraction.
    """
    if not 0 <= threshold < 1:
        raise GgufspecError(f"a threshold of {threshold} is not a fraction", "give 0.01 for 1 %")
    _refuse_other_prompts(before, after)
    groups = arms.group(before), arms.group(after)
    by_content = all(map(_knows_contents, groups))
    first, second = (_by_identity(group, by_content=by_content) for group in groups)
    common = [name for name in first if name in second]
    if not common:
        other = dict(_other_models(before, after)) if by_content else {}
        named = "".join(f"; {name}: {one}, and {two}" for name, (one, two) in other.items())
        raise ResultsError(
            f"{before.meta.id} and {after.meta.id} have no arm in common{named}",
            "compare benches of the same models, draft sizes, sampling and -n",
        )
    rows = tuple(_rows(first, second, common, threshold))
    overall = stats.paired_effect(
        _pooled(row.after for row in rows), _pooled(row.before for row in rows), threshold=threshold
    )
    if not rows or overall is None:
        raise ResultsError(
            f"{before.meta.id} and {after.meta.id} share no prompt that both measured",
            "see their failed runs",
        )
    return BenchComparison(
        before=before.meta.id,
        after=after.meta.id,
        rows=rows,
        overall=overall,
        differences=dict(_differences(before, after, rows)),
        unmatched=tuple(sorted(_unmatched(first, second))),
        by_name=not by_content,
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
    for name in common:
        before, after = first[name], second[name]
        change = stats.paired_effect(after.rates, before.rates, threshold=threshold)
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


def _unmatched(first: Mapping[Identity, Arm], second: Mapping[Identity, Arm]) -> set[str]:
    """Return the arms of one bench only; those that look alike and run other models say what these hold."""
    alone = [arm.spec for name, arm in first.items() if name not in second]
    other = [arm.spec for name, arm in second.items() if name not in first]
    alike = {_label(spec) for spec in alone} & {_label(spec) for spec in other}
    return {
        f"{_label(spec)} ({_contents(spec)})" if _label(spec) in alike else _label(spec)
        for spec in (*alone, *other)
    }


def _by_identity(groups: Sequence[Arm], *, by_content: bool) -> dict[Identity, Arm]:
    """Name arms by what must be equal; settings join in where one bench has several of them."""
    names = [_identity(arm.spec, by_content=by_content) for arm in groups]
    if len(set(names)) == len(names):
        return dict(zip(names, groups, strict=True))
    return {(*name, *_settings(arm.spec).values()): arm for name, arm in zip(names, groups, strict=True)}


def _identity(spec: RunSpec, *, by_content: bool) -> Identity:
    models = tuple(model.content for model in _models(spec)) if by_content else arms.models(spec)
    drafting = spec.drafting
    return (
        spec.role.value,
        models,
        drafting and (drafting.method, drafting.n_max, *_manner(drafting)),
        spec.n_predict,
        spec.sampling,
    )


def _label(spec: RunSpec) -> str:
    """Return an arm in a few words."""
    drafting = spec.drafting
    size, manner = (f"γ={drafting.n_max}", " ".join(_manner(drafting))) if drafting else ("", "")
    return " ".join((spec.role.value, " + ".join(arms.models(spec)), size, manner))


def _contents(spec: RunSpec) -> str:
    return " + ".join(f"SHA-256 {(model.content or 'not recorded')[:12]}…" for model in _models(spec))


def _models(spec: RunSpec) -> tuple[ModelFile, ...]:
    return (spec.model, spec.drafter) if spec.drafter else (spec.model,)


def _knows_contents(groups: Iterable[Arm]) -> bool:
    """Whether a bench says what its models hold."""
    return all(model.content is not None for arm in groups for model in _models(arm.spec))


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
        "llama.cpp": (str(releases.identify(one.build)), str(releases.identify(two.build))),
        "commit": (one.build.commit, two.build.commit),
        "backend": (one.build.backend, two.build.backend),
        "engine": (one.engine, two.engine),
        "machine": (one.machine.hostname, two.machine.hostname),
        "processor": (one.machine.cpu, two.machine.cpu),
        "GPUs": (", ".join(one.machine.gpus), ", ".join(two.machine.gpus)),
        "GPU driver": (one.machine.gpu_driver or "", two.machine.gpu_driver or ""),
    }
    facts |= _other_environment(one.environment, two.environment)
    facts |= dict(_other_models(before, after))
    if replace(one.build, path="") == replace(two.build, path=""):
        facts |= dict(_other_llama(one.files or (), two.files or ()))
    for row in rows:
        ours, theirs = _settings(row.before.spec), _settings(row.after.spec)
        facts |= {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}
    return ((name, (str(a), str(b))) for name, (a, b) in facts.items() if a != b)


def _other_environment(
    before: Mapping[str, str] | None, after: Mapping[str, str] | None
) -> dict[str, tuple[object, object]]:
    """Return the variables that may change a speed and differ."""
    names = sorted((before or {}).keys() | (after or {}).keys())
    return {
        name: (
            "not recorded" if before is None else before.get(name, "not set"),
            "not recorded" if after is None else after.get(name, "not set"),
        )
        for name in names
    }


def _other_models(before: ResultSet, after: ResultSet) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the model files that have the same name in both benches, and another content."""
    yield from _other_files(before.meta.files or (), after.meta.files or (), {FileUse.MODEL})


def _other_llama(
    before: Sequence[FileIdentity], after: Sequence[FileIdentity]
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the programs and libraries that differ although they call themselves the same llama.cpp."""
    yield from _other_files(before, after, {FileUse.PROGRAM, FileUse.LIBRARY})


def _other_files(
    before: Sequence[FileIdentity], after: Sequence[FileIdentity], uses: Set[FileUse]
) -> Iterator[tuple[str, tuple[str, str]]]:
    for name in dict.fromkeys(file.name for file in before if file.use in uses):
        ours, theirs = (
            {file.sha256: file for file in files if file.name == name and file.use in uses}
            for files in (before, after)
        )
        if theirs and not ours.keys() & theirs.keys():
            yield name, (_described(ours.values()), _described(theirs.values()))


def _described(files: Iterable[FileIdentity]) -> str:
    return ", ".join(str(file.summary) for file in files)


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


def raise_if_slower(compared: BenchComparison, share: float) -> None:
    """Fail where an arm is slower by more than a share, beyond what chance explains.

    Raises:
        SlowerError: naming the slowest arm.
        ResultsError: two engines were compared, so nothing can be called slower.
    """
    if compared.no_verdict:
        raise ResultsError(
            compared.no_verdict, "compare two benches of one engine, or leave --fail-slower out"
        )
    slower = [row for row in compared.rows if row.change.verdict is stats.SpeedVerdict.SLOWER]
    if slower:
        worst = min(slower, key=lambda row: row.change.ratio.value)
        name = _label(worst.before.spec).rstrip()
        raise SlowerError(
            f"{len(slower)} of {len(compared.rows)} rows are slower by more than {share:.1%}, most of all "
            f"{name}: {worst.change.ratio.value:.3f} of its speed before",
            "measure both again on a quiet machine before you blame the build",
        )
