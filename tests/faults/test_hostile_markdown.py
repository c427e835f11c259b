"""Names of strangers in Markdown: neither HTML nor links, wherever a table or a text is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from ggufspec import harmless
from ggufspec.analysis import arms
from ggufspec.domain import FileIdentity, FileUse, Role
from ggufspec.publishing import derived
from ggufspec.report import frames
from ggufspec.report.text import formats, overview
from ggufspec.results import ResultSet
from tests.support import values

NAMES = (
    "<svg onload=alert(1)>.gguf",
    "`<img src=x>.gguf",
    "[x](evil:y).gguf",
    "![](evil).gguf",
)
WRITERS: dict[str, Callable[[ResultSet], str]] = {
    "table": lambda bench: overview.arm_table(arms.group(bench), "md")[0],
    "overview": lambda bench: harmless.markdown(overview.overview(bench)),
    "frame": lambda bench: str(formats.render(frames.runs(bench), "md")),
    "methods": lambda bench: harmless.markdown(derived.methods([bench], "1.0")),
}


def _bench(name: str) -> ResultSet:
    runs = [
        values.run(role, draft=3 if role is Role.DRAFTING else None) for role in (Role.TARGET, Role.DRAFTING)
    ]
    renamed = []
    for run in runs:
        pair = run.spec.pair
        spec = replace(run.spec, pair=replace(pair, target=replace(pair.target, filename=name)))
        renamed.append(replace(run, spec=spec))
    bench = values.bench(*renamed)
    identity = FileIdentity(path=f"/models/{name}", use=FileUse.MODEL, sha256="a" * 64, size_bytes=1)
    return replace(bench, meta=replace(bench.meta, files=(identity,)))


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_neither_html_nor_a_link(name: str, writer: str) -> None:
    text = WRITERS[writer](_bench(name))
    assert "gguf" in text
    for part in ("<svg", "<img", "x](evil", "![](evil"):
        assert part not in text
    assert harmless.markdown(text) == text


def test_the_files_of_a_bundle_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = _bench(NAMES[0])
    monkeypatch.setattr("ggufspec.report.plot.drawn", lambda bench: {})
    monkeypatch.setattr("ggufspec.report.html.sections.html", lambda *_, **__: "")
    facts = derived.Facts(
        benches=(bench.meta.id,),
        made_at=datetime.now(UTC).isoformat(),
        author=None,
        with_texts=False,
        with_parquet=False,
        with_charts=True,
        versions={"ggufspec": "1.0"},
    )
    files = derived.derive_files([bench], facts)
    for name, content in files.items():
        if name.endswith(".md"):
            assert b"<svg" not in content, name
    assert files["README.md"].startswith(b"---\ntags: [")


@pytest.mark.parametrize("text", ["< 0.1 %", "1.2× [1.1, 1.3]: faster", "a < b", "x [1] (2)", "a <- b", "|"])
def test_what_is_no_markdown_stays(text: str) -> None:
    assert harmless.markdown(text) == text
