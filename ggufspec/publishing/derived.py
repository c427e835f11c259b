"""All files of a bundle that follow from its benches: tables, charts, report, texts. Pure.

``publish`` writes them, and ``verify`` makes them again from verified benches and compares.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import msgspec

from ggufspec import units
from ggufspec.analysis import Arm, arms
from ggufspec.domain import Build, FileUse, Role
from ggufspec.harmless import markdown
from ggufspec.report import frames, plot
from ggufspec.report.html import sections
from ggufspec.report.text import figures, formats, overview, tables
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
    yield f"Machine: {', '.join(filter(None, (figures.machine(meta.machine), meta.machine.system)))}."
    if not groups:
        yield "Nothing was measured."
        return
    yield f"Design: {figures.extent(groups[0])}; {'; '.join(_arms(groups))}."
    anchors = units.counted(sum(bench.runs.column("anchor")), "anchor run")
    yield (
        "Every arm was measured on every prompt in every repeat, with prompts and arms in random order "
        f"(seed {groups[0].spec.sampling.seed}); warm-ups and {anchors} do not count."
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


BENCHES = "benches"
CHARTS = "charts"
FORMAT = 1
_TITLES = ("arms", "runs")
"""How the names of the tables end."""
_TAGS = ["speculative-decoding", "llama.cpp", "gguf", "benchmark"]
_LIBRARIES = ("ggufspec", "altair", "vl-convert-python", "numpy", "pandas", "scipy")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What ``bundle.json`` says: how a bundle was made.

    Attributes:
        benches: the ids of its benches, in order.
        made_at: ISO 8601, UTC.
        author: of its BibTeX entry.
        with_texts: whether texts that are not built in are part of it.
        with_parquet: whether tables are there as Parquet, too.
        with_charts: whether charts are there as SVG; some machines cannot draw them.
        versions: of ggufspec and of the libraries that make tables and charts.
        bundle_format: of the layout.
    """

    benches: tuple[str, ...]
    made_at: str
    author: str | None
    with_texts: bool
    with_parquet: bool
    with_charts: bool
    versions: dict[str, str]
    bundle_format: int = FORMAT

    def to_json(self) -> str:
        """Return the content of ``bundle.json``."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Facts:
        """Read what ``to_json`` wrote.

        Raises:
            ValueError: it is something else.
        """
        facts = msgspec.json.decode(text, type=cls)
        datetime.fromisoformat(facts.made_at)
        if facts.bundle_format != FORMAT:
            raise ValueError("bundle.json is not of a format that this ggufspec knows")
        if facts.to_json() != text or not facts.benches:
            raise ValueError("bundle.json has other fields, or names no bench")
        return facts


def library_versions() -> dict[str, str]:
    """Return the versions of ggufspec and of the libraries that make tables and charts."""
    versions = {}
    for name in _LIBRARIES:
        with suppress(metadata.PackageNotFoundError):  # what draws pictures is an extra
            versions[name] = metadata.version(name)
    return versions


def can_write_parquet() -> bool:
    """Whether a library for Parquet is installed."""
    return find_spec("pyarrow") is not None


def derive_files(benches: Sequence[ResultSet], facts: Facts, *, draws: bool = True) -> dict[str, bytes]:
    """Return the files that follow from benches, by their paths in the bundle.

    Args:
        benches: of the bundle, at least one, in the order of ``facts.benches``.
        facts: how the bundle is made.
        draws: whether to draw charts, if the bundle has them.

    Raises:
        ChartError: a chart cannot be drawn here.
    """
    version = facts.versions["ggufspec"]
    placed = [replace(bench, folder=Path(BENCHES) / bench.meta.id) for bench in benches]
    files: dict[str, bytes] = {}
    for bench in placed:
        files |= _tables(bench, facts)
    if facts.with_charts and draws:
        files |= _charts(placed)
    texts = {
        "README.md": "\n".join((*_card(placed, facts), markdown("\n".join(_readme(placed, facts))))),
        "methods.md": markdown(methods(placed, version)),
        "citation.bib": bibtex(placed, version, facts.author, facts.made_at),
        "report.html": sections.html(placed, made_at=datetime.fromisoformat(facts.made_at), version=version),
    }
    return files | {name: text.encode() for name, text in texts.items()}


def _charts(benches: Sequence[ResultSet]) -> Mapping[str, bytes]:
    charts = {
        f"{CHARTS}/{bench.meta.id}-{name}.svg": drawn.chart
        for bench in benches
        for name, drawn in plot.drawn(bench).items()
    }
    pictures = plot.draw_pictures(charts, "svg")
    pictures.check()
    return pictures.drawn


def _tables(bench: ResultSet, facts: Facts) -> dict[str, bytes]:
    name, groups = bench.meta.id, arms.group(bench)
    origin = {**frames.origin(bench.meta), "ggufspec_version": facts.versions["ggufspec"]}
    files: dict[str, bytes] = {}
    for title, table in zip(_TITLES, (frames.summary(bench), frames.runs(bench)), strict=True):
        files[f"tables/{name}-{title}.json"] = str(formats.render(table, "json", origin=origin)).encode()
        if facts.with_parquet:
            content = formats.render(table, "parquet")
            assert isinstance(content, bytes)
            files[f"tables/{name}-{title}.parquet"] = content
    if groups:
        for output, ending in {"md": "md", tables.LATEX: "tex"}.items():
            text, _ = overview.arm_table(groups, output)
            files[f"tables/{name}.{ending}"] = f"{text}\n".encode()
    return files


def _card(benches: Sequence[ResultSet], facts: Facts) -> Iterator[str]:
    """Yield what the Hub reads of a dataset's README: tags, and a configuration for each Parquet table.

    Tables have configurations of their own, as columns without a value have another type in each bench.
    """
    yield "---"
    yield f"tags: {json.dumps(_TAGS)}"
    names = [f"{bench.meta.id}-{title}" for bench in benches for title in _TITLES]
    if facts.with_parquet:
        yield "configs:"
        for number, name in enumerate(names):
            yield f"- config_name: {json.dumps(name)}"  # JSON is YAML, and quotes what YAML would convert
            yield f"  data_files: {json.dumps(f'tables/{name}.parquet')}"
            if number == 0:
                yield "  default: true"
    yield "---\n"


def _readme(benches: Sequence[ResultSet], facts: Facts) -> Iterator[str]:
    yield "# Measurements of speculative decoding with llama.cpp\n"
    yield (
        f"Made with ggufspec {facts.versions['ggufspec']} on {facts.made_at[:10]}. Names of users, hosts, "
        "folders and private repositories are replaced by placeholders, and tokens by `***`."
    )
    if not facts.with_texts:
        yield "Texts of prompts that are not built into ggufspec are left out, and the answers to them."
    yield "\n| file | content |\n|---|---|"
    for name, content in {
        "`report.html`": "verdict, tables, charts and commands, on a page that works offline",
        "`methods.md`": "how it was measured, with sources",
        "`citation.bib`": "a BibTeX entry",
        "`tables/`": "arms and runs as JSON, Markdown, LaTeX" + (", Parquet" if facts.with_parquet else ""),
        **({f"`{CHARTS}/`": "charts as SVG"} if facts.with_charts else {}),
        f"`{BENCHES}/`": "every run, and its raw logs",
        "`costs.json`": "what evaluations cost, if the pair was tuned; for `ggufspec whatif --like`",
        "`verify.txt`": "the SHA-256 of each file",
    }.items():
        yield f"| {name} | {content} |"
    yield (
        "\n`ggufspec verify FOLDER` recomputes the figures from the raw logs. `sha256sum -c verify.txt` "
        "checks the hashes without ggufspec.\n"
    )
    for bench in benches:
        yield f"## {bench.meta.id}\n"
        yield overview.overview(bench)
