"""Whether drafts are the likeliest tokens or sampled: where there is that choice, and where it is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec.domain import (
    ENGINES,
    Chain,
    Drafting,
    DraftSampling,
    Method,
    Program,
    Role,
    RunSpec,
    Sampling,
)
from ggufspec.engines import check_draft_sampling
from ggufspec.errors import GgufspecError
from ggufspec.llama.command import commands
from ggufspec.measure import configured
from ggufspec.options import BenchOptions
from ggufspec.report.rows.benches import SettingsRow
from ggufspec.report.text import configuration
from ggufspec.tuning import prospects
from tests.support import command_lines, scripted, values
from tests.support.fakes import recorded_install

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
