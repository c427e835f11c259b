"""``ggufspec issue`` on a real llama-server with a fault: the report has what shows it, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

import ggufspec
from ggufspec import prompts
from ggufspec.choices import FindingKind
from ggufspec.llama.install.installs import Install
from ggufspec.options import BenchOptions
from tests.support import altered

pytestmark = pytest.mark.takes(15)


def test_a_text_that_an_altered_kernel_changes_is_reported(
    llama: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_THREAD_LIMIT", "1")  # also where a command is tried without --threads
    programs = altered.alter_rope(llama, altered.IN_BATCHES, tmp_path)
    text = next(prompt.text for prompt in prompts.suite("demo").prompts if prompt.id == "story-lantern")
    asked = {"engine": "server", "pair": "demo", "prompt": text, "n_predict": 8, "draft": 5, "repeats": 1}
    bench = ggufspec.bench(BenchOptions(**asked, llama=programs, threads=1, ubatch=128))
    made = ggufspec.issue(bench, offline=True)
    assert made.finding.kind is FindingKind.TEXT
    own, drafted = (run.sample.text for run in made.evidence.runs)
    assert own != drafted
    assert not {"--ubatch-size", "--ctx-size", "--flash-attn", "top_p", "seed"} - made.dropped
    assert {"--model-draft", "--spec-draft-n-max"} < {*made.command}  # 5 tokens: the default is another batch
    assert "curl -N http://127.0.0.1:" in made.report
    assert str(tmp_path) not in made.report
