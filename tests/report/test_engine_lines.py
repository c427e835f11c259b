"""Every table names its engine, two engines get no verdict, and a choice is repeated in its own engine."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ggufspec import engines, paths, results
from ggufspec.analysis import comparing
from ggufspec.cli.steps.tuning import bench_command
from ggufspec.domain import Role
from ggufspec.errors import ResultsError
from ggufspec.measure import prepare_session
from ggufspec.options import BenchOptions
from ggufspec.report.html.notebook import notebook_html
from ggufspec.report.html.sections import html
from ggufspec.report.text import figures
from tests.support import command_lines, fake_server, fakes, shell
from tests.support.swept import swept

DEMO = paths.models_dir() / "demo"
TARGET, DRAFTER = DEMO / "target.gguf", DEMO / "drafter.gguf"


@pytest.fixture
def llama(llama: Path) -> Path:
    fake_server.program(llama / "llama-server")
    return fakes.install(llama, **fakes.AT_ONCE, devices=fakes.TWO_GPUS)


def test_every_engine_has_a_line_of_its_own() -> None:
    lines = {name: figures.engine(name) for name in engines.ENGINES}
    assert len(set(lines.values())) == len(engines.ENGINES)
    assert all(line.startswith(f"Engine: {name} (") for name, line in lines.items())
    assert figures.engine("another") == "Engine: another."


@pytest.mark.parametrize("engine", ["binary", "server", "inprocess"])
def test_every_table_names_its_engine_in_the_first_line(engine: str) -> None:
    bench = swept(engine=engine, name="b")
    results.close(bench)
    first = figures.engine(engine)
    for words in ((), ("--runs",), ("--per", "category"), ("--per", "prompt"), ("--columns", "role,gen_tps")):
        lines = shell.here("show", "b", *words).stdout.splitlines()
        assert (lines[0], lines[1], lines[2][0]) == (first, "", "|")
    assert shell.here("compare", "b", "b").stdout.splitlines()[0] == first
    for page in (html(bench), notebook_html(bench)):
        plain = page.replace("<code>", "`").replace("</code>", "`")  # code in a sentence is shown as code
        assert first.replace("'", "&#39;") in plain


def test_a_plan_names_the_engine_that_would_measure(llama: Path) -> None:
    for engine in ("binary", "binary-simple", "server"):
        for more in ((), ("-ub", "1-200", "--draft", "1-8")):
            words = ("sweep", "--pair", "demo", "-p", "Hi", "--engine", engine, "--dry-run", *more)
            assert shell.here(*words).stdout.splitlines()[0] == figures.engine(engine)


def test_two_engines_give_ratios_without_a_verdict_and_say_why() -> None:
    before, after = swept(engine="binary", name="before"), swept(engine="server", name="after", gain=1.8)
    for bench in (before, after):
        results.close(bench)
    compared = comparing.compare(before, after)
    done = shell.done("compare", "before", "after")
    assert done.stdout.splitlines()[0] == "Engines: binary before, server after."
    head = next(line for line in done.stdout.splitlines() if line.startswith("|"))
    assert "after/before" in head
    assert not {"verdict", "p"} & {cell.strip() for cell in head.split("|")}
    reason = (
        "no verdict: before was measured with the engine binary and after with server, other programs that "
        "draft and time in their own way; measure both with one --engine"
    )
    assert f"N{reason[1:]}." in done.stdout.splitlines()
    rows = json.loads(shell.here("compare", "before", "after", "-o", "json").stdout)
    assert [(row["verdict"], row["p_value"]) for row in rows] == [(None, None)] * 3
    assert [row["ratio"] for row in rows] == pytest.approx([1.0, 1.5, 1.5])
    page = html([before, after]).partition('id="compared-title"')[2].partition("<script>")[0]
    for shown in (notebook_html(compared), page):
        assert reason[1:] in shown
        assert "faster" not in shown
    failing = shell.here("compare", "before", "after", "--fail-slower", "3%")
    assert failing.returncode == ResultsError.exit_code
    assert f"error: {reason}" in failing.stderr
    assert "hint: compare benches of one engine" in failing.stderr


def test_one_engine_gives_a_verdict() -> None:
    sides = ["before0", "before1", "before2"], ["after0", "after1", "after2"]
    for names, gain in zip(sides, (1.2, 1.8), strict=True):
        for name in names:
            results.close(swept(name=name, gain=gain))
    words = ("compare", *sides[0], "--", *sides[1])
    text = shell.here(*words).stdout
    assert "| verdict" in text
    assert "o verdict" not in text.partition("\nwarning ")[0]
    rows = json.loads(shell.here(*words, "-o", "json").stdout)
    # other programs ran: whether the target alone is as fast as before is open
    assert {row["verdict"] for row in rows} == {"undecided", "faster"}


@pytest.mark.parametrize(
    "asked",
    [
        {"pair": "demo"},
        {"pair": "demo", "engine": "binary", "draft": (5,), "threads": 2, "n_predict": 77},
        {"pair": "demo", "suite": "seven", "per_category": 2, "seed": 7, "chat": False},
        {"target": TARGET, "draft_model": (DRAFTER, TARGET), "prompt": ("it's", "$HOME `x`\n\n")},
        {"pair": "demo", "p_min": (0.0, 0.75), "kv_type": "q8_0", "ubatch": 128},
        {
            "pair": "demo",
            "cache_type_k": "q8_0",
            "cache_type_v": "f16",
            "flash_attn": "off",
            "batch": 256,
            "mlock": True,
            "prio": 1,
        },
        {"pair": "demo", "cache_type_k_draft": "f16", "cache_type_v_draft": "q8_0", "args": ("--no-repack",)},
        {"pair": "demo", "temp": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.05},
        {"pair": "demo", "ngl": (3, "all"), "ngld": (0, "all"), "force": True},
        {
            "pair": "demo",
            "ngl": 2,
            "devices": ("CUDA0", "CUDA1"),
            "draft_devices": ("CUDA1",),
            "tensor_split": ((3.0, 1.0), (1.0, 1.0)),
            "split_mode": "layer",
            "main_gpu": 1,
            "cpu_moe": 3,
            "draft_cpu_moe": "all",
            "fit": "off",
        },
        {"pair": "demo", "engine": "binary-simple", "method": ("draft-model", "ngram-mod", "ngram-cache")},
    ],
    ids=str,
)
def test_the_command_that_repeats_a_choice_measures_it(llama: Path, asked: dict[str, Any]) -> None:
    wanted = BenchOptions(**{"engine": "server", **asked})
    session = prepare_session(wanted)
    for block in session.suite.blocks:
        for arm in (arm for arm in block.arms if arm.role is not Role.DRAFTER):
            _, *words = shlex.split(bench_command(wanted, arm))
            again = command_lines.read(*words)
            assert again.engine == wanted.engine
            repeated = prepare_session(again)
            texts = [[prompt.text for prompt in each.suite.prompts] for each in (repeated, session)]
            assert texts[0] == texts[1]
            assert arm.key in {each.key for each in repeated.suite.blocks[0].arms}


def test_paths_hold_everywhere(llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a prompt.txt").write_text("Once")
    wanted = BenchOptions(
        pair="demo", prompt_file=(Path("a prompt.txt"),), llama=Path("llama"), engine="binary"
    )
    arm = prepare_session(wanted).suite.blocks[0].arms[-1]
    words = shlex.split(bench_command(wanted, replace(arm, n_predict=40)))
    assert words[words.index("--prompt-file") + 1] == str(tmp_path / "a prompt.txt")
    assert words[words.index("--llama") + 1] == str(tmp_path / "llama")
    assert words[words.index("--n-predict") + 1] == "40"
    assert words[words.index("--draft-model") + 1] == str(DRAFTER)
