"""A tuned configuration in every command: measured as it was, planned, talked to, shown and compared."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ggufspec
from ggufspec import paths, results
from ggufspec.console import talk
from ggufspec.domain import (
    NO_PROMPT,
    CacheTypes,
    Drafting,
    Launch,
    Method,
    ModelRun,
    Offload,
    Pair,
    Role,
    RunSpec,
    Runtime,
    Sampling,
    Serving,
    Traffic,
)
from ggufspec.errors import GgufspecError, ModelFileError
from ggufspec.measure import prepare_session
from ggufspec.options import BenchOptions, TalkOptions
from ggufspec.results import Configuration, Recommendation
from tests.support import fake_server, fakes, shell, values

DEMO = paths.models_dir() / "demo"
TARGET, DRAFTER = DEMO / "target.gguf", DEMO / "drafter.gguf"


@pytest.fixture(autouse=True)
def llama(llama: Path) -> Path:
    fake_server.program(llama / "llama-server")
    return fakes.install(llama, **fakes.AT_ONCE, devices=fakes.TWO_GPUS)


def _spec(
    target: Path = TARGET, drafter: Path | None = DRAFTER, *, known: bool = True, **changes: Any
) -> RunSpec:
    spec = values.spec(Role.DRAFTING, draft=5, path=target, known=known)
    draft = spec.pair.draft
    pair = Pair(
        name="demo",
        target=spec.pair.target,
        draft=None if drafter is None else replace(draft, path=drafter, filename=drafter.name),
    )
    facts: dict[str, Any] = {
        "pair": pair,
        "prompt": NO_PROMPT,
        "n_predict": 0,
        "context": 1024,
        "threads": 1,
        "drafting": Drafting(n_max=5, p_min=0.7),
        "role": Role.DRAFTING,
    }
    return replace(spec, **facts | changes)


def _store(spec: RunSpec, name: str = "tuned", **changes: Any) -> Configuration:
    """Store a bench with a tuned configuration."""
    slower = values.judgement(0.7) if spec.drafting is None else values.judgement()
    recommended: Recommendation = values.recommendation(spec=spec, judgement=slower)
    facts: dict[str, Any] = {"id": name, "overall": recommended, "by_category": {}, "passed_over": ()}
    configuration = values.configuration(**facts | {"serving": Serving(context=1024)} | changes)
    bench = results.load(name) if name in results.ids() else values.bench(*_runs(spec), name=name)
    results.write_configuration(configuration, bench.folder)
    return configuration


def _runs(spec: RunSpec) -> list[Any]:
    return [
        values.run(Role.TARGET, prompt=prompt, repeat=repeat, tps=tps * (1 + repeat / 100))
        for repeat in range(2)
        for prompt, tps in (("p1", 40.0), ("p2", 60.0))
    ]


ARMS = {
    "one drafter": {"n_predict": 32},
    "settings": {
        "offload": Offload(
            target=ModelRun(caches=CacheTypes("q8_0", "q8_0")),
            drafter=ModelRun(caches=CacheTypes("f16", "f16")),
        ),
        "ubatch": 256,
        "runtime": Runtime(flash_attn="on", batch=1024),
        "sampling": Sampling(temperature=0.7, top_k=20, top_p=0.9, seed=1),
    },
    "placement": {
        "offload": Offload(
            target=ModelRun(layers=5, devices=("CUDA0",)), drafter=ModelRun(layers="all"), fit=False
        )
    },
    "a method without a drafter": {
        "drafter": None,
        "drafting": Drafting(n_max=16, method=Method.NGRAM_SIMPLE),
    },
    "the target alone": {"drafter": None, "drafting": None, "role": Role.TARGET},
}


@pytest.mark.parametrize("changes", ARMS.values(), ids=ARMS)
def test_a_bench_measures_the_configuration_as_it_was_tuned(changes: dict[str, Any]) -> None:
    spec = _spec(**changes, known=False)
    _store(spec, engine="server")
    session = prepare_session(BenchOptions(tuned="tuned", n_predict=32))
    assert session.engine.name == "server"
    measured = {arm.key for block in session.suite.blocks for arm in block.arms}
    assert replace(spec, n_predict=32).key in measured
    assert {arm.role for arm in session.suite.blocks[0].arms} >= {spec.role, Role.TARGET}
    assert session.suite.prompts == prepare_session(BenchOptions(pair="demo")).suite.prompts
    assert session.notes[0] == "tuned: tuned, made on 2026-01-02"


def test_only_what_was_tuned_is_measured() -> None:
    _store(_spec())
    done = shell.done("bench", "--tuned", "tuned", "-p", "Once", "-n", "32", "-r", "1", "--name", "again")
    stored = results.load("again")
    assert stored.meta.engine == "server"
    assert {spec.drafting for spec in stored.current.specs} == {None, Drafting(n_max=5, p_min=0.7)}
    assert {spec.context for spec in stored.current.specs} == {1024}
    assert "tuned: on another machine (A Processor)" in done.stderr
    assert "tuned: with another llama.cpp (0.3.36, cpu)" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("bench", "--draft", "3"),
        ("bench", "--ngl", "3"),
        ("bench", "--flash-attn", "on"),
        ("bench", "--device", "CUDA0"),
        ("bench", "--engine", "binary"),
        ("bench", "--pair", "demo"),
        ("chat", "--once", "Hi", "--ctx", "512"),
        ("plan", "--kv-type", "f32"),
        ("plan", "--cache-type-k-draft", "f32"),
    ],
    ids=" ".join,
)
def test_what_the_configuration_decides_cannot_be_named_as_well(words: tuple[str, ...]) -> None:
    _store(_spec())
    done = shell.here(*words, "--tuned", "tuned")
    assert done.returncode == 2
    option = next(word for word in reversed(words) if word.startswith("--"))
    assert f"--tuned decides {option}: leave one of them out" in done.stderr


def test_a_tuning_measures_at_the_context_that_is_to_be_served() -> None:
    done = shell.here("tune", "--pair", "demo", "--ctx", "512", "--serve-ctx", "1024")
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "error: --ctx 512 and --serve-ctx 1024 differ"


def test_settings_do_not_stand_against_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    _store(_spec())
    for name, value in (("PAIR", "llama-3-70b"), ("THREADS", "2"), ("ENGINE", "binary")):
        monkeypatch.setenv(f"GGUFSPEC_{name}", value)
    done = shell.done("bench", "--tuned", "tuned", "-p", "Once", "-n", "32", "--dry-run")
    assert "--threads 1 " in done.stdout
    assert "llama-server" in done.stdout


def test_notebooks_take_it_and_get_the_same_refusal() -> None:
    _store(_spec())
    measured = ggufspec.bench(tuned="tuned", prompt=("Once",), n_predict=32, repeats=1)
    assert {spec.drafting for spec in measured.current.specs} == {None, Drafting(n_max=5, p_min=0.7)}
    others: tuple[dict[str, Any], ...] = ({"draft": 3}, {"engine": "inprocess"}, {"threads": 2})
    for other in others:
        with pytest.raises(GgufspecError, match=r"--tuned decides --(draft|engine|threads)"):
            ggufspec.bench(tuned="tuned", **other)


def test_the_tuned_llama_cpp_is_used(tmp_path: Path, llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = fakes.install(tmp_path / "other", **fakes.AT_ONCE)
    fake_server.program(tuned / "llama-server")
    _store(_spec(), build=replace(values.BUILD, path=str(tuned)))
    assert prepare_session(BenchOptions(tuned="tuned")).install.root == tuned
    assert prepare_session(BenchOptions(tuned="tuned", llama=llama)).install.root == llama
    shutil.rmtree(tuned)
    assert prepare_session(BenchOptions(tuned="tuned")).install.root == llama


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda file: file.unlink(), "there is no file .*, which the tuned configuration names"),
        (lambda file: file.write_bytes(file.read_bytes() + b"x"), "is not the file that was tuned"),
    ],
    ids=["gone", "another"],
)
@pytest.mark.parametrize("command", ["bench", "plan"])
def test_a_model_that_is_not_the_tuned_one_is_refused(
    tmp_path: Path, damage: Callable[[Path], object], reason: str, command: str
) -> None:
    target = Path(shutil.copy(TARGET, tmp_path / "target.gguf"))
    spec = _spec(target)
    sized = replace(spec.pair.target, size_bytes=target.stat().st_size)
    _store(replace(spec, pair=replace(spec.pair, target=sized)))
    prepare_session(BenchOptions(tuned="tuned"))
    damage(target)
    with pytest.raises(ModelFileError, match=reason):
        prepare_session(BenchOptions(tuned="tuned"))
    assert shell.here(command, "--tuned", "tuned").returncode == ModelFileError.exit_code


def test_a_chat_drafts_as_it_was_tuned() -> None:
    _store(_spec())
    chat = talk.begin(TalkOptions(tuned="tuned"))
    assert chat.arms[Role.DRAFTING].drafting == Drafting(n_max=5, p_min=0.7)
    assert chat.context == 1024
    chat.close()
    done = shell.done("chat", "--tuned", "tuned", "--once", "Once", "-n", "8", "-o", "json")
    assert json.loads(done.stdout)["draft"] == 5


def test_a_plan_is_of_the_tuned_layers_context_and_caches() -> None:
    drafter = ModelRun(layers="all", caches=CacheTypes("f32", "f32"))
    offload = Offload(target=ModelRun(layers=4), drafter=drafter)
    _store(_spec(offload=offload), serving=Serving(context=512, slots=2))
    done = shell.done("plan", "--tuned", "tuned", "--vram", "2G")
    assert "tuned: tuned, for a context of 512 tokens in each of 2 slots" in done.stderr
    assert done.stdout.startswith("4 of 9 layers fit beside the drafter")

    def rows(*words: str) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(shell.here("plan", *words, "-o", "csv").stdout)))

    same = ("-m", str(TARGET), "-md", str(DRAFTER), "-c", "1024", "-ctkd", "f32", "-ctvd", "f32")
    assert rows("--tuned", "tuned") == rows(*same)


def test_a_configuration_for_users_is_benched_for_as_many_planned_for_all_and_chats_with_one() -> None:
    spec = _spec(traffic=Traffic(users=2), context=512)
    _store(spec, engine="server", serving=Serving(context=512, slots=2))
    session = prepare_session(BenchOptions(tuned="tuned", n_predict=32))
    arms = [arm for block in session.suite.blocks for arm in block.arms]
    assert {(arm.n_slots, arm.context) for arm in arms} == {(2, 512)}
    done = shell.done("show", "tuned", "-o", "md")
    assert done.stdout.startswith("Draft with drafter.gguf, γ = 5, p-min 0.7 for 2 users at once: 1.60×")
    chat = talk.begin(TalkOptions(tuned="tuned"))
    assert {(arm.traffic, arm.context) for arm in chat.arms.values()} == {(None, 512)}
    chat.close()

    def plan() -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(shell.here("plan", "--tuned", "tuned", "-o", "csv").stdout)))

    for_users = plan()
    _store(_spec(context=1024), serving=Serving(context=512, slots=2))
    caches = [[row["target_host_cache_bytes"] for row in rows] for rows in (plan(), for_users)]
    assert caches[0] == caches[1]  # two slots of 512 tokens cache as much as one of 1,024


def test_show_and_report_begin_with_the_verdict_and_the_configuration(tmp_path: Path) -> None:
    _store(_spec(), passed_over=values.configuration().passed_over)
    shown = shell.here("show", "tuned", "-o", "md").stdout
    head, _, table = shown.partition("\n\n")
    assert head.splitlines()[0] == (
        "Draft with drafter.gguf, γ = 5, p-min 0.7: 1.60× [1.55×, 1.65×] of the target alone "
        "(12 prompts × 3 repeats, 3 loads)."
    )
    assert "Not taken, although it was faster: drafter.gguf, γ = 15, because llama-server cannot" in head
    assert "It serves one request at a time, each of up to 1024 tokens." in head
    assert "    /opt/llama.cpp/llama-server --model target.gguf --ctx-size 4096 --parallel 2\n" in head
    assert "`ggufspec bench --tuned tuned` measures it again." in head
    assert table.startswith("Engine: ")
    for words in ((), ("--tuned", "tuned")):
        page = tmp_path / "report.html"
        shell.done("report", *(words or ("tuned",)), "--out", str(page))
        text = page.read_text()
        assert 0 < text.index("Drafting with drafter.gguf, γ = 5, p-min 0.7 is faster") < text.index("<h2>")
        assert "--ctx-size 4096 --parallel 2" in text


def test_a_damaged_configuration_does_not_hide_the_bench() -> None:
    _store(_spec())
    file = results.find_configuration("tuned")
    file.write_bytes(file.read_bytes().replace(b'"n_max":5', b'"n_max":9'))
    done = shell.done("show", "tuned", "-o", "md")
    assert done.stdout.startswith("Engine: ")
    assert "does not match its checksum; the tuned configuration is left out" in done.stderr


def test_a_recommendation_not_to_draft_and_a_server_that_cannot_serve_are_said() -> None:
    spec = _spec(drafter=None, drafting=None, role=Role.TARGET)
    launch = Launch(argv=("llama-server",), failure="out of memory")
    _store(spec, launch=launch, serving_argv=())
    head, _, _ = shell.here("show", "tuned", "-o", "md").stdout.partition("\n\n")
    assert head.startswith(
        "Do not draft: the target alone has 80.00 [78.00, 82.00] tokens/s, and drafter.gguf, γ = 5, which "
        "comes closest, is 0.70× [0.65×, 0.75×] of it (12 prompts × 3 repeats, 3 loads)."
    )
    assert "llama-server cannot serve it: out of memory." in head
    assert "    llama-server" not in head


def test_a_bench_is_compared_with_that_of_the_tuning() -> None:
    _store(_spec())
    values.bench(*_runs(_spec()), name="today")
    assert shell.here("compare", "--tuned", "tuned", "today").stdout == (
        shell.here("compare", "tuned", "today").stdout
    )
    assert shell.here("compare", "--tuned", "tuned").stdout == shell.here("compare", "tuned").stdout
    refused = shell.here("compare")
    assert refused.returncode == 2
    assert "name a bench, or a tuning with --tuned" in refused.stderr


@pytest.mark.parametrize("command", ["bench", "chat", "plan", "report", "compare", "serve"])
def test_a_tuning_that_does_not_exist_is_refused(command: str) -> None:
    words = ("--once", "Hi") if command == "chat" else ()
    done = shell.here(command, *words, "--tuned", "last")
    assert done.returncode == 13
    assert done.stderr.splitlines() == ["error: nothing is tuned yet", "hint: run `ggufspec tune` first"]
