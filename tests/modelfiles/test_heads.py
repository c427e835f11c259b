"""Heads and chains: which build and program drafts by what, what a header says, and what is measured."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ggufspec
from ggufspec.domain import (
    Chain,
    Drafting,
    Method,
    ModelFile,
    ModelRun,
    NgramSettings,
    Offload,
    Program,
    Role,
    RunSpec,
    Runtime,
)
from ggufspec.errors import GgufspecError, NoInstallError
from ggufspec.forecast import costs, whatif
from ggufspec.llama.command import (
    FIRST_BUILDS,
    canonical_ngram,
    check_arguments,
    commands,
    draft_sizes,
    longest_draft,
)
from ggufspec.llama.install import Install
from ggufspec.measure import find_methods, prepare_session
from ggufspec.measure.runplan import RunPlan
from ggufspec.measure.sweep import Sweep
from ggufspec.modelfiles import gguf, memory
from ggufspec.modelfiles.compat import Head, heads, judging, read_head
from ggufspec.options import BenchOptions
from tests.support import models, shell, values
from tests.support.fakes import numbered_install

# which build and program drafts by what

NGRAMS = [method for method in FIRST_BUILDS if not method.drafts_with_model]
DSPARK = Method.DRAFT_DSPARK
HEADS = [method for method in Method if method.is_head]
CHAIN = Chain(Method.DRAFT_MODEL, (Method.NGRAM_MOD,))
EVERY_WAY = (*map(Chain, Method), CHAIN, *(Chain(head, (Method.NGRAM_SIMPLE,)) for head in HEADS))


def _ways(*methods: Method, chains: Iterable[Chain] = ()) -> set[Chain]:
    return {*map(Chain, methods), *chains}


MODEL, NOTHING = _ways(Method.DRAFT_MODEL), set[Chain]()
TEXT = _ways(Method.DRAFT_MODEL, *NGRAMS)
MTP = TEXT | _ways(Method.DRAFT_MTP, chains=(CHAIN, Chain(Method.DRAFT_MTP, (Method.NGRAM_SIMPLE,))))
TODAY = set(EVERY_WAY) - _ways(Method.SUFFIX)
DRAFTS = {  # by build: what the simple program and the server draft by; the tree program has draft models
    "0.2.63": (NOTHING, NOTHING),
    "0.2.90": (NOTHING, NOTHING),
    "0.3.2": (NOTHING, NOTHING),
    "0.3.16": (MODEL, MODEL),
    "0.3.20": (MODEL, TEXT),
    "0.3.23": (TEXT, TEXT),
    "0.3.24": (MTP, MTP),  # it lists draft-eagle3
    "0.3.36": (TODAY, TODAY),
}


def _spec(way: Chain, *, n_max: int | None = None, **changes: Any) -> RunSpec:
    spec = values.spec(Role.DRAFTING, draft=3, path=Path("T"))
    if way.method is Method.DRAFT_MTP or not way.method.drafts_with_model:
        spec = replace(spec, pair=replace(spec.pair, draft=None))
    n_max = n_max or draft_sizes(way.method)[0]
    drafting = Drafting(n_max=n_max, method=way.method, first=way.first, **changes)
    return replace(spec, drafting=drafting)


def _argv(spec: RunSpec, install: Install, program: Program) -> tuple[str, ...]:
    if program is Program.SERVER:
        return commands.server_argv(spec, install, port=1, key_file=Path("K"), slots_dir=None)
    return commands.argv(spec, install, program=program)


@pytest.mark.parametrize("program", [Program.TREE, Program.SIMPLE, Program.SERVER])
@pytest.mark.parametrize("build", DRAFTS)
def test_every_build_and_program_drafts_by_a_method_or_refuses_it(build: str, program: Program) -> None:
    install = numbered_install(build)
    simple, server = DRAFTS[build]
    known = {Program.TREE: MODEL, Program.SIMPLE: simple, Program.SERVER: server}[program]
    for way in EVERY_WAY:
        if way not in known:
            with pytest.raises(GgufspecError) as caught:
                _argv(_spec(way), install, program)
            assert "\n" not in caught.value.message, way
            assert caught.value.hint or isinstance(caught.value, NoInstallError), way
            continue
        words = _argv(_spec(way), install, program)
        if way == Chain(Method.DRAFT_MODEL):
            assert {"--model-draft", "-md"} & set(words), way
            continue
        named = str(way).replace("draft-model", "draft-simple").replace("+", ",")
        assert words[words.index("--spec-type") + 1] == named, way


@pytest.mark.parametrize("method", FIRST_BUILDS)
def test_a_refusal_names_the_first_build_that_drafts_so(method: Method) -> None:
    with pytest.raises(GgufspecError, match=f"cannot draft by {method.value}") as caught:
        commands.argv(_spec(Chain(method)), numbered_install("0.3.16"), program=Program.SIMPLE)
    first = {Method.DRAFT_MTP: 9180, Method.DRAFT_EAGLE3: 9606, Method.DRAFT_DFLASH: 9831, DSPARK: 10163}
    assert f"b{first.get(method, 7864)} and newer" in (caught.value.hint or "")


def test_a_build_of_unknown_number_is_believed() -> None:
    install = replace(numbered_install("0.3.24"), build_number=None)
    assert "draft-eagle3" in commands.argv(_spec(Chain(Method.DRAFT_EAGLE3)), install, program=Program.SIMPLE)


def test_a_head_gets_the_flags_of_a_drafter_and_layers_of_the_target_do_not() -> None:
    install = numbered_install("0.3.36")
    text = " ".join(commands.argv(_spec(Chain(Method.DRAFT_EAGLE3)), install, program=Program.SIMPLE))
    assert (
        " --spec-type draft-eagle3 --model-draft drafter.gguf -ngld 0 --threads-draft 2 "
        "--threads-batch-draft 2 --spec-draft-n-max 3 --spec-draft-n-min 0 --draft-p-min 0 " in text
    )
    mtp = _spec(Chain(Method.DRAFT_MTP), p_min=0.5)
    text = " ".join(commands.argv(mtp, install, program=Program.SIMPLE))
    assert " --spec-type draft-mtp --spec-draft-n-max 3 --spec-draft-n-min 0 --draft-p-min 0.5 " in text
    assert "-ngld" not in text
    quantised = values.with_caches(mtp, "q8_0")
    text = " ".join(commands.argv(quantised, install, program=Program.SIMPLE))
    assert "--spec-draft-type-k q8_0 --spec-draft-type-v q8_0" in text
    assert "--model-draft" not in text


@pytest.mark.parametrize(("state", "flag"), [("on", "--spec"), ("off", "--no-spec")])
def test_where_a_head_samples_is_passed_on(state: str, flag: str) -> None:
    spec = replace(_spec(Chain(Method.DRAFT_EAGLE3)), runtime=Runtime(draft_backend_sampling=state))
    words = commands.argv(spec, numbered_install("0.3.36"), program=Program.SIMPLE)
    assert f"{flag}-draft-backend-sampling" in words
    assert spec.runtime.words == ("--draft-backend-sampling", state)
    older = replace(_spec(Chain(Method.DRAFT_MODEL)), runtime=spec.runtime)
    with pytest.raises(GgufspecError, match=f"has no {flag}-draft-backend-sampling"):
        commands.argv(older, numbered_install("0.3.16"), program=Program.SIMPLE)


def test_a_chain_says_all_that_decides() -> None:
    way = Chain.parse("draft-eagle3+ngram-mod+ngram-simple")
    ngram = NgramSettings(size_n=16, n_min=4)
    text = " ".join(
        commands.argv(_spec(way, ngram=ngram), numbered_install("0.3.36"), program=Program.SIMPLE)
    )
    assert " --spec-type ngram-simple,ngram-mod,draft-eagle3 --model-draft drafter.gguf " in text
    assert (
        " --spec-draft-n-max 3 --spec-draft-n-min 0 --draft-p-min 0 --spec-ngram-simple-size-n 16 "
        "--spec-ngram-simple-size-m 48 --spec-ngram-simple-min-hits 1 --spec-ngram-mod-n-match 16 "
        "--spec-ngram-mod-n-max 64 --spec-ngram-mod-n-min 4 " in text
    )


def test_upstreams_shortcut_is_refused_under_its_meaning() -> None:
    with pytest.raises(GgufspecError, match="--spec-default cannot be passed") as caught:
        check_arguments(("--spec-default",))
    assert "--method ngram-mod" in (caught.value.hint or "")


# names


def test_permutations_are_one_chain() -> None:
    way = Chain.parse("ngram-mod+draft-eagle3")
    assert way == Chain.parse("draft-eagle3+ngram-mod") == Chain(Method.DRAFT_EAGLE3, (Method.NGRAM_MOD,))
    assert str(way) == "ngram-mod+draft-eagle3"
    assert way.methods == (Method.NGRAM_MOD, Method.DRAFT_EAGLE3)
    assert Chain.parse("ngram-mod") == Chain(Method.NGRAM_MOD)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("draft-medusa", "no drafting method is called 'draft-medusa'"),
        ("ngram-mod+", "no drafting method is called ''"),
        ("draft-mtp+draft-eagle3", "one of its methods drafts with a model"),
        ("ngram-mod+ngram-simple", "one of its methods drafts with a model"),
    ],
)
def test_what_is_no_chain_is_refused(text: str, problem: str) -> None:
    done = shell.here("sweep", "--dry-run", "--pair", "demo", "--method", text)
    assert done.returncode == 2
    assert problem in " ".join(done.stderr.split())


# settings of n-grams


def test_chains_have_settings_and_lengths() -> None:
    mod, simple = Chain(Method.NGRAM_MOD), Chain(Method.NGRAM_SIMPLE)
    assert canonical_ngram(mod, NgramSettings(size_n=24, size_m=32, min_hits=3)) == NgramSettings()
    assert canonical_ngram(simple, NgramSettings(size_n=24)) == NgramSettings(size_n=24)
    chain = Chain(Method.DRAFT_MTP, (Method.NGRAM_MOD,))
    assert canonical_ngram(chain, NgramSettings(size_m=32)) == NgramSettings(size_m=32)
    assert canonical_ngram(Chain(Method.DRAFT_MTP), NgramSettings(size_n=8)) == NgramSettings()
    first = (Method.NGRAM_SIMPLE, Method.NGRAM_MOD)
    assert longest_draft(Drafting(n_max=3, method=Method.DRAFT_MTP, first=first)) == 64
    ngram = NgramSettings(size_m=16)
    assert longest_draft(Drafting(n_max=3, method=Method.DRAFT_MTP, first=first, ngram=ngram)) == 16
    assert longest_draft(Drafting(n_max=3)) == 3
    assert draft_sizes(Method.NGRAM_SIMPLE, (8, 16), NgramSettings(size_n=4)) == (8, 16)
    assert draft_sizes(Method.NGRAM_SIMPLE, (8, 16), NgramSettings(size_n=20)) == ()
    assert draft_sizes(Method.NGRAM_MOD, (8, 16), NgramSettings(size_m=32)) == (32,)


# what a header says


def _without(model: models.Model, name: str) -> models.Model:
    """Return a model without a key, or without a tensor."""
    metadata, specs = model
    return {key: value for key, value in metadata.items() if key != name}, [
        spec for spec in specs if spec[0] != name
    ]


def _with_keys(model: models.Model, **keys: models.Value) -> models.Model:
    metadata, specs = model
    return metadata | {key.replace("__", "."): value for key, value in keys.items()}, specs


@pytest.mark.parametrize(
    ("model", "head"),
    [
        (models.llama(), None),
        (models.eagle3(), Head(method=Method.DRAFT_EAGLE3, n_states=3)),
        (models.dflash(), Head(method=Method.DRAFT_DFLASH, most=7, n_states=3)),
        (models.dflash(markov=True), Head(method=DSPARK, most=8, n_states=3)),
        (models.dflash(markov=True, sample_from_anchor=False), Head(method=DSPARK, most=7, n_states=3)),
        (models.with_mtp(), Head(method=Method.DRAFT_MTP, in_target=True)),
        (models.with_mtp(n_mtp=2), Head(method=Method.DRAFT_MTP, most=2, in_target=True)),
        (models.with_mtp(alone=True), Head(method=Method.DRAFT_MTP)),
        (models.with_mtp(stripped=True), None),
    ],
)
def test_a_header_says_what_drafts_and_how_far(model: models.Model, head: Head | None) -> None:
    assert read_head(models.card(model)) == head


@pytest.mark.parametrize(
    ("model", "fault"),
    [
        (models.eagle3(), None),
        (models.eagle3(target_layers=(0, 1, 2)), None),  # the last one is the output's input
        (models.eagle3(target_layers=(0, 1, 3)), "reads layer 3, and the target has 2"),
        (models.eagle3(target_layers=(0, 1)), "reads 2 layers of the target; llama.cpp expects 3"),
        (models.eagle3(width=128), "states of width 128, and the target's are 64 wide"),
        (models.eagle3(vocabulary=60), "the target has 64 tokens, and the head 60"),
        (models.dflash(), None),
        (models.dflash(n_embd=128), "states of width 128"),
        (models.dflash(target_layers=(0, 1, 2)), "cannot read the output of the last layer"),
        (models.dflash(block=1), "a block of 1 token, which leaves nothing to draft"),
        (models.dflash(markov=True, block=1), None),
        (_without(models.dflash(markov=True), "dflash.block_size"), "how long its trained block is"),
        (_without(models.dflash(), "dflash.block_size"), None),
        (_without(models.dflash(), "fc.weight"), "joins 0 values of the target's states, and reads 192"),
        (_with_keys(models.dflash(), dflash__target_layers=[0, 1]), "joins 192 values of the target's"),
        (_with_keys(models.eagle3(), eagle3__block_count=2), "has 2 layers; llama.cpp expects 1"),
        (_without(models.dflash(), "tokenizer.ggml.mask_token_id"), "names no mask token"),
        (models.with_mtp(alone=True), None),
        (models.with_mtp(alone=True, n_embd=32), "states of width 32"),
    ],
)
def test_a_head_belongs_to_a_target_or_says_why_not(model: models.Model, fault: str | None) -> None:
    target, head = models.card(models.llama()), models.card(model)
    verdict = judging.check_pair(target, head, judging.rule_for(Program.SERVER), build=11312)
    if fault is None:
        assert (verdict.outcome, verdict.reasons) == (judging.CompatOutcome.ACCEPTED, ())
        return
    assert verdict.outcome is judging.CompatOutcome.REFUSED
    assert any(fault in reason for reason in verdict.reasons)
    assert verdict.helps


@pytest.mark.parametrize(
    ("head", "build", "reason"),
    [
        (models.eagle3(), 9553, "proportions that are gone"),
        (models.eagle3(), 11434, None),
        (models.dflash(), 9831, "proportions that are gone"),
        (models.dflash(), None, None),
        (models.dflash(markov=True), 11434, "#27833"),
        (models.dflash(selector_top_k=8), None, "#27833"),
        (models.llama(), 9553, None),  # a draft model
        (None, 9553, "#24309"),
        (None, 11434, None),
    ],
)
def test_crashes_of_tensor_splits(head: models.Model | None, build: int | None, reason: str | None) -> None:
    model = models.with_mtp() if head is None else models.llama()
    target = models.card(models.renamed(model, "glm4moe"))
    drafter = None if head is None else models.card(head)
    why = heads.why_not_split_by_tensor(target, drafter, build)
    assert why is None if reason is None else reason in str(why)


def test_a_target_whose_layers_cannot_be_read_is_named() -> None:
    target = models.card(models.renamed(models.llama(), "gemma"))
    faults = heads.find_faults(target, models.card(models.eagle3()))
    assert faults == ("llama.cpp cannot read the states of layers of the architecture gemma",)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("head.gguf",), 0, "accepted (server of builds 9548 and newer)"),
        (("head.gguf", "--program", "speculative"), 7, "only with a draft model, not by draft-eagle3"),
        (("head.gguf", "--build", "9600"), 7, "build 9600 cannot draft by draft-eagle3"),
        (("other.gguf",), 7, "reads states of width 128"),
    ],
)
def test_check_knows_heads(tmp_path: Path, words: tuple[str, ...], code: int, says: str) -> None:
    models.write_model(tmp_path / "target.gguf", *models.llama())
    models.write_model(tmp_path / "head.gguf", *models.eagle3())
    models.write_model(tmp_path / "other.gguf", *models.eagle3(width=128))
    name, *options = words
    done = shell.here("check", str(tmp_path / "target.gguf"), str(tmp_path / name), *options)
    assert done.returncode == code
    assert says in done.stdout


# what is measured

T, D, H, M = (ModelFile(filename=name) for name in ("target", "drafter", "dflash", "mtp"))
HELD = {H: Head(method=Method.DRAFT_DFLASH, most=4), M: Head(method=Method.DRAFT_MTP, in_target=True)}


def _sweep(**axes: Any) -> Sweep:
    defaults = {"name": "p", "targets": (T,), "drafters": (), "heads": HELD, "n_predict": 9, "context": 64}
    return Sweep(**{**defaults, **axes})


def _arms(sweep: Sweep) -> list[tuple[str, str | None, int]]:
    blocks = sweep.blocks()
    arms = [arm for block in blocks for arm in block.arms]
    counts = {role: sum(arm.role is role for arm in arms) for role in Role}
    assert {role: blocks.n_arms[role] for role in Role} == counts
    assert len({arm.key for arm in arms}) == len(arms)
    suite = RunPlan(blocks=blocks, prompts=())
    assert suite.n_arms == RunPlan(blocks=tuple(blocks), prompts=()).n_arms
    return _drafting(arms)


def _drafting(arms: Iterable[RunSpec]) -> list[tuple[str, str | None, int]]:
    """Return what drafts in each arm that does: the method, the drafter's file and the draft size."""
    return [
        (str(arm.drafting.chain), arm.drafter.filename if arm.drafter else None, arm.drafting.n_max)
        for arm in arms
        if arm.drafting
    ]


def test_draft_sizes_beyond_a_heads_most_are_one_arm() -> None:
    sweep = _sweep(drafters=(H,), methods=(Method.DRAFT_DFLASH,), draft_sizes=(2, 4, 8, 16))
    assert _arms(sweep) == [("draft-dflash", "dflash", 2), ("draft-dflash", "dflash", 4)]


def test_each_file_drafts_by_its_own_method_and_a_head_never_runs_alone() -> None:
    sweep = _sweep(
        drafters=(D, H),
        methods=(Method.DRAFT_MODEL, Method.DRAFT_DFLASH, Method.NGRAM_MOD),
        chains=(Chain(Method.DRAFT_DFLASH, (Method.NGRAM_MOD,)),),
    )
    assert _arms(sweep) == [
        ("draft-model", "drafter", 3),
        ("draft-dflash", "dflash", 3),
        ("ngram-mod+draft-dflash", "dflash", 3),
        ("ngram-mod", None, 64),
    ]
    alone = [arm.drafter or arm.pair.draft for arm in sweep.blocks()[0].arms if arm.role is Role.DRAFTER]
    assert alone == [D]


def test_layers_of_the_target_draft_without_a_file() -> None:
    sweep = _sweep(targets=(M,), methods=(Method.DRAFT_MTP,), p_mins=(0.0, 0.5))
    assert _arms(sweep) == [("draft-mtp", None, 3)] * 2
    assert [arm.drafting.p_min for arm in sweep.blocks()[0].arms if arm.drafting] == [0.0, 0.5]
    assert _arms(_sweep(targets=(T, M), methods=(Method.DRAFT_MTP,))) == [("draft-mtp", None, 3)]


def test_where_a_head_samples_is_an_axis_of_heads_alone() -> None:
    runtimes = (Runtime(draft_backend_sampling="on"), Runtime(draft_backend_sampling="off"))
    methods = (Method.DRAFT_MODEL, Method.DRAFT_DFLASH, Method.NGRAM_MOD)
    sweep = _sweep(drafters=(D, H), methods=methods, runtimes=runtimes)
    named = [name for name, *_ in _arms(sweep)]
    assert named == ["draft-model", "draft-dflash", "draft-dflash", "ngram-mod"]


def test_settings_of_n_grams_are_an_axis_of_methods_that_use_them() -> None:
    ngrams = (NgramSettings(), NgramSettings(size_n=12), NgramSettings(size_n=24), NgramSettings(size_m=16))
    sweep = _sweep(methods=(Method.NGRAM_MOD, Method.NGRAM_SIMPLE), ngrams=ngrams)
    arms = [arm.drafting for arm in sweep.blocks()[0].arms if arm.drafting]
    assert [(arm.method.value, str(arm.ngram), arm.n_max) for arm in arms] == [
        ("ngram-mod", "", 64),
        ("ngram-mod", "size-n=12", 64),
        ("ngram-mod", "", 16),
        ("ngram-simple", "", 48),
        ("ngram-simple", "size-n=24", 48),
        ("ngram-simple", "", 16),
    ]
    _arms(sweep)


# from a request to a session


@pytest.fixture
def files(tmp_path: Path, llama_server: Path) -> Path:
    written = {
        "target": models.llama(context=4096),
        "drafter": models.llama(n_layers=1, context=4096),
        "eagle3": models.eagle3(),
        "dflash": models.dflash(block=4),
        "with-mtp": models.with_mtp(context=4096),
        "mtp": models.with_mtp(alone=True),
    }
    for name, model in written.items():
        models.write_model(tmp_path / f"{name}.gguf", *model)
    return tmp_path


def _request(files: Path, target: str, *drafters: str, **options: Any) -> BenchOptions:
    usual: dict[str, Any] = {"engine": "server", "prompt": ("Hello",), "chat": False}
    named = tuple(files / f"{name}.gguf" for name in drafters) or None
    return BenchOptions(target=files / f"{target}.gguf", draft_model=named, **usual | options)


def _measured(asked: BenchOptions) -> list[tuple[str, str | None, int]]:
    return _drafting(prepare_session(asked).suite.blocks[0].arms)


def test_a_drafters_header_says_how_it_drafts(files: Path) -> None:
    assert _measured(_request(files, "target", "eagle3")) == [("draft-eagle3", "eagle3.gguf", 3)]
    assert _measured(_request(files, "target", "mtp")) == [("draft-mtp", "mtp.gguf", 3)]
    assert _measured(_request(files, "target", "drafter", "dflash", draft=(2, 8))) == [
        ("draft-model", "drafter.gguf", 2),
        ("draft-model", "drafter.gguf", 8),
        ("draft-dflash", "dflash.gguf", 2),
        ("draft-dflash", "dflash.gguf", 3),
    ]
    assert find_methods(_request(files, "target", "drafter", "dflash")) == ("draft-model", "draft-dflash")
    assert find_methods(_request(files, "with-mtp")) == ("draft-model", "draft-mtp")


def test_a_lowered_draft_size_is_said(files: Path) -> None:
    session = prepare_session(_request(files, "target", "dflash", draft=(2, 8, 16)))
    assert (
        "draft sizes: dflash.gguf drafts at most 3 tokens; --draft 8, 16 would be the same as 3, "
        "which is measured" in session.notes
    )


def test_a_head_without_confidence_takes_no_p_min(files: Path) -> None:
    """llama.cpp ends with an error there, after both models are loaded."""
    unsure = models.dflash(markov=True, has_confidence_head=False)
    models.write_model(files / "dspark.gguf", *unsure)
    session = prepare_session(_request(files, "target", "dspark", p_min=(0.0, 0.5), draft=2))
    assert any("dspark.gguf has no confidence head" in note for note in session.notes)
    drafting = [arm.drafting for arm in session.suite.blocks[0].arms if arm.drafting]
    assert [one.p_min for one in drafting] == [0.0]
    with pytest.raises(GgufspecError, match="no confidence head") as caught:
        prepare_session(_request(files, "target", "dspark", p_min=0.5))
    assert caught.value.hint == "add --p-min 0"


def test_layers_for_mtp_draft_where_they_are_asked_for(files: Path) -> None:
    session = prepare_session(_request(files, "with-mtp"))
    assert any("--method draft-mtp" in note for note in session.notes)
    assert _measured(_request(files, "with-mtp", method="draft-mtp")) == [("draft-mtp", None, 3)]
    assert _measured(_request(files, "with-mtp", method="ngram-mod+draft-mtp")) == [
        ("ngram-mod+draft-mtp", None, 3)
    ]
    arm = prepare_session(_request(files, "with-mtp", method="draft-mtp+ngram-mod")).suite.blocks[0]
    assert arm.arms[1].context >= arm.arms[1].n_predict + 64


@pytest.mark.parametrize(
    ("target", "drafters", "options", "problem"),
    [
        ("target", ("drafter",), {"method": "draft-dflash"}, "drafter.gguf drafts by draft-model, not by"),
        ("target", ("eagle3",), {"method": "draft-model"}, "eagle3.gguf drafts by draft-eagle3, not by"),
        ("target", ("eagle3",), {"engine": "binary"}, "only with a draft model, not by draft-eagle3"),
        ("target", ("eagle3",), {"engine": "inprocess"}, "only with a draft model, not by draft-eagle3"),
        ("with-mtp", (), {"method": "draft-mtp", "ngram": NgramSettings(size_n=8)}, "uses size-n"),
        ("target", (), {"method": "ngram-mod", "ngram": NgramSettings(min_hits=2)}, "uses min-hits"),
    ],
)
def test_what_cannot_draft_is_refused_before_anything_runs(
    files: Path, target: str, drafters: tuple[str, ...], options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(GgufspecError, match=problem) as caught:
        prepare_session(_request(files, target, *drafters, **options))
    assert caught.value.hint


# memory


def test_layers_for_mtp_take_memory_only_where_they_draft() -> None:
    card = models.card(models.with_mtp(n_embd=256, n_ff=512, n_layers=3))
    without = models.card(models.llama(n_embd=256, n_ff=512, n_layers=2))
    settings = memory.MemorySettings(context=512)
    offload = values.spec().offload

    def planned(model: gguf.ModelCard, **changes: Any) -> memory.MemoryPlan:
        return memory.plan(model, None, offload, replace(settings, **changes))

    alone, plain = planned(card), planned(without)
    assert alone.target.gpu.weights == plain.target.gpu.weights
    assert alone.target.gpu.cache == plain.target.gpu.cache
    drafting = planned(card, mtp=True)
    extra = sum(tensor.size_bytes for tensor in card.tensors if tensor.name.startswith("blk.2."))
    assert drafting.target.gpu.weights - alone.target.gpu.weights == extra
    assert drafting.target.gpu.cache * 2 == alone.target.gpu.cache * 3
    assert drafting.target.host.compute - alone.target.host.compute == 512 * 256 * 4
    before = memory.layout_for(9500)
    assert planned(card, layout=before).target.gpu.weights == drafting.target.gpu.weights


def test_a_head_counts_with_the_states_that_it_reads() -> None:
    target, head = models.card(models.llama()), models.card(models.eagle3())
    settings, offload = memory.MemorySettings(context=512), values.spec().offload
    alone = memory.plan(target, None, offload, settings)
    with_head = memory.plan(target, head, offload, settings)
    weights = with_head.draft.gpu.weights + with_head.draft.host.weights
    assert weights == sum(tensor.size_bytes for tensor in head.tensors)
    assert with_head.target.host.compute - alone.target.host.compute == 3 * 512 * 64 * 4


def test_layers_for_mtp_draft_on_the_last_gpu() -> None:
    card = models.card(models.with_mtp(n_embd=256, n_ff=512, n_layers=3))
    settings = memory.MemorySettings(context=512)
    split = Offload(target=ModelRun(layers="all"), tensor_split=(1.0, 1.0))
    alone, drafting = (
        memory.plan(card, None, split, replace(settings, mtp=mtp)).target for mtp in (False, True)
    )
    assert drafting.gpus[0] == alone.gpus[0]
    assert drafting.gpus[1].total > alone.gpus[1].total
    assert sum(gpu.total for gpu in drafting.gpus) == drafting.gpu.total


def test_a_plan_knows_what_drafts(tmp_path: Path) -> None:
    target = str(models.write_model(tmp_path / "m.gguf", *models.with_mtp(n_embd=256, n_ff=512)))
    alone = ggufspec.plan(target=target, vram="24G")
    drafting = ggufspec.plan(target=target, method="draft-mtp", vram="24G")
    assert (alone.method, drafting.method) == (None, Chain(Method.DRAFT_MTP))
    assert drafting.shown.gpu_bytes > alone.shown.gpu_bytes
    done = shell.done("plan", "-m", target, "--method", "draft-mtp", "--vram", "24G", "-o", "json")
    assert "drafts with draft-mtp, which needs no second model" in done.stderr
    assert json.loads(done.stdout)[-1]["gpu_bytes"] == drafting.plans[-1].gpu_bytes


def test_a_roofline_leaves_out_layers_for_mtp() -> None:
    card = models.card(models.with_mtp(n_embd=256, n_ff=512, n_layers=3))
    without = models.card(models.llama(n_embd=256, n_ff=512, n_layers=2))
    assert whatif.shape(card, depth=512) == whatif.shape(without, depth=512)
    assert _parts(card) == _parts(without)
    alone = models.card(models.with_mtp(n_embd=256, n_ff=512, n_layers=3, alone=True))
    assert whatif.shape(alone, depth=512).weight_bytes > 0


def _parts(card: gguf.ModelCard) -> tuple[costs.ModelPart, ...]:
    machines = whatif.Machines.named("rtx-3090", None, n_gpus=0)
    return whatif.parts_of(card, Offload(target=ModelRun(layers="all")), machines, depth=512)
