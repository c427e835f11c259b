"""Where drafting pays over users and depth: the map, what is measured next, and how it is shown."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ggufspec
from ggufspec import results, tuning
from ggufspec.analysis import LOOKS, CellSource, CrossoverMap, map_crossover, read_crossover
from ggufspec.domain import Conditions, Prompt, RunSpec, SpeedVerdict
from ggufspec.engines.library.selftest import Library
from ggufspec.errors import GgufspecError, ResultsError
from ggufspec.forecast import profiles
from ggufspec.forecast.concurrency import TrafficPoint
from ggufspec.forecast.profiles import ExpectedRound, TracedTexts
from ggufspec.measure import identify, prepare_session
from ggufspec.options import BenchOptions, CrossoverOptions
from ggufspec.options.kinds import Depths
from ggufspec.report import frames, plot, schemas
from ggufspec.report.html import sections
from ggufspec.report.rows.plans import CrossoverRow
from ggufspec.report.text import crossovers
from ggufspec.results import CrossoverAxes, ResultSet
from ggufspec.steps import finish
from ggufspec.tuning import CrossoverPlan, looking
from ggufspec.tuning.budgeting import Pace
from tests.support import crossed, fake_server, fakes, shell, tunings, values
from tests.support.schemas import validate, validator

ENDS = ((1, 0), (1, 4096), (8, 0), (8, 4096))
AXES = CrossoverAxes(users=(1, 2, 4, 8), depths=(0, 4096))


def _gain(users: int, depth: int, draft: int) -> float:
    """Large drafts are best for one user, small ones for several, none for eight or behind much text."""
    by_users = {1: {2: 1.3, 8: 1.8}, 2: {2: 1.2, 8: 1.15}, 4: {2: 1.1, 8: 0.8}, 8: {2: 0.9, 8: 0.5}}
    return by_users[users][draft] * (0.8 if depth else 1.0)


def _map(places: Iterable[tuple[int, int]] = ENDS, axes: CrossoverAxes = AXES, **more: Any) -> CrossoverMap:
    return map_crossover(crossed.bench(places, _gain, **more), axes)


# The map


def test_measured_cells_have_the_best_draft_size_and_its_speed_up() -> None:
    found = _map([(users, depth) for users in AXES.users for depth in AXES.depths])
    assert [cell.place for cell in found.cells] == [(u, d) for u in (1, 2, 4, 8) for d in (0, 4096)]
    assert found.count(CellSource.MEASURED) == 8
    cell = found.by_point[TrafficPoint(1, 0)]
    assert (cell.best.draft, cell.choice, cell.verdict) == (8, 8, SpeedVerdict.FASTER)
    assert cell.best.speedup.value == pytest.approx(1.8)
    assert cell.target_tokens_per_s == pytest.approx(100.0)
    assert cell.best.tokens_per_s == pytest.approx(180.0)
    assert [gain.draft for gain in cell.gains] == [2, 8]
    assert found.by_point[TrafficPoint(4, 0)].choice == 2
    loses = found.by_point[TrafficPoint(8, 4096)]
    assert (loses.choice, loses.verdict) == (None, SpeedVerdict.SLOWER)
    assert [found.users_limit(depth) for depth in (0, 4096)] == [8, 2]
    assert [found.depth_limit(users) for users in (1, 2, 4, 8)] == [None, 4096, 4096, 0]


def test_cells_between_are_forecast_by_seconds_per_round() -> None:
    """100 tokens/s of one user and 400 of eight are rounds of 10 and 20 ms, so 4 users take 14.29 ms."""
    found = _map()
    assert found.count(CellSource.FORECAST) == 4
    cell = found.by_point[TrafficPoint(4, 0)]
    failed = crossed.bench([*ENDS, (4, 0)], _gain, failing=(4, 0))
    for known in (cell, map_crossover(failed, AXES).by_point[TrafficPoint(4, 0)]):
        assert known.source is CellSource.FORECAST
    alone_s = 0.010 + (0.020 - 0.010) * 3 / 7
    assert cell.target_tokens_per_s == pytest.approx(4 / alone_s)
    first_s, last_s = 1 * 1.75 / (100 * 1.3), 8 * 1.75 / (400 * 0.9)
    round_s = first_s + (last_s - first_s) * 3 / 7
    (small, _) = cell.gains
    assert small.speedup.value == pytest.approx(1.75 * alone_s / round_s)
    assert small.tokens_per_s == pytest.approx(4 * 1.75 / round_s)


def test_cells_between_are_what_the_computed_server_expects_times_how_far_it_is_off() -> None:
    """The ends show how far each draft size is off; in between, what is expected bends the line."""
    stored = crossed.bench(ENDS, _gain)
    rounds = [
        ExpectedRound(users=users, depth=depth, draft=draft, seconds=seconds)
        for depth in AXES.depths
        for users, alone_s in ((1, 0.010), (2, 0.011), (4, 0.012), (8, 0.020))
        for draft, seconds in ((None, alone_s), (2, users * 0.004), (8, users * 0.005))
    ]
    profiles.keep_rounds(rounds, stored.folder)
    found = map_crossover(stored, AXES)
    straight = _map()
    cell = found.by_point[TrafficPoint(4, 0)]
    assert cell.source is CellSource.FORECAST
    assert cell.target_tokens_per_s == pytest.approx(4 / 0.012)
    (small, _) = cell.gains
    ends = {
        users: next(gain for gain in found.by_point[TrafficPoint(users, 0)].gains if gain.draft == 2)
        for users in (1, 8)
    }
    off = {users: users * 1.75 / gain.tokens_per_s / (users * 0.004) for users, gain in ends.items()}
    ratio = off[1] + (off[8] - off[1]) * 3 / 7
    assert small.tokens_per_s == pytest.approx(4 * 1.75 / (4 * 0.004 * ratio))
    for users in (1, 8):
        place = TrafficPoint(users, 0)
        assert found.by_point[place] == straight.by_point[place]


def test_forecasts_are_less_certain_than_measurements() -> None:
    found = _map()
    widths = {
        source: [
            cell.best.speedup.relative_half_width or 0.0
            for cell in found.cells
            if cell.best is not None and cell.source is source
        ]
        for source in (CellSource.MEASURED, CellSource.FORECAST)
    }
    assert max(widths[CellSource.MEASURED]) < min(widths[CellSource.FORECAST])
    assert found.forecast_errors == ()


def test_spreads_and_errors_are_of_all_cells() -> None:
    near = _map([*ENDS, (4, 0)])
    assert len(near.forecast_errors) == 2  # of both draft sizes
    far = map_crossover(
        crossed.bench([*ENDS, (4, 0)], lambda users, depth, draft: 3.0 if users == 4 else 1.0), AXES
    )
    assert far.forecast_sd > near.forecast_sd
    calm, noisy = _map(noise=0.01), _map(noise=0.2)
    assert noisy.run_sd > calm.run_sd
    three, five = (_map(repeats=repeats, noise=0.05).by_point[TrafficPoint(1, 0)].best for repeats in (3, 5))
    assert (three.speedup.relative_half_width or 0) > (five.speedup.relative_half_width or 1)


def test_before_the_first_look_a_cell_has_no_interval_and_no_verdict() -> None:
    for repeats in (1, 2):
        found = _map(repeats=repeats, noise=0.01)
        cell = found.by_point[TrafficPoint(1, 0)]
        assert (cell.repeats, cell.verdict, found.run_sd) == (repeats, SpeedVerdict.UNDECIDED, None)
        assert cell.best.speedup.lo is None
    assert "between loads" not in crossovers.text(found, {})


def test_repeats_after_a_look_do_not_count_before_the_next_one() -> None:
    """Otherwise whoever interrupts a crossover chooses when to look."""
    three, four, five = (
        _map(repeats=repeats, noise=0.05).by_point[TrafficPoint(1, 0)] for repeats in (3, 4, 5)
    )
    assert four.repeats == 4
    speedups = [[gain.speedup for gain in cell.gains] for cell in (three, four, five)]
    assert speedups[0] == speedups[1] != speedups[2]


def test_a_larger_map_demands_more_of_each_cell() -> None:
    small = map_crossover(crossed.bench([(1, 0)], _gain, noise=0.02), CrossoverAxes(users=(1,), depths=(0,)))
    large = map_crossover(crossed.bench([(1, 0)], _gain, noise=0.02), AXES)
    widths = [
        found.by_point[TrafficPoint(1, 0)].gains[0].speedup.relative_half_width or 0
        for found in (small, large)
    ]
    assert widths[0] < widths[1]


def test_a_cell_that_nothing_surrounds_is_unknown() -> None:
    found = _map([(1, 0), (2, 0)])
    cell = found.by_point[TrafficPoint(8, 0)]
    assert (cell.source, cell.best, cell.verdict) == (CellSource.UNKNOWN, None, SpeedVerdict.UNDECIDED)
    assert found.users_limit(0) is None
    assert crossovers.describe_cell(cell) == "unknown"
    assert "6 cells unknown, because no measured cells surround them" in crossovers.text(found, {})


def test_nothing_is_said_of_cells_that_are_unknown() -> None:
    found = _map([(1, 0), (2, 0), (1, 4096)])
    assert crossovers.policy(found) == (
        "At depth 0, draft with γ = 8 for 1 user, draft with γ = 2 for 2 users, unknown from 4 users on; "
        "from depth 4,096 on, draft with γ = 8 for 1 user, unknown from 2 users on."
    )


def test_disturbed_cells_have_no_verdict() -> None:
    runs = [replace(run, doubts=("busy-machine",)) for run in crossed.bench(ENDS, _gain).runs]
    found = map_crossover(values.bench(*runs), AXES)
    assert {forecast.verdict for forecast in found.cells} == {SpeedVerdict.UNDECIDED}  # nor have others
    cell = found.by_point[TrafficPoint(1, 0)]
    assert (cell.source, cell.disturbed) == (CellSource.MEASURED, True)
    assert cell.verdict is SpeedVerdict.UNDECIDED
    assert {gain.speedup.lo for gain in cell.gains} == {None}
    assert not _map().by_point[TrafficPoint(1, 0)].disturbed


def test_a_cell_beside_other_programs_has_wider_intervals_and_wants_a_quiet_machine() -> None:
    beside = Conditions(others_cores=1.0)
    runs = [
        replace(run, doubts=("busy-machine",), conditions=beside) for run in crossed.bench(ENDS, _gain).runs
    ]
    quiet, busy = (
        found.by_point[TrafficPoint(1, 0)] for found in (_map(), map_crossover(values.bench(*runs), AXES))
    )
    assert (quiet.widened, busy.widened, busy.disturbed) == (False, True, False)
    assert (quiet.best.speedup.relative_half_width or 0) < (busy.best.speedup.relative_half_width or 0)


# In words


def test_the_policy_is_a_sentence() -> None:
    whole = [(users, depth) for users in AXES.users for depth in AXES.depths]
    assert crossovers.policy(_map(whole)) == (
        "At depth 0, draft with γ = 8 for 1 user, draft with γ = 2 for 2 to 4 users, do not draft from 8 "
        "users on; from depth 4,096 on, draft with γ = 8 for 1 user, do not draft from 2 users on."
    )


@pytest.mark.parametrize(("gain", "policy"), [(1.5, "Draft with γ = 8."), (0.5, "Do not draft.")])
def test_the_policy_is_short_where_it_can_be(gain: float, policy: str) -> None:
    stored = crossed.bench(ENDS, lambda users, depth, draft: gain + draft / 1000)
    found = map_crossover(stored, CrossoverAxes(users=(1, 8), depths=(0, 4096)))
    assert crossovers.policy(found) == policy


@pytest.mark.parametrize("output", ["md", "table"])
def test_the_map_is_a_table_with_signs(output: str) -> None:
    found = _map()
    text = crossovers.text(found, {"busy-machine": "Stop it."}, output)
    assert "γ 8, 1.80×" in text
    assert "~γ" in text
    assert "~ forecast from the cells around it" in text
    assert "warning busy-machine: Stop it." in text
    assert "4 of 8 cells measured, 4 forecast" in text
    assert (text.index(crossovers.policy(found)) < text.index("γ 8, 1.80×")) == (output == "table")


def test_the_map_as_json_and_frame() -> None:
    stored = crossed.bench(ENDS, _gain)
    content = json.loads(crossovers.as_json(map_crossover(stored, AXES), stored))
    validate("crossover", content)
    assert content["schema"] == schemas.schema_name("crossover")
    assert [cell["source"] for cell in content["cells"]].count("forecast") == 4
    table = frames.crossover(_map())
    assert list(table.columns) == list(CrossoverRow.names())
    assert table[["users", "depth"]].to_numpy().tolist() == [[u, d] for u in AXES.users for d in AXES.depths]
    assert table["source"].tolist().count("measured") == 4


# Stored, shown and drawn


def _stored(**more: Any) -> ResultSet:
    stored = crossed.bench(ENDS, _gain, **more)
    results.write_crossover_axes(AXES, stored.folder)
    results.close(stored)
    return stored


def test_the_axes_are_stored_beside_the_runs() -> None:
    stored = _stored()
    assert results.read_crossover_axes(stored.folder) == AXES
    content = json.loads((stored.folder / "crossover.json").read_bytes())
    validator("results", f"crossover-{results.CROSSOVER_VERSION}").validate(content)
    found = read_crossover(results.load(stored.meta.id))
    assert len(found.cells) == 8
    assert read_crossover(values.whole_bench()) is None
    file = stored.folder / "crossover.json"
    file.write_bytes(file.read_bytes().replace(b"4096", b"4097"))
    with pytest.raises(ResultsError, match="checksum"):
        results.read_crossover_axes(stored.folder)
    results.write_crossover_axes(replace(AXES, schema_version=2), stored.folder)
    with pytest.raises(ResultsError, match="newer ggufspec"):
        results.read_crossover_axes(stored.folder)


def test_show_begins_with_the_map() -> None:
    stored = _stored()
    done = shell.done("show", stored.meta.id)
    policy = crossovers.policy(map_crossover(stored, AXES))
    assert done.stdout.index(policy) < done.stdout.index("tokens/s per user")


def test_the_report_draws_the_map_with_its_line() -> None:
    stored = _stored()
    chart = plot.crossover(stored)
    assert chart is not None
    rows = plot.drawn(stored)["crossover"].rows
    assert len(rows) == 8
    borders = {(row["users"], row["depth"]) for row in rows if row["ends_below"]}
    found = map_crossover(stored, AXES)
    pays = {cell.place: cell.choice is not None for cell in found.cells}
    assert borders == {
        (users, depth)
        for users, below in ((1, 2), (2, 4), (4, 8))
        for depth in AXES.depths
        if pays[TrafficPoint(users, depth)] != pays[TrafficPoint(below, depth)]
    }
    assert borders
    section = sections.section(results.load(stored.meta.id))
    assert crossovers.policy(found).startswith(section.card.headline)
    drawn = section.figures["crossover"]
    assert drawn.title == "Users and depth for which drafting pays"
    assert len(drawn.table.rows) == 8
    assert plot.image(chart, "svg").count(b"1.80") >= 1
    assert plot.crossover(values.whole_bench()) is None


# What is measured


def test_the_ends_are_measured_first_and_of_many_users_a_middle() -> None:
    assert tuning.coarse_points(AXES) == tuple(TrafficPoint(*place) for place in ENDS)
    many = CrossoverAxes(users=tuple(range(1, 17)), depths=(0, 1024, 4096))
    assert {place.users for place in tuning.coarse_points(many)} == {1, 4, 16}
    assert {place.depth for place in tuning.coarse_points(many)} == {0, 4096}
    assert tuning.coarse_points(CrossoverAxes(users=(1,), depths=(0,))) == (TrafficPoint(1, 0),)


def test_without_the_library_cells_are_interpolated_and_a_note_says_why(llama: Path) -> None:
    plan = finish(tuning.expect_cells(_plan()))
    assert plan.rounds == ()
    assert plan.session.notes[-1].startswith("forecasts: interpolated between measured cells, because ")
    ends = _plan(parallel=(1, 2), depth=(0,))
    assert finish(tuning.expect_cells(ends)) is ends  # all of its cells are measured first


def test_what_a_crossover_expected_is_not_computed_again(llama: Path) -> None:
    plan = _plan(parallel=(1, 2, 4), depth=(0,))
    rounds = tuple(
        ExpectedRound(users=users, depth=0, draft=draft, seconds=1.0)
        for users in (1, 2, 4)
        for draft in (None, 2, 8)
    )
    stored = crossed.bench([(1, 0), (4, 0)], _gain)
    profiles.keep_rounds(rounds, stored.folder)
    assert finish(tuning.expect_cells(plan, resume=stored.meta.id)).rounds == rounds
    more = _plan(parallel=(1, 2, 4, 8), depth=(0,))
    assert finish(tuning.expect_cells(more, resume=stored.meta.id)).rounds == ()


def test_the_server_is_computed_for_every_cell(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a traced text and costs in place of those of the library."""

    def traces(
        engine: object, spec: RunSpec, prompts: Sequence[Prompt], drafters: object, **_: Any
    ) -> Iterator[TracedTexts]:
        assert spec.traffic is None
        return (tunings.traced(prompt, 96) for prompt in prompts)

    def start(*_: Any, users: int, **__: Any) -> looking.FirstTimings:
        assert users == 8
        pace = Pace(token_s=0.001, shared_s=0.0004, load_s=0.1, prompt_s=0.01, trace_token_s=0.001)
        return looking.FirstTimings(pace, tunings.traced(tunings.PROMPTS[0]))

    def curves(*_: Any, depth: int, **__: Any) -> Generator[Any, None, Any]:
        assert depth == 64
        yield from ()
        return {("anywhere", None): tunings.curve()}, ()

    monkeypatch.setattr(
        "ggufspec.engines.check_library", lambda install: Library(folder=Path(), heads=frozenset())
    )
    monkeypatch.setattr("ggufspec.engines.make", lambda *_, **__: nullcontext(SimpleNamespace()))
    monkeypatch.setattr("ggufspec.tuning.looking.measure_start", start)
    monkeypatch.setattr("ggufspec.forecast.profiles.traces", traces)
    monkeypatch.setattr("ggufspec.tuning.calibrating.curves", curves)
    plan = finish(tuning.expect_cells(_plan(max_time=500.0)))
    assert plan.session.notes[-1].startswith("forecasts: the server is computed for every cell")
    assert any(note.startswith("--max-time 500s: 4 cells first, 3 repeats of") for note in plan.session.notes)
    places = [(one.users, one.depth, one.draft) for one in plan.rounds]
    assert sorted(places, key=str) == sorted(
        ((users, depth, draft) for users in AXES.users for depth in (0, 64) for draft in (None, 2, 8)),
        key=str,
    )
    alone = {(one.users, one.depth): one.seconds for one in plan.rounds if one.draft is None}
    assert alone[1, 0] < alone[8, 0] < 8 * alone[1, 0]  # a batch of all users reads the weights once
    assert alone[1, 64] > alone[1, 0]  # the other text is read before each prompt
    plan = replace(plan, session=identify(plan.session))
    step = next(tuning.measure_crossover(plan))
    opened = tuning.begin_crossover(plan, step, command=("ggufspec",))
    assert profiles.kept_rounds(opened.folder) == plan.rounds
    results.close(opened)


WORDS = "printf '[1'; for word in $2; do printf ', 2'; done; echo ']'\n"


@pytest.fixture
def llama(llama: Path) -> Path:
    # slow enough that a user whose thread has to wait still gets an answer before the others have all theirs
    fake_server.program(llama / "llama-server", fake_server.Behaviour(round_s=0.001))
    fakes.program(llama / "llama-tokenize", WORDS)
    return llama


def _plan(max_time: float | None = None, **options: Any) -> CrossoverPlan:
    given = {"pair": "demo", "parallel": (1, 2, 4, 8), "depth": (0, 64), "draft": (2, 8), "threads": 1}
    return tuning.prepare_crossover(CrossoverOptions(**{**given, "max_time": max_time, **options}))


def _run_steps(plan: CrossoverPlan, gain: crossed.Gain, **more: Any) -> tuple[list[Any], CrossoverMap]:
    """Answer each step with invented runs of all cells so far; return what was asked for, and the map."""
    done: dict[tuple[int, int], int] = {}
    asked = []

    def measure(step: Any) -> ResultSet:
        places = [
            (block.arms[0].n_slots, block.arms[0].traffic.depth if block.arms[0].traffic else 0)
            for block in step.session.suite.blocks
        ]
        asked.append((places, step.session.suite.repeats))
        done.update(dict.fromkeys(places, step.session.suite.repeats))
        return crossed.bench(done, gain, repeats_of=done, **more)

    return asked, finish(tuning.measure_crossover(plan), measure)


def test_cells_in_doubt_are_measured_after_the_ends(llama: Path) -> None:
    """From 1 to 8 users the gain falls from 1.5 to 0.6: somewhere between the verdict is in doubt."""
    asked, found = _run_steps(_plan(), lambda users, depth, draft: 1.5 - (users - 1) * 0.9 / 7)
    ends = [(1, 0), (1, 64), (8, 0), (8, 64)]
    assert asked[0] == (ends, 1)
    assert asked[1] == (ends, 3)
    assert len(asked) > 2
    assert {place for places, _ in asked[2:] for place in places} <= {(u, d) for u in (2, 4) for d in (0, 64)}
    assert all(repeats == 3 for _, repeats in asked[1:3])
    assert found.users_limit(0) == 8


def test_measuring_ends_where_all_is_decided_or_the_time_is_over(llama: Path) -> None:
    asked, found = _run_steps(_plan(), lambda users, depth, draft: 2.0)
    assert len(asked) == 2
    assert not found.undecided
    assert crossovers.policy(found) == "Draft with γ = 2."
    asked, found = _run_steps(_plan(), lambda users, depth, draft: 1.0099, noise=0.01)  # 1 % is what matters
    assert sorted({repeats for _, repeats in asked}) == [1, *LOOKS]
    assert found.undecided
    asked, _ = _run_steps(_plan(max_time=3600), lambda users, depth, draft: 1.0, wall_s=1e6)
    assert len(asked) == 2
    asked, _ = _run_steps(_plan(max_time=0.0), lambda users, depth, draft: 1.0)
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"p_min": (0.0, 0.5)}, "compares draft sizes, and nothing else"),
        ({"threads": (1, 2)}, "compares draft sizes, and nothing else"),
        ({"engine": "binary"}, "neither several users"),
    ],
)
def test_what_is_no_crossover_is_refused(llama: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(GgufspecError, match=message):
        _plan(**options)


def test_the_notes_say_what_is_measured_first(llama: Path) -> None:
    notes = _plan().session.notes
    assert "crossover: 4 numbers of users at 2 depths; 4 of 8 cells are measured first" in notes
    assert not any(note.startswith("traffic:") for note in notes)


def test_drafts_of_all_users_must_fit_into_a_batch(llama: Path) -> None:
    with pytest.raises(
        GgufspecError, match="300 users with drafts of 8 tokens have batches of 2,700"
    ) as caught:
        prepare_session(BenchOptions(engine="server", parallel=(1, 300), draft=(2, 8), n_predict=16))
    assert caught.value.hint == "use -b 2700 or more, shorter drafts or fewer users"


def test_a_crossover_is_one_stored_bench_that_can_be_continued(llama: Path) -> None:
    words = ("--parallel", "1,2", "--draft", "2", "-n", "16", "-p", "one", "-p", "two", "-t", "1")
    done = shell.done("crossover", "--pair", "demo", *words, "--name", "map", "-o", "json")
    validate("crossover", json.loads(done.stdout))
    first = len(results.load("map").current)
    assert first >= 2 * 2 * 2  # users, arms and repeats
    again = shell.done("crossover", "--pair", "demo", *words, "--max-time", "2s", "--resume", "map")
    assert len(results.load("map").current) >= first
    assert "2 of 2 cells measured" in again.stdout
    assert shell.here("crossover", *words, "--name", "a", "--resume", "b").returncode == 2


@pytest.mark.parametrize(
    ("text", "depths"),
    [
        ("0-32k", (0, 4096, 8192, 16384, 32768)),
        ("0,512", (0, 512)),
        ("16k", (16384,)),
        ("1000-8000", (1000, 2000, 4000, 8000)),
        ("0-8k+4k", (0, 4096, 8192)),
        ("5-5", (5,)),
    ],
)
def test_depths_are_read(text: str, depths: tuple[int, ...]) -> None:
    assert Depths().parse(text) == depths


@pytest.mark.parametrize("text", ["k", "32k-0", "1.5k", "-3", "99999k"])
def test_other_depths_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"range|number"):
        Depths().parse(text)


def test_several_users_share_batches_in_a_whatif() -> None:
    one, many = (
        ggufspec.whatif("demo", machine="h100", alpha=0.7, draft=(2, 4), parallel=users, ctx=1000)
        for users in (1, 64)
    )
    assert [projection.users for projection in many.projections] == [64, 64]
    assert many.best.tokens_per_s > one.best.tokens_per_s
    assert many.best.verify_ratio > one.best.verify_ratio
    deep = ggufspec.whatif("demo", machine="h100", alpha=0.7, draft=2, parallel=64, ctx=2000)
    assert deep.best.tokens_per_s < many.projections[0].tokens_per_s
    assert any("64 users draft in step" in note for note in many.notes)
    done = shell.here("whatif", "--pair", "demo", "--machine", "h100", "--alpha", "0.7", "-np", "64")
    assert "of all 64 users together" in done.stdout


def test_several_users_by_hand_in_a_whatif() -> None:
    """Two users, γ 1: a batch of 4 costs 1.6 tokens, one of 2 costs 1.2; α 0.5 accepts half a token each."""
    costs = (1.0, 1.2, 1.4, 1.6)
    answer = ggufspec.whatif(
        target_tps=10.0, drafter_tps=100.0, verify_cost=costs, alpha=0.5, draft=1, parallel=2
    )
    round_s = 0.16 + 0.01 + 0.01
    assert answer.best.tokens_per_s == pytest.approx(2 * 1.5 / round_s)
    assert answer.best.speedup == pytest.approx(1.5 * 0.12 / round_s)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_tps": 2.0, "drafter_tps": 80.0}, "batches of N"),
        ({"pair": "demo", "machine": "h100", "program": "speculative"}, "one request at a time"),
        ({"target_tps": 2.0, "drafter_tps": 80.0, "verify_cost": (1.0, 1.1)}, "drafts of these sizes"),
    ],
)
def test_users_without_costs_are_refused_in_a_whatif(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ggufspec.whatif(**{"alpha": 0.7, "parallel": 4, **options})
