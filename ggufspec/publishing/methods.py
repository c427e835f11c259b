"""How benches were measured, as a paragraph for a paper, and a BibTeX entry for them: pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime

from ggufspec import units
from ggufspec.analysis import Arm, arms
from ggufspec.domain import Build, FileUse, Role
from ggufspec.report.text import figures, tables
from ggufspec.results import Meta, ResultSet

STATISTICS = (
    "Tokens/s are tokens decoded after the prompt over the seconds of decoding, drafting, verification and "
    "sampling. An arm's value is the geometric mean over cells (prompt, repeat) that all arms have (Fleming "
    "and Wallace 1986). A speed-up is the mean of log ratios of drafting to the target alone, paired by "
    "prompt and repeat. Its 95 % interval comes from a model with random effects of prompt and load, with "
    "variances by Henderson's method III (Searle, Casella and McCulloch 1992) and degrees of freedom after "
    "Satterthwaite (1946); it is for other prompts of this kind and other loads on this machine. A verdict "
    "needs p < 0.05 and a change of more than 1 %; there is no correction for multiple comparisons. "
    "Intervals of acceptance are jackknife intervals over prompts (Efron and Tibshirani 1993). Drift is the "
    "median of pairwise slopes (Theil 1950, Sen 1968)."
)
SOURCES = (
    "Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapter 11",
    "Fleming and Wallace 1986, Communications of the ACM 29(3), doi:10.1145/5666.5673",
    "Satterthwaite 1946, Biometrics Bulletin 2:110-114",
    "Searle, Casella and McCulloch 1992, Variance Components, chapter 5",
    "Sen 1968, Journal of the American Statistical Association, doi:10.1080/01621459.1968.10480934",
    "Theil 1950, Proc. KNAW 53",
)


def methods(benches: Sequence[ResultSet], version: str) -> str:
    """Return the methods of benches as Markdown: a paragraph for each, one on statistics, and its sources.

    Args:
        benches: at least one.
        version: of the ggufspec that publishes them.
    """
    paragraphs = [" ".join(_sentences(bench)) for bench in benches]
    sources = "\n".join(f"- {source}" for source in SOURCES)
    return "\n\n".join(
        (
            "# Methods",
            *paragraphs,
            f"{STATISTICS} Analysed with ggufspec {version}.",
            f"Sources:\n\n{sources}\n",
        )
    )


def _sentences(bench: ResultSet) -> Iterator[str]:
    meta, groups = bench.meta, arms.group(bench)
    yield f"Bench `{meta.id}` of {meta.started_at[:10] or 'an unknown day'}."
    yield from _models(meta)
    builds = meta.builds or {"": meta.build}
    software = "; ".join(_build(name, build) for name, build in builds.items())
    yield f"Software: {software}. {figures.engine(meta.engine)}"
    yield f"Machine: {', '.join(_machine(meta))}."
    if not groups:
        yield "Nothing was measured."
        return
    yield f"Design: {figures.extent(groups[0])}; {'; '.join(_arms(groups))}."
    yield (
        "Every arm was measured on every prompt in every repeat, with prompts and arms in random order "
        f"(seed {groups[0].spec.sampling.seed}); warm-ups and {_n_anchors(bench)} do not count."
    )
    if meta.stopping is not None:
        rule = meta.stopping
        yield (
            "It was measured until its verdicts were decided, with looks after "
            f"{', '.join(map(str, rule.looks))} complete repeats. Its speed-ups have another interval than "
            "stated below: Student's t over repeats, of means over these prompts, with an error of 5 % "
            f"divided equally among {units.counted(len(rule.looks), 'look')} and "
            f"{units.counted(rule.comparisons, 'comparison')} (Bonferroni)."
        )
    failed = len(bench.current) - sum(len(arm.good) for arm in groups)
    if failed:
        yield f"{units.counted(failed, 'run')} failed or contradicted the clock, and are left out."


def _models(meta: Meta) -> Iterator[str]:
    files = [file for file in meta.files or () if file.use is FileUse.MODEL]
    if files:
        named = (f"`{file.name}` (SHA-256 {file.sha256}, {file.size_bytes} bytes)" for file in files)
        yield f"Models: {'; '.join(named)}."
    else:
        yield "The contents of the models were not recorded."


def _build(name: str, build: Build) -> str:
    commit = f", commit {build.commit}" if build.commit else ""
    text = f"{figures.llama_cpp(build)}{commit}, {build.backend or 'unknown'} backend"
    return f"{name}: {text}" if name else text


def _machine(meta: Meta) -> Iterator[str]:
    machine = meta.machine
    yield machine.cpu
    yield units.counted(machine.cores, "core")
    yield units.format_bytes(machine.memory_bytes)
    memory = dict(enumerate(machine.gpu_bytes))
    for number, gpu in enumerate(machine.gpus):
        yield f"{gpu} ({units.format_bytes(memory[number])})" if number in memory else gpu
    if machine.gpu_driver:
        yield f"GPU driver {machine.gpu_driver}"
    if machine.system:
        yield machine.system


def _arms(groups: Sequence[Arm]) -> Iterator[str]:
    """Yield what was compared: each role once, with its models, draft sizes and settings."""
    for role in Role:
        members = [arm for arm in groups if arm.role is role]
        if not members:
            continue
        names = dict.fromkeys(" + ".join(f"`{name}`" for name in arm.models) for arm in members)
        sizes = dict.fromkeys(str(arm.draft_size) for arm in members if arm.draft_size is not None)
        settings = dict.fromkeys(filter(None, (shlex.join(arm.spec.words) for arm in members)))
        parts = [f"{role.value}: {', '.join(names)}"]
        parts += [f"γ = {', '.join(sizes)}"] if sizes else []
        parts += [f"settings `{'`, `'.join(settings)}`"] if settings else []
        yield ", ".join(parts)


def _n_anchors(bench: ResultSet) -> str:
    return units.counted(sum(bench.runs.column("anchor")), "anchor run")


def bibtex(benches: Sequence[ResultSet], version: str, author: str | None, made_at: str) -> str:
    """Return a BibTeX entry for a bundle.

    Args:
        benches: at least one.
        version: of the ggufspec that publishes them.
        author: as BibTeX writes authors; None leaves the field out.
        made_at: ISO 8601.
    """
    targets = dict.fromkeys(
        arm.models[0] for bench in benches for arm in arms.group(bench) if arm.role is not Role.DRAFTER
    )
    about = f" of {', '.join(targets)}" if targets else ""
    date = datetime.fromisoformat(made_at)
    facts = {
        "author": author,
        "title": f"{{Speculative decoding with llama.cpp: measurements{about}}}",
        "year": f"{date.year}",
        "month": f"{date.month}",
        "howpublished": f"Bundle of raw logs and results, ggufspec {version}",
        "note": f"{'; '.join(dict.fromkeys(figures.llama_cpp(bench.meta.build) for bench in benches))}",
    }
    key = re.sub(r"[^A-Za-z0-9]+", "-", f"ggufspec-{benches[0].meta.id}").strip("-")
    lines = (
        f"  {name} = {{{tables.escape_latex(value.strip('{}')) if name != 'author' else value}}},"
        for name, value in facts.items()
        if value
    )
    return "\n".join((f"@misc{{{key},", *lines, "}\n"))
