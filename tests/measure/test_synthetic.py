"""Drafts that are accepted by simulation, and drafts that are sampled: where there is that choice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ggufspec import results, tuning
from ggufspec.analysis import arms, comparing, review
from ggufspec.domain import (
    ENGINES,
    Chain,
    Drafting,
    DraftSampling,
    Method,
    ModelRun,
    Offload,
    Program,
    Prompt,
    Role,
    RunResult,
    RunSpec,
    Sampling,
)
from ggufspec.engines import check_draft_sampling, check_synthetic
from ggufspec.engines.server.response import body
from ggufspec.errors import GgufspecError
from ggufspec.llama.command import commands
from ggufspec.measure import configured, prepare_session
from ggufspec.measure.sweep import shares
from ggufspec.options import BenchOptions
from ggufspec.options.kinds import Shares
from ggufspec.report import frames
from ggufspec.report.html.sections import html
from ggufspec.report.rows.benches import SettingsRow
from ggufspec.report.text import configuration, formats
from ggufspec.report.text.chart import curve
from ggufspec.report.text.overview import overview
from ggufspec.results import ResultSet
from ggufspec.tuning import prospects
from tests.support import command_lines, fakes, scripted, values
from tests.support.fakes import recorded_install

RATES = (0.7, 0.49, 0.343)
SPEC = replace(
    values.spec(Role.DRAFTING, draft=3, path=Path("T")),
    offload=Offload(target=ModelRun(layers=45), drafter=ModelRun(layers="all")),
    drafting=Drafting(n_max=3, synthetic=RATES),
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


DRAFTS = (Method.DRAFT_MODEL,)


@pytest.mark.parametrize(
    ("engine", "build", "methods", "said"),
    [
        ("server", "0.3.16", DRAFTS, "does not list --spec-synth-rates"),
        ("server", "0.3.24", DRAFTS, "does not list --spec-synth-rates"),
        ("binary", "0.3.36", DRAFTS, "engine binary does not support synthetic"),
        ("binary-simple", "0.3.36", DRAFTS, "engine binary-simple does not support synthetic"),
        ("inprocess", "0.3.36", DRAFTS, "engine inprocess does not support synthetic"),
        ("server", "0.3.36", (), "needs a draft model"),
        ("server", "0.3.36", (Method.NGRAM_MOD,), "needs a draft model"),
        ("server", "0.3.36", (*DRAFTS, Method.NGRAM_SIMPLE), "needs a draft model"),
        ("server", "0.3.36", DRAFTS, None),
    ],
)
def test_it_is_refused_where_no_server_drafts_so(
    engine: str, build: str, methods: tuple[Method, ...], said: str | None
) -> None:
    if said is None:
        check_synthetic(engine, recorded_install(build), methods)
        return
    with pytest.raises(GgufspecError, match=said) as caught:
        check_synthetic(engine, recorded_install(build), methods)
    assert engine == "server" or caught.value.hint == "add --engine server"


def test_each_prompt_throws_other_dice_and_a_repeat_the_same() -> None:
    def seed(spec: RunSpec) -> Any:
        return body(spec, per_request=False, caches=False)["seed"]

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
    asked: dict[str, Any], said: str, llama: Path
) -> None:
    fakes.program(llama / "llama-server", "", help_from="llama-server")
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


# Whether drafts are the likeliest tokens or sampled

KNOWS, OLDER = "b11434", "0.3.36"
SAMPLED = Drafting(n_max=3, sampling=DraftSampling.PROBABILISTIC)
WARM = Sampling(temperature=0.6, top_k=40)


def _spec(drafting: Drafting = SAMPLED) -> RunSpec:
    return replace(values.spec(Role.DRAFTING, draft=3, path=Path("T")), drafting=drafting, sampling=WARM)


def _served(spec: RunSpec, build: str = KNOWS) -> tuple[str, ...]:
    return commands.serving_argv(spec, recorded_install(build), slots=1, port=8080)


@pytest.mark.parametrize("sampling", DraftSampling)
@pytest.mark.parametrize("method", [method for method in Method if method.samples_drafts])
def test_a_server_is_told_how_to_choose_drafts(method: Method, sampling: DraftSampling) -> None:
    words = _served(_spec(Drafting(n_max=3, method=method, sampling=sampling)))
    assert words[words.index("--spec-draft-sampling") + 1] == sampling.value
    assert "--spec-draft-sampling" not in _served(_spec(Drafting(n_max=3, method=method)))


@pytest.mark.parametrize("program", [Program.TREE, Program.SIMPLE])
def test_programs_that_list_the_flag_and_ignore_it_are_refused(program: Program) -> None:
    install = recorded_install(KNOWS)
    assert "--spec-draft-sampling" in install.executable(program).options
    with pytest.raises(GgufspecError, match="only llama-server has a choice"):
        commands.argv(_spec(), install, program=program)
    assert commands.run_command(_spec(), install) is None  # no command that would draft in another way


@pytest.mark.parametrize(
    ("engine", "build", "methods", "sampling", "message"),
    [
        ("binary", KNOWS, [Method.DRAFT_MODEL], WARM, "only llama-server"),
        ("binary-simple", KNOWS, [Method.DRAFT_MODEL], WARM, "only llama-server"),
        ("inprocess", KNOWS, [Method.DRAFT_MODEL], WARM, "only llama-server"),
        ("server", OLDER, [Method.DRAFT_MODEL], WARM, "has no --spec-draft-sampling"),
        ("server", KNOWS, [Method.DRAFT_EAGLE3, Method.NGRAM_MOD], WARM, "drafts by draft-eagle3, ngram-mod"),
        ("server", KNOWS, [Method.DRAFT_MODEL], Sampling(), "which is 0"),
    ],
)
def test_what_has_no_such_choice_is_refused_by_name(
    engine: str, build: str, methods: Sequence[Method], sampling: Sampling, message: str
) -> None:
    with pytest.raises(GgufspecError, match=message):
        check_draft_sampling(engine, recorded_install(build), methods, tuple(DraftSampling), sampling)


def test_greedy_drafts_can_be_asked_for_at_any_temperature() -> None:
    install = recorded_install(KNOWS)
    check_draft_sampling("server", install, [Method.DRAFT_MODEL], [DraftSampling.GREEDY], Sampling())
    check_draft_sampling("server", install, [Method.DRAFT_MTP], tuple(DraftSampling), WARM)


def test_it_is_an_axis_of_the_methods_that_have_it() -> None:
    sweep = scripted.sweep(
        methods=(Method.DRAFT_MODEL, Method.NGRAM_MOD),
        chains=(Chain.parse("ngram-mod+draft-model"),),
        draft_sizes=(48,),
        draft_samplings=tuple(DraftSampling),
        sampling=WARM,
    )
    (block,) = sweep.blocks()
    draftings = [arm.drafting for arm in block.arms if arm.drafting]
    assert sorted((str(drafting.chain), drafting.sampling or "") for drafting in draftings) == [
        ("draft-model", "greedy"),
        ("draft-model", "probabilistic"),
        ("ngram-mod", ""),
        ("ngram-mod+draft-model", "greedy"),
        ("ngram-mod+draft-model", "probabilistic"),
    ]
    assert sweep.blocks().n_arms[Role.DRAFTING] == len(draftings)


def test_its_names_are_read_and_said() -> None:
    read = command_lines.read("bench", "--spec-draft-sampling", "greedy,probabilistic", "--temp", "1")
    assert read == BenchOptions(draft_sampling=tuple(DraftSampling), temp=1.0)
    assert command_lines.read("bench", *read.to_argv()) == read
    assert "--draft-sampling" in read.to_argv()
    with pytest.raises(GgufspecError, match="draft_sampling: 'nucleus'"):
        BenchOptions(draft_sampling="nucleus").draft_samplings  # noqa: B018  # read for its check
    assert SettingsRow.record(_spec())["draft_sampling"] == "probabilistic"
    assert SettingsRow.record(_spec(Drafting(n_max=3)))["draft_sampling"] is None
    assert configuration.name(_spec()) == "drafter.gguf, γ = 3, probabilistic drafts"
    assert configured.options_of(_spec())["draft_sampling"] is DraftSampling.PROBABILISTIC


@pytest.mark.parametrize(
    ("engine", "sampling", "exactly"),
    [
        ("server", None, False),
        ("server", DraftSampling.GREEDY, False),
        ("server", DraftSampling.PROBABILISTIC, True),
        ("binary-simple", None, False),
        ("binary", None, True),
        ("inprocess", None, True),
    ],
)
def test_rejection_samples_exactly(engine: str, sampling: DraftSampling | None, exactly: bool) -> None:
    arm = _spec(Drafting(n_max=3, sampling=sampling))
    assert prospects.samples_exactly(arm, engine, ENGINES[engine]) is exactly


@pytest.mark.parametrize(
    ("drafting", "users", "known"),
    [
        (SAMPLED, 1, True),
        (SAMPLED, 2, False),
        (replace(SAMPLED, p_min=0.5), 1, False),
        (replace(SAMPLED, method=Method.DRAFT_MTP), 1, False),
        (replace(SAMPLED, sampling=DraftSampling.GREEDY, p_min=0.5), 2, True),
    ],
)
def test_traced_overlaps_forecast_sampled_drafts(drafting: Drafting, users: int, known: bool) -> None:
    arm, heads = replace(values.spec(Role.DRAFTING, draft=3), drafting=drafting), frozenset(Method)
    assert prospects.can_forecast(arm, Program.SERVER, 11434, heads=heads, users=users) is known
