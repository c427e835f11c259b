"""All files of a bundle that follow from its benches: tables, charts, report, texts. Pure.

``publish`` writes them, and ``verify`` makes them again from verified benches and compares.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from ggufspec.analysis import arms
from ggufspec.harmless import markdown
from ggufspec.publishing import methods
from ggufspec.report import frames, plot
from ggufspec.report.html import sections
from ggufspec.report.text import formats, overview, tables
from ggufspec.results import ResultSet

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
        values = json.loads(text)
        if not isinstance(values, dict) or values.get("bundle_format") != FORMAT:
            raise ValueError("bundle.json is not of a format that this ggufspec knows")
        benches, versions = values.get("benches"), values.get("versions")
        facts = cls(
            benches=tuple(map(str, benches)) if isinstance(benches, list) else (),
            made_at=str(values.get("made_at")),
            author=None if values.get("author") is None else str(values["author"]),
            with_texts=values.get("with_texts") is True,
            with_parquet=values.get("with_parquet") is True,
            with_charts=values.get("with_charts") is True,
            versions={str(name): str(number) for name, number in versions.items()}
            if isinstance(versions, dict)
            else {},
        )
        datetime.fromisoformat(facts.made_at)
        if facts.to_json() != text or not facts.benches:
            raise ValueError("bundle.json has other fields, or names no bench")
        return facts


def library_versions() -> dict[str, str]:
    """Return the versions of ggufspec and of the libraries that make tables and charts."""
    return {name: metadata.version(name) for name in _LIBRARIES}


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
        "methods.md": markdown(methods.methods(placed, version)),
        "citation.bib": methods.bibtex(placed, version, facts.author, facts.made_at),
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
        files[f"tables/{name}-{title}.json"] = formats.render(table, "json", origin=origin).encode()
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
        yield overview.overview(bench, is_stored=False)
