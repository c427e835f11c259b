"""Tuning: budgets, where models go, who is worth measuring, and the verdict."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ggufspec import tuning
from ggufspec.domain import (
    Drafting,
    Method,
    ModelFile,
    ModelRun,
    Offload,
    Pair,
    Program,
    Prompt,
    Request,
    Role,
    RunSpec,
)
from ggufspec.errors import GgufspecError, ResultsError
from ggufspec.forecast import RoundRange, concurrency
from ggufspec.forecast.profiles import TracedTexts
from ggufspec.forecast.trace import TracedRun
from ggufspec.forecast.whatif import Machines
from ggufspec.measure.sweep import Block
from ggufspec.modelfiles import memory
from ggufspec.modelfiles.gguf import read_card
from ggufspec.options import TuneOptions
from ggufspec.report import frames
from ggufspec.report.text import tuned as tuned_report
from ggufspec.serving import plan_traffic
from ggufspec.tuning import budgeting, planning, prospects, running
from tests.support import (
    fake_server,
    fakes,
    models,
    quick_look,
    shapes,
    shell,
    simulated_tuning,
    tunings,
    values,
)
from tests.support.schemas import validate
from tests.support.walks import rounds_of

GIB = 1 << 30
HEADS = frozenset({Method.DRAFT_EAGLE3, Method.DRAFT_MTP, Method.DRAFT_DFLASH})
HYPER: dict[str, Any] = {"hyper_connection.count": 4}
ROPE: dict[str, Any] = {"rope.dimension_sections": [8, 0, 0, 0]}


def _arm(
    n_max: int = 3, p_min: float = 0.0, drafter: str = "drafter.gguf", offload: Offload | None = None
) -> RunSpec:
    pair = replace(values.spec(Role.DRAFTING).pair, draft=ModelFile(filename=drafter))
    drafting = Drafting(n_max=n_max, p_min=p_min)
    return tunings.arm(n_max, pair=pair, drafting=drafting, offload=offload or Offload())


@pytest.fixture
def llama(llama: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A llama.cpp of fake programs; nothing is traced with its library."""
    fake_server.program(llama / "llama-server")
    quick_look.use(monkeypatch.setattr)
    return llama


def _traces(*texts: TracedTexts) -> prospects.Traces:
    drafters = [ModelFile(filename="drafter.gguf")]
    return prospects.Traces(texts=texts, drafters=drafters, engine="server", n_predict=20, build=None)


def _talk(name: str, *lengths: int) -> Prompt:
    """A recorded conversation whose turns add so many letters, and two for the space between them."""
    later = [Request("{}").replace(messages=[{"role": "user", "content": "x" * n}]) for n in lengths[1:]]
    first = Request("{}").replace(messages=[{"role": "user", "content": "x" * lengths[0]}])
    return Prompt(id=name, text="x" * lengths[0], request=first, followups=tuple(later))


@pytest.mark.parametrize(("prompts", "chosen"), [(22, [11, 11]), (21, [11]), (11, [11]), (4, [4]), (1, [1])])
def test_a_conversation_is_cut_short_where_not_all_turns_fit(prompts: int, chosen: list[int]) -> None:
    talks = [_talk(name, *[10] * 11) for name in "ab"]
    budget = budgeting.Budget(prompts=prompts, n_predict=48, finalists=2)
    assert [prompt.n_turns for prompt in budgeting.affordable_prompts(talks, budget)] == chosen


def test_later_turns_read_what_the_cache_lacks() -> None:
    talk = _talk("talk", 100, 98, 298)  # texts of 100, 200 and 500 letters
    assert budgeting.mean_reading([talk], is_warm=False) == pytest.approx(800 / 3 / 100)
    assert budgeting.mean_reading([talk], is_warm=True) == pytest.approx(500 / 3 / 100)
    plain = [Prompt(id=str(size), text="x" * size) for size in (10, 30)]
    assert budgeting.mean_reading(plain, is_warm=True) == 2.0


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> dict[ModelFile, object]:
    folder = tmp_path_factory.mktemp("cards")
    big = models.llama(
        n_layers=40, n_embd=4096, n_ff=11_008, n_heads=32, vocabulary=shapes.LLAMA3, types=lambda _: "Q8_0"
    )
    small = models.llama(
        n_layers=16, n_embd=2048, n_ff=5632, n_heads=32, vocabulary=shapes.LLAMA3, types=lambda _: "Q8_0"
    )
    return {
        values.spec().pair.target: read_card(models.write_model(folder / "target.gguf", *big)),
        ModelFile(filename="drafter.gguf"): read_card(models.write_model(folder / "drafter.gguf", *small)),
    }


def _blocks(
    cards: dict[ModelFile, object], vram_bytes: int | None, offload: Offload | None = None
) -> tuple[Block, ...]:
    arm = _arm(offload=offload)
    ngram = replace(
        arm,
        pair=Pair(name="tiny", target=arm.pair.target),
        drafting=Drafting(n_max=8, method=Method.NGRAM_SIMPLE),
        offload=arm.offload.with_layers(drafter="auto"),
    )
    asked = Block(arms=(arm.baseline, replace(arm, role=Role.DRAFTER, drafting=None), arm, ngram))
    return planning.plan_blocks((asked,), cards, layout=memory.TODAY, vram_bytes=vram_bytes)  # type: ignore[arg-type]


def test_without_a_gpu_nothing_is_placed(cards: dict[ModelFile, object]) -> None:
    (block,) = _blocks(cards, None)
    assert [arm.role for arm in block.arms] == [Role.TARGET, Role.DRAFTING, Role.DRAFTING]
    assert {arm.offload for arm in block.arms} == {Offload()}


def test_a_drafter_beside_the_gpu_leaves_room_for_the_target(cards: dict[ModelFile, object]) -> None:
    blocks = _blocks(cards, 6 * GIB)
    placed = {
        (arm.offload.target.layers, arm.offload.drafter.layers)
        for block in blocks
        for arm in block.arms
        if arm.drafter is not None
    }
    ((with_all, _),) = {each for each in placed if each[1] == "all"}
    ((with_none, _),) = {each for each in placed if each[1] == 0}
    assert isinstance(with_all, int)
    assert isinstance(with_none, int)
    assert 0 < with_all < with_none
    assert blocks[0].arms[0].role is Role.TARGET
    assert blocks[0].arms[0].offload.target.layers == with_none  # the target alone at its best comes first
    for block in blocks:
        assert [arm.role for arm in block.arms].count(Role.TARGET) == 1
        assert {arm.baseline for arm in block.arms} == {block.arms[0]}


def test_what_fits_and_what_was_asked_for_is_placed(cards: dict[ModelFile, object]) -> None:
    (block,) = _blocks(cards, 80 * GIB)
    assert {arm.offload.target.layers for arm in block.arms} == {"all"}
    assert {arm.offload.drafter.layers for arm in block.arms if arm.drafter} == {"all"}
    asked = Offload(target=ModelRun(layers=7), drafter=ModelRun(layers=3))
    (block,) = _blocks(cards, 6 * GIB, asked)
    assert {arm.offload for arm in block.arms if arm.drafter} == {asked}


def test_a_mixture_is_tried_at_the_fastest_places_of_short_and_long_drafts(tmp_path: Path) -> None:
    shape = models.llama(n_layers=24, n_embd=2048, n_ff=2048, n_heads=16, n_experts=16, context=4096)
    small = models.llama(n_layers=8, n_embd=2048, n_ff=8192, n_heads=16)
    arms = [_arm(size, p_min=p_min) for size in (1, 4, 16) for p_min in (0.0, 0.5)]
    cards = {
        arms[0].pair.target: read_card(models.write_model(tmp_path / "target.gguf", *shape)),
        ModelFile(filename="drafter.gguf"): read_card(models.write_model(tmp_path / "drafter.gguf", *small)),
    }
    plan_blocks = partial(
        planning.plan_blocks,
        (Block(arms=(arms[0].baseline, *arms)),),
        cards,
        layout=memory.TODAY,
        vram_bytes=4 * GIB,
        machines=Machines.named("rtx-3090", "60G", n_gpus=0),
    )
    blocks = plan_blocks()
    both = {arm for block in plan_blocks(can_fit=True) for arm in block.arms}
    fitted = both - {arm for block in blocks for arm in block.arms}
    assert {arm.offload for arm in fitted} == {Offload(fit=True)}  # where llama.cpp would put them
    assert len(fitted) == 1 + len(arms)
    assert not any(
        prospects.can_forecast(arm, Program.SERVER, None, heads=()) for arm in fitted if arm.drafting
    )
    alone = blocks[0].arms[0].offload
    assert alone.target.layers == "all"
    kept = alone.target.cpu_moe
    assert isinstance(kept, int)
    assert 0 < kept < 24
    for block in blocks:
        for arm in block.arms:
            settings = memory.settings_for(arm, memory.TODAY)
            draft = None if arm.drafter is None else cards[arm.drafter]
            plan = memory.plan(cards[arm.model], draft, arm.offload, settings)
            assert plan.gpu_bytes <= 3 * GIB  # one is left free
    drafting = [arm for block in blocks for arm in block.arms if arm.drafting]
    assert {(arm.drafts_by.n_max, arm.drafts_by.p_min) for arm in drafting} == {
        (arm.drafts_by.n_max, arm.drafts_by.p_min) for arm in arms
    }
    assert len({arm.offload for arm in drafting}) <= 3
    assert {arm.offload.target.cpu_moe for arm in drafting} <= {*range(kept + 1, 25)}  # beside a drafter


def test_the_leader_comes_first_and_every_kind_has_its_leader() -> None:
    asked = [
        *(
            tunings.prospect(100 - abs(size - 6), _arm(size), code=90 + size, prose=60 - size)
            for size in range(1, 13)
        ),
        *(
            tunings.prospect(96 - abs(size - 4), _arm(size, drafter="other.gguf"), code=50, prose=50)
            for size in range(1, 9)
        ),
        *(tunings.prospect(60, _arm(size, drafter="slow.gguf"), code=50, prose=50) for size in (2, 4)),
    ]
    chosen = [each.arm for each in prospects.finalists(asked, 5)]
    assert len(chosen) == 5
    assert chosen[0] == _arm(6)
    assert _arm(4, drafter="other.gguf") in chosen  # the best of a drafter that is not far behind
    assert _arm(12) in chosen  # the best for code
    assert _arm(1) in chosen  # and for prose
    assert not [arm for arm in chosen if arm.drafter == ModelFile(filename="slow.gguf")]


def test_a_p_min_that_changes_nothing_is_not_measured_twice() -> None:
    asked = [
        tunings.prospect(100, _arm(5)),
        tunings.prospect(99.9, _arm(5, p_min=0.3)),
        tunings.prospect(97, _arm(5, p_min=0.9)),
        tunings.prospect(90, _arm(4)),
    ]
    chosen = [each.arm for each in prospects.finalists(asked, 3)]
    assert chosen == [_arm(5), _arm(5, p_min=0.9), _arm(4)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parallel": (2, 4)}, "one number of users"),
        ({"parallel": 4, "serve_parallel": 2}, "--parallel 4 and --serve-parallel 2 differ"),
        ({"parallel": 4, "engine": "binary"}, "measures neither several users"),
        ({"parallel": 4, "method": "ngram-mod"}, "nothing to choose from"),
    ],
)
def test_impossible_tunings_for_users_are_refused(options: dict[str, Any], message: str, llama: Path) -> None:
    with pytest.raises(GgufspecError, match=message):
        tuning.tune(pair="demo", **options)


def test_a_tuning_for_users_looks_at_one_request_and_measures_all(llama: Path) -> None:
    plan = tuning.prepare_tuning(TuneOptions(pair="demo", parallel=4, n_predict=32, serve_ctx=512))
    assert (plan.users, plan.serving.slots, plan.serving.context) == (4, 4, 512)
    looked_at = [arm for block in plan.blocks for arm in block.arms]
    assert {(arm.traffic, arm.context) for arm in looked_at} == {(None, 2048)}
    assert len(plan.session.suite.prompts) > 1
    assert any(note.startswith("users: the choice is for 4 users at once") for note in plan.session.notes)
    assert any("ngram-mod" in note and "left out" in note for note in plan.session.notes)
    methods = {arm.drafting.method for arm in looked_at if arm.drafting}
    assert Method.DRAFT_MODEL in methods
    assert Method.NGRAM_MOD not in methods
    drafting = next(arm for arm in looked_at if arm.drafting)
    outlook = tunings.outlook(
        unknown=(drafting,), prompts=plan.session.suite.prompts[:2], n_predict=16, finalists=1
    )
    bench = tuning.finals(plan, outlook)
    (block,) = bench.suite.blocks
    assert [arm.drafting for arm in block.arms] == [None, drafting.drafting]
    for arm in block.arms:
        assert (arm.traffic.users, arm.traffic.n_requests, arm.context) == (4, 20, 512)
        assert {prompt.id for prompt in arm.traffic.prompts} == {prompt.id for prompt in outlook.prompts}
    assert bench.suite.warmups == 0


def test_drafts_that_no_batch_of_all_users_holds_are_not_tried(llama: Path) -> None:
    plan = tuning.prepare_tuning(TuneOptions(pair="demo", parallel=128, n_predict=32, serve_ctx=512))
    sizes = {arm.drafting.n_max for block in plan.blocks for arm in block.arms if arm.drafting}
    assert max(sizes) == 15  # 128 drafts of 15 tokens and one more each are a batch of 2,048
    assert not plan.beyond


def test_several_users_are_forecast_by_the_server_with_as_many_slots() -> None:
    arms = [_arm(size, p_min) for size in (1, 4) for p_min in (0.0, 0.5)]
    texts, curve = [*map(tunings.traced, tunings.PROMPTS)], tunings.curve()
    curves = {(arm.offload, arm.drafter): curve for arm in arms}
    traces = _traces(*texts)
    traffic = plan_traffic(traces.prompts, 2, seed=1)
    forecast = prospects.prospects(arms, traces, curves, traffic)
    assert [prospect.arm for prospect in forecast] == arms
    by_id = {text.prompt.id: text.by_drafter[0] for text in texts}
    for prospect in forecast:
        assert not prospect.by_category
        drafting = prospect.arm.drafting
        assert drafting is not None
        (expected,) = concurrency.forecasts_of_users(
            [by_id[prompt.id] for prompt in traffic.prompts],
            curve,
            [TracedRun(drafting=drafting, n_predict=20)],
            users=2,
            n_requests=traffic.n_requests,
        )
        assert prospect.overall == expected.forecast


def test_what_is_measured_as_alike_is_one_set_and_its_smallest_draft_is_chosen() -> None:
    tuned = tunings.judged(g3=1.4, g5=1.595, g8=1.6)
    assert tuned.overall.drafts
    assert tuned.overall.is_decided
    assert tuned.overall.spec.draft_size == 5
    assert tuned.overall.judgement.ratio.value == pytest.approx(1.595, rel=0.002)
    assert tuned.refusal is None
    assert tuned.spent.total_s == 7.0
    assert [spec.drafting.n_max for spec in tuned.selection.alike if spec.drafting] == [5, 8]
    assert "γ = 5 and 8 are alike here" in " ".join(tuned_report.verdict(tuned))


def test_the_table_of_forecasts_says_what_near_ties_may_change() -> None:
    prospect = tunings.prospect(80.0, _arm())
    sure, unsure = (
        replace(prospect, overall=replace(prospect.overall, round_range=ranged))
        for ranged in (
            RoundRange(fewest=100, most=100, sure_texts=2),
            RoundRange(fewest=96, most=104, sure_texts=1),
        )
    )
    for plain in (prospect, sure):
        printed = tuned_report.table(tunings.outlook(plain), "server")
        assert " 3.00 |" in printed
        assert "near-tie" not in printed.lower()
    printed = tuned_report.table(tunings.outlook(unsure), "server")
    assert " 3.00 (2.88–3.12) |" in printed
    assert "In parentheses: tokens/round where near-ties of the drafter fall otherwise" in printed
    assert "may change the text of 1 of 2 prompts" in printed
    frame = frames.prospects([unsure, prospect])
    assert frame[["n_rounds_lo", "n_rounds_hi", "sure_texts"]].iloc[0].tolist() == [96, 104, 1]
    assert frame["n_rounds_lo"].isna().tolist() == [False, True]


def test_the_fastest_configurations_say_how_many_rounds_there_may_be() -> None:
    text = tunings.traced(tunings.PROMPTS[0])
    leads = (5.0, 5.0, -5.0, 5.0) * 8
    (view,) = text.by_drafter
    view = replace(view, leads=leads, text_leads=(5.0,) * 32, spread=0.1, text_spread=0.1)
    text = replace(text, target_trace=view, by_drafter=(view,))
    candidates = [tunings.prospect(rate, _arm(size)) for size, rate in ((2, 60.0), (3, 70.0), (4, 50.0))]
    ranged = prospects.with_round_ranges(candidates, _traces(text), most=2)
    assert [one.arm for one in ranged] == [one.arm for one in candidates]
    known = [one.overall.round_range for one in ranged]
    assert [found is not None for found in known] == [True, True, False]
    for candidate, found in zip(candidates, known[:2], strict=False):
        size = candidate.overall.drafting.n_max
        rounds = rounds_of(view, n_max=size, program=Program.SERVER, n_predict=20)
        assert found == RoundRange(fewest=len(rounds), most=len(rounds), sure_texts=1)


@pytest.mark.parametrize("gains", [{"g3": 1.4, "g5": 1.6}, {"g3": 0.8}])
def test_the_json_of_a_tuning_has_its_schema_and_the_warnings_below_its_text(gains: dict[str, float]) -> None:
    tuned = tunings.judged(**gains)
    tuned = replace(tuned, results=replace(tuned.results, damage=("left out: 1 line",)))
    install = fakes.recorded_install("0.3.36")
    content = json.loads(tuned_report.as_json(tuned, install, "ggufspec bench"))
    validate("tune", content)
    text = tuned_report.text(tuned, install, "ggufspec bench")
    assert "damaged" in {warning["name"] for warning in content["warnings"]}
    for warning in content["warnings"]:
        assert f"warning {warning['name']}: {warning['advice']}" in text


def test_what_gains_nothing_is_not_drafted_with_and_the_reason_is_named() -> None:
    tuned = tunings.judged(g3=0.8, g5=1.005)
    assert not tuned.overall.drafts
    assert tuned.overall.spec.role is Role.TARGET
    assert tuned.refusal.needs is not None


def test_every_drafter_has_its_line_and_the_entry_names_what_is_used() -> None:
    tuned = tunings.judged(g3=0.8)
    named = tunings.prospect(25, _arm(drafter="q2_k.gguf"))
    tuned = replace(tuned, outlook=tunings.outlook(*tuned.outlook.prospects, named))
    assert "Drafter q2_k.gguf: 0.50× by forecast at γ = 3, not worth it." in [*tuned_report.verdict(tuned)]
    entry = tuned_report.pair_entry(tuned)
    assert entry.startswith('[pairs."target-alone-tuned"]\n')
    assert "drafter =" not in entry


@pytest.mark.parametrize("foretold", [0.6, 1.2])
def test_a_gain_that_may_be_chance_is_undecided_whatever_was_forecast(foretold: float) -> None:
    runs = [
        run
        for repeat in range(3)
        for prompt, gain in (("p1", 0.9), ("p2", 1.4))
        for run in (
            values.run(Role.TARGET, prompt=prompt, repeat=repeat, tps=40.0),
            values.run(Role.DRAFTING, prompt=prompt, repeat=repeat, tps=40 * gain, draft=3),
        )
    ]
    spec = next(run.spec for run in runs if run.spec.drafting)
    results = values.bench(*runs)
    tuned = tuning.judge_finalists(
        tunings.outlook(tunings.prospect(50 * foretold, spec)),
        tuning.select_arms(results),
        results,
        measuring_s=4.0,
    )
    assert not tuned.overall.drafts
    assert not tuned.overall.is_decided
    assert tuned.overall.candidate.draft_size == 3
    assert tuned.refusal is None
    (said,) = tuned_report.verdict(tuned)
    assert said.startswith("Undecided: drafter.gguf, γ = 3 is 1.12×")
    assert "Meanwhile, the target alone is what is safe: 40.00 tokens/s." in said
    assert 'note = "undecided' in tuned_report.pair_entry(tuned)


def test_a_strict_tuning_ends_with_its_own_code_after_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = tunings.judged(g3=1.4)
    doubts = {"memory-tight": "little is left"}
    tuned = replace(tuned, results=replace(tuned.results, meta=replace(tuned.results.meta, doubts=doubts)))
    simulated_tuning.simulate_tuning(monkeypatch, tuned, fakes.recorded_install("0.3.36"))
    monkeypatch.setattr(running, "keep", lambda tuned: None)
    usual, strict = (shell.here("tune", "--pair", "demo", *words) for words in ((), ("--strict",)))
    assert (usual.returncode, strict.returncode) == (0, 35)
    assert strict.stdout == usual.stdout != ""
    assert f"error: warnings put a verdict in doubt: {tuned.results.meta.id}: memory-tight" in strict.stderr


def test_a_bench_without_its_target_has_no_verdict() -> None:
    without = values.bench(values.run(Role.DRAFTING, draft=3))
    with pytest.raises(ResultsError, match="target alone"):
        tuning.select_arms(without)
    selection = tuning.select_arms(values.bench(values.run(Role.TARGET)))
    with pytest.raises(ResultsError, match="target alone"):
        tuning.judge_finalists(tunings.outlook(), selection, without, measuring_s=1.0)


def test_the_pair_entry_can_be_read_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tuned = tunings.judged(g3=1.4)
    spec = tuned.overall.spec
    pair = replace(
        spec.pair,
        target=replace(spec.pair.target, path=tmp_path / 'a "quoted" target.gguf'),
        draft=ModelFile(filename="drafter.gguf", repo="someone/drafter"),
    )
    choice = replace(tuned.overall, spec=replace(spec, pair=pair))
    entry = tuned_report.pair_entry(replace(tuned, overall=choice))
    monkeypatch.setenv("GGUFSPEC_CONFIG", str(tmp_path))
    (tmp_path / "pairs.toml").write_text(entry, encoding="utf-8")
    from ggufspec.modelfiles import catalog

    read = catalog.entries()["tiny-tuned"]
    assert read.pair.target.path == pair.target.path
    assert (read.pair.draft.repo, read.pair.draft.filename) == ("someone/drafter", "drafter.gguf")
    assert "1.40 times" in str(read.note)
    assert (read.method, read.gamma, read.p_min) == ("draft-model", 3, 0.0)


def _can_forecast(arm: RunSpec, *, heads: Collection[Method] = HEADS, users: int = 1) -> bool:
    return prospects.can_forecast(arm, Program.SERVER, 11312, heads=heads, users=users)


def _head_arm(folder: Path, made: Any, method: Method) -> RunSpec:
    path = models.write_model(folder / "head.gguf", *made)
    arm = values.spec(Role.DRAFTING, draft=3)
    draft = ModelFile(filename=path.name, path=path)
    return replace(arm, pair=replace(arm.pair, draft=draft), drafting=replace(arm.drafting, method=method))


def test_a_head_at_its_longest_draft_is_not_at_the_edge_of_a_search(tmp_path: Path) -> None:
    """A larger size would be the same run."""
    arm = _head_arm(tmp_path, models.dflash(block=4), Method.DRAFT_DFLASH)
    shorter = replace(arm, drafting=replace(arm.drafting, n_max=2))
    assert not prospects.can_be_longer(arm)
    assert prospects.can_be_longer(shorter)
    assert prospects.can_be_longer(values.spec(Role.DRAFTING, draft=3))


@pytest.mark.parametrize(
    ("made", "method", "heads", "known"),
    [
        (models.eagle3(), Method.DRAFT_EAGLE3, HEADS, True),
        (models.eagle3(), Method.DRAFT_EAGLE3, {Method.DRAFT_DFLASH}, False),
        (models.eagle3(), Method.DRAFT_EAGLE3, set(), False),
        (models.dflash(), Method.DRAFT_DFLASH, HEADS, True),
        (models.dflash(), Method.DRAFT_DFLASH, {Method.DRAFT_EAGLE3}, False),
        (models.dflash(markov=True), Method.DRAFT_DSPARK, HEADS, True),
        # DFlash 2 and DSpark for DeepSeek 4 compute otherwise
        (models.dflash(selector_top_k=4), Method.DRAFT_DFLASH, HEADS, False),
        (models.dflash(markov=True, **HYPER), Method.DRAFT_DSPARK, HEADS, False),
        (models.dflash(**ROPE), Method.DRAFT_DFLASH, HEADS, False),
    ],
)
def test_heads_are_forecast_where_the_library_was_seen_to_feed_them(
    tmp_path: Path, made: Any, method: Method, heads: Collection[Method], known: bool
) -> None:
    arm = _head_arm(tmp_path, made, method)
    assert _can_forecast(arm, heads=heads) is known
    if method.drafts_block:  # several users of one are measured
        assert not _can_forecast(arm, users=2)


@pytest.mark.parametrize(("n_mtp", "known"), [(1, True), (2, False)])
def test_layers_for_mtp_are_forecast_if_there_is_one(tmp_path: Path, n_mtp: int, known: bool) -> None:
    path = models.write_model(tmp_path / "mtp.gguf", *models.with_mtp(n_mtp=n_mtp, n_layers=4))
    target = ModelFile(filename=path.name, path=path)
    arm = values.spec(Role.DRAFTING, draft=3)
    inside = replace(
        arm, pair=Pair(name="p", target=target), drafting=replace(arm.drafting, method=Method.DRAFT_MTP)
    )
    assert inside.draft_source is not None
    assert inside.draft_source != target
    assert prospects.drafts_inside([inside.draft_source], target)
    assert not prospects.drafts_inside([target], target)
    assert _can_forecast(inside) is known


def test_a_target_with_recurrent_layers_is_measured_and_not_forecast(tmp_path: Path) -> None:
    """Its state cannot be rolled back after a rejected draft, so the library cannot time a round."""
    made = {"plain": models.llama(), "hybrid": models.llama(ssm__state_size=16)}
    plain, hybrid = (
        ModelFile(filename=name, path=models.write_model(tmp_path / name, *content))
        for name, content in made.items()
    )
    arm = values.spec(Role.DRAFTING, draft=3)
    for pair, known in (
        (Pair(name="p", target=plain, draft=plain), True),
        (Pair(name="p", target=hybrid, draft=plain), False),
        (Pair(name="p", target=plain, draft=hybrid), False),
    ):
        assert _can_forecast(replace(arm, pair=pair)) is known
