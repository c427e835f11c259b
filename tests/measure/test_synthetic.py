"""Synthetic acceptance: dice instead of the target's verdict, said wherever its figures appear."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ggufspec import results, tuning
from ggufspec.analysis import arms, comparing, review
from ggufspec.domain import (
    Drafting,
    Method,
    ModelFile,
    ModelRun,
    Offload,
    Pair,
    Prompt,
    Role,
    RunResult,
    RunSpec,
)
from ggufspec.engines import check_synthetic
from ggufspec.engines.server.response import body
from ggufspec.errors import GgufspecError
from ggufspec.llama.command import commands
from ggufspec.measure import prepare_session
from ggufspec.measure.sweep import shares
from ggufspec.options import BenchOptions
from ggufspec.options.kinds import Shares
from ggufspec.report import frames
from ggufspec.report.text import formats
from ggufspec.results import ResultSet
from tests.support import fakes, scripted, values
from tests.support.fakes import recorded_install

RATES = (0.7, 0.49, 0.343)
SPEC = replace(
    values.spec(Role.DRAFTING, draft=3, path=Path("T")),
    offload=Offload(target=ModelRun(layers=45), drafter=ModelRun(layers="all")),
    drafting=Drafting(n_max=3, synthetic=RATES),
)


def _recorded_spec() -> RunSpec:
    pair = Pair(name="p", target=ModelFile(filename="t.gguf"), draft=ModelFile(filename="d.gguf"))
    return RunSpec(
        pair=pair,
        role=Role.DRAFTING,
        prompt=Prompt(id="a", text="Once"),
        n_predict=64,
        context=512,
        threads=2,
        drafting=Drafting(n_max=3),
    )


@pytest.mark.parametrize(
    ("asked", "n_max", "expected"),
    [
        (None, 3, None),
        ((0.5,), 3, (0.5, 0.25, 0.125)),
        ((0.9, 0.8, 0.7), 3, (0.9, 0.8, 0.7)),
        ((0.9, 0.8, 0.7), 2, (0.9, 0.8)),
        ((1.0,), 2, (1.0, 1.0)),
        ((0.0,), 2, (0.0, 0.0)),
    ],
)
def test_one_chance_or_shares_by_position(
    asked: tuple[float, ...] | None, n_max: int, expected: tuple[float, ...] | None
) -> None:
    assert shares(asked, n_max) == expected


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ((0.5, 0.6), "must not increase"),
        ((1.2,), "from 0 to 1"),
        ((), "from 0 to 1"),
        ((0.9, 0.8), "γ 3 has more"),
    ],
)
def test_what_are_no_shares_is_said(asked: tuple[float, ...], said: str) -> None:
    with pytest.raises(GgufspecError, match=said):
        shares(asked, 3)


def test_a_sweep_gives_every_draft_size_its_own_rates() -> None:
    (block,) = scripted.sweep(draft_sizes=(1, 3), synthetic=(0.5,)).blocks()
    found = [arm.drafting.synthetic for arm in block.arms if arm.drafting]
    assert found == [(0.5,), (0.5, 0.25, 0.125)]


def test_llama_server_is_told() -> None:
    words = commands.server_argv(SPEC, recorded_install("0.3.36"), port=1, key_file=Path("K"), slots_dir=None)
    assert words[words.index("--spec-synth-rates") + 1] == "0.7,0.49,0.343"
    plain = replace(SPEC, drafting=Drafting(n_max=3))
    assert "--spec-synth-rates" not in commands.server_argv(
        plain, recorded_install("0.3.36"), port=1, key_file=Path("K"), slots_dir=None
    )


@pytest.mark.parametrize("build", ["0.3.16", "0.3.24"])
def test_a_server_without_dice_is_refused(build: str) -> None:
    with pytest.raises(GgufspecError, match="does not list --spec-synth-rates"):
        commands.server_argv(SPEC, recorded_install(build), port=1, key_file=Path("K"), slots_dir=None)
    with pytest.raises(GgufspecError, match="does not list --spec-synth-rates"):
        check_synthetic("server", recorded_install(build), (Method.DRAFT_MODEL,))


@pytest.mark.parametrize("engine", ["binary", "binary-simple", "inprocess"])
def test_other_engines_say_that_they_cannot(engine: str) -> None:
    with pytest.raises(GgufspecError, match=f"engine {engine} does not support synthetic") as caught:
        check_synthetic(engine, recorded_install("0.3.36"), (Method.DRAFT_MODEL,))
    assert caught.value.hint == "add --engine server"


@pytest.mark.parametrize("methods", [(), (Method.NGRAM_MOD,), (Method.DRAFT_MODEL, Method.NGRAM_SIMPLE)])
def test_it_is_for_drafting_with_a_model_alone(methods: tuple[Method, ...]) -> None:
    with pytest.raises(GgufspecError, match="needs a draft model"):
        check_synthetic("server", recorded_install("0.3.36"), methods)
    check_synthetic("server", recorded_install("0.3.36"), (Method.DRAFT_MODEL,))


def test_each_prompt_throws_other_dice_and_a_repeat_the_same() -> None:
    def seed(spec: RunSpec) -> Any:
        return body(spec, per_request=False, may_draft=True, caches=False)["seed"]

    other = replace(SPEC, prompt=Prompt(id="p2", text="Something else"))
    assert seed(SPEC) == seed(replace(SPEC)) != seed(other)
    assert seed(SPEC) != seed(replace(SPEC, sampling=replace(SPEC.sampling, seed=2)))
    assert 0 <= seed(SPEC) < 1 << 31
    assert seed(replace(SPEC, drafting=Drafting(n_max=3))) == 1


def _run(run: RunResult) -> RunResult:
    if run.spec.drafting is None:
        return run
    drafting = replace(run.spec.drafting, synthetic=RATES)
    return replace(
        run, spec=replace(run.spec, drafting=drafting), doubts=("synthetic-acceptance",), text_identical=None
    )


def _bench(*, synthetic: bool) -> ResultSet:
    store = results.create(replace(values.META, engine="server"))
    runs = [
        run
        for prompt in ("p1", "p2")
        for repeat in (0, 1)
        for run in (
            values.run(prompt=prompt, repeat=repeat),
            values.run(Role.DRAFTING, prompt=prompt, repeat=repeat, tps=80.0, draft=3),
        )
    ]
    for run in runs:
        run = replace(run, text_identical=True) if run.spec.drafting else run
        store = results.append(store, _run(run) if synthetic else run)
    results.close(store)
    return results.load(store.meta.id)


def test_every_table_says_it() -> None:
    from ggufspec.report.html.sections import html
    from ggufspec.report.text.chart import curve
    from ggufspec.report.text.overview import overview

    bench, real = _bench(synthetic=True), _bench(synthetic=False)
    summary = frames.summary(bench)
    texts = {
        "table": overview(bench),
        "curve": curve(bench),
        "json": formats.render(summary, "json", title="summary"),
        "csv": formats.render(summary, "csv", title="summary"),
        "runs": formats.render(frames.runs(bench), "csv", title="runs"),
        "prompts": formats.render(frames.prompts(bench), "csv", title="prompts"),
        "html": html(bench),
        "notebook": bench._repr_html_(),
    }
    assert not [name for name, text in texts.items() if "synthetic" not in str(text)]
    assert "drafting, synthetic" in texts["table"]
    assert "not checked: synthetic acceptance" in texts["table"]
    assert "not checked: synthetic acceptance" in texts["html"]
    assert "0.7,0.49,0.343" in str(texts["csv"])
    assert json.loads(str(texts["json"]))[1]["synthetic_accept"] == "0.7,0.49,0.343"
    assert "synthetic-acceptance" in review.warnings(bench)
    for said in (overview(real), curve(real), html(real)):
        assert "synthetic" not in said.replace("synthetic_accept", "")


def test_it_is_no_verdict() -> None:
    (_, drafting) = arms.group(_bench(synthetic=True))
    assert drafting.synthetic
    assert drafting.compared == {}
    assert "text-differs" not in review.of_arm(drafting)
    dice, real = _bench(synthetic=True), _bench(synthetic=False)
    compared = comparing.compare(real, dice)
    assert [row.before.role for row in compared.rows] == [Role.TARGET]
    assert any("synthetic=0.7,0.49,0.343" in arm for arm in compared.unmatched)
    both = comparing.compare(dice, dice)
    assert [row.texts_equal for row in both.rows] == [2, None]
    with pytest.raises(TypeError, match="no option 'synthetic_accept'"):
        tuning.tune(synthetic_accept=0.7)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"engine": "binary-simple"}, "engine binary-simple does not support"),
        ({"method": "ngram-simple", "engine": "server"}, "needs a draft model"),
        ({"engine": "server", "synthetic_accept": (0.9, 0.8)}, "γ 3 has more"),
    ],
)
def test_a_request_that_cannot_work_fails_before_anything_runs(
    asked: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fakes.install(tmp_path / "llama")
    fakes.program(folder / "llama-server", "", help_from="llama-server")
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(folder))
    with pytest.raises(GgufspecError, match=said):
        prepare_session(BenchOptions(**{"synthetic_accept": 0.7, **asked}))


def test_the_command_line_takes_a_chance_a_rate_at_a_draft_size_or_shares() -> None:
    kind = Shares()
    assert kind.parse("0.7") == (0.7,)
    assert kind.parse("0.9,0.8,0.7") == (0.9, 0.8, 0.7)
    (alpha,) = kind.parse("0.708@3")
    assert sum(shares((alpha,), 3) or ()) / 3 == pytest.approx(0.708, abs=1e-6)


@pytest.mark.parametrize("text", ["often", "1.2", "-0.1", "0.7,0.8", "0.7@", "0.7@0", "nan", ""])
def test_the_command_line_refuses_what_is_no_acceptance(text: str) -> None:
    with pytest.raises(ValueError, match="not an acceptance from 0 to 1"):
        Shares().parse(text)
