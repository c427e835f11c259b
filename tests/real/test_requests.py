"""Prompts that are requests, on a real llama-server and the embedded pair: schemas hold, and drafts count.

The pair knows one invented village and no tools: these tests show that requests are asked, not what drafting
gains with them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ggufspec
from ggufspec import paths
from ggufspec.domain import Role, Status
from ggufspec.errors import GgufspecError
from ggufspec.llama.install.installs import Install
from tests.support import shell

SCHEMA = {
    "type": "object",
    "properties": {"who": {"enum": ["Mira", "Oskar"]}, "at": {"enum": ["river", "mill", "bakery"]}},
    "required": ["who", "at"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "find", "parameters": SCHEMA}}
BESIDE = {"id": "beside", "prompt": "Story: Mira and the brass lantern\n", "json_schema": SCHEMA}
DOT = (  # a PNG of one pixel
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAA"
    "AABJRU5ErkJggg=="
)
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Who has the lantern?"}]}


def _bench(tmp_path: Path, llama: Install, *rows: dict[str, Any], **options: Any) -> ggufspec.ResultSet:
    file = tmp_path / "requests.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ggufspec.bench(
        pair="demo",
        prompt_file=(file,),
        llama=(llama.root,),
        draft=4,
        n_predict=250,
        threads=1,
        repeats=1,
        warmup=0,
        **options,
    )


def test_answers_satisfy_their_schema_and_drafting_changes_none(tmp_path: Path, llama: Install) -> None:
    asked = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}
    template = tmp_path / "own.jinja"
    template.write_text("{% for message in messages %}{{ message.content }}\n{% endfor %}")
    results = _bench(tmp_path, llama, BESIDE, {"id": "chat", **CHAT, **asked}, chat_template_file=template)
    assert results.meta.engine == "server"
    assert "own.jinja" in {file.name for file in results.meta.files or ()}
    assert all("--chat-template-file" in run.argv for run in results.runs)
    runs = [run for run in results.runs if run.spec.role is not Role.DRAFTER]
    assert {run.sample.status for run in runs} == {Status.OK}
    table = ggufspec.summary(results)
    assert table.loc[table["role"] != "drafter", "valid"].tolist() == [1.0, 1.0]
    for run in runs:
        if run.spec.role is Role.DRAFTING:
            assert run.text_identical
            assert run.sample.n_drafted
            assert run.audit is None  # the target does not know what the template and the grammar did


def test_a_schema_that_is_left_out_still_judges_answers(tmp_path: Path, llama: Install) -> None:
    results = _bench(tmp_path, llama, BESIDE, constrain=("on", "off"))
    table = ggufspec.summary(results)
    drafting = table[table["role"] == "drafting"]
    assert drafting["settings"].fillna("").tolist() == ["", "--constrain off"]
    assert drafting["valid"].tolist() == [1.0, 0.0]


def test_programs_take_schemas_beside_texts(tmp_path: Path, llama: Install) -> None:
    results = _bench(tmp_path, llama, BESIDE, engine="binary-simple")
    texts = {run.spec.role: run.sample.text for run in results.runs if run.spec.role is not Role.DRAFTER}
    assert json.loads(texts[Role.TARGET] or "")["who"] in {"Mira", "Oskar"}
    assert texts[Role.DRAFTING] == texts[Role.TARGET]


@pytest.mark.parametrize("engine", ["binary", "binary-simple", "inprocess"])
def test_engines_that_cannot_ask_refuse_before_runs(tmp_path: Path, llama: Install, engine: str) -> None:
    with pytest.raises(GgufspecError, match=f"the engine {engine} cannot ask for .*tools"):
        _bench(tmp_path, llama, CHAT | {"tools": [TOOL]}, engine=engine)


def test_drafting_goes_on_behind_an_image_no_narrow_drafter_sees(tmp_path: Path, llama: Install) -> None:
    projector = tmp_path / "mmproj.gguf"
    target = paths.models_dir() / "demo" / "target.gguf"
    shell.make("make_random_mmproj", target, "-o", projector)
    image = {"type": "image_url", "image_url": {"url": DOT}}
    seen = [{"role": "user", "content": [{"type": "text", "text": "Who has the lantern?"}, image]}]
    with pytest.raises(GgufspecError, match="prompts have images, and nothing reads them"):
        _bench(tmp_path, llama, {"messages": seen})
    rows = ({"id": "seen", "messages": seen}, {"id": "told", **CHAT, "stop": "@"})
    results = _bench(tmp_path, llama, *rows, mmproj=projector)
    assert {file.name for file in results.meta.files or ()} >= {"mmproj.gguf", "target.gguf"}
    assert {run.spec.role for run in results.runs} == {Role.TARGET, Role.DRAFTING}
    read = {}
    for run in results.runs:
        is_drafting, is_seen = run.spec.role is Role.DRAFTING, run.spec.prompt.id == "seen"
        assert run.sample.status is Status.OK
        assert run.text_identical or not is_drafting
        assert bool(run.sample.n_drafted) == is_drafting
        assert ("drafter-reads-zeros" in run.doubts) == (is_drafting and is_seen)
        read[run.spec.prompt.id] = run.sample.prompt_tokens or 0
    assert read["seen"] >= read["told"] + 4  # the tokens of the image
