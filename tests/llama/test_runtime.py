"""llama.cpp's settings besides placement: flags of each era, identity, axes, and arguments passed on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec import paths, results
from ggufspec.domain import CacheTypes, Drafting, ModelRun, Offload, Program, Role, RunSpec, Runtime
from ggufspec.errors import GgufspecError
from ggufspec.llama.command import check_arguments, commands
from ggufspec.modelfiles import memory
from ggufspec.modelfiles.gguf import validate_file
from ggufspec.options import RuntimeOptions
from ggufspec.options.kinds import PassedOn
from tests.support import scripted, shell, values
from tests.support.fakes import recorded_install

Q8, F16 = CacheTypes("q8_0", "q8_0"), CacheTypes("f16", "f16")
QUICK = ("--pair", "demo", "-n", "32", "-t", "1", "--warmup", "0", "-p", "One", "-r", "1")


def _argv(build: str, runtime: Runtime | None = None, *caches: str | None, drafts: bool = False) -> str:
    spec = values.spec(Role.DRAFTING if drafts else Role.TARGET, path=Path("T"))
    drafting = Drafting(n_max=3) if drafts else None
    spec = values.with_caches(replace(spec, runtime=runtime or Runtime(), drafting=drafting), *caches)
    program = Program.TREE if drafts else Program.PLAIN
    return f"{' '.join(commands.argv(spec, recorded_install(build, 'cpu'), program=program))} "


@pytest.mark.parametrize(
    ("build", "runtime", "words"),
    [
        ("0.3.36", Runtime(flash_attn="on"), " --flash-attn on "),
        ("0.3.36", Runtime(flash_attn="off"), " --flash-attn off "),
        ("0.3.16", Runtime(flash_attn="on"), " --flash-attn "),
        ("0.3.36", Runtime(batch=256), " --batch-size 256 "),
        ("0.3.36", Runtime(override_tensor="exps=CPU"), " --override-tensor exps=CPU "),
        ("0.3.20", Runtime(mmap=False), " --no-mmap "),
        ("0.2.63", Runtime(mlock=True), " --mlock "),
        ("0.3.36", Runtime(mmap=False), " --load-mode none "),
        ("0.3.36", Runtime(mlock=True), " --load-mode mlock "),
        ("0.2.63", Runtime(numa="distribute"), " --numa distribute "),
        ("0.3.16", Runtime(cpu_mask="0x3"), " --cpu-mask 0x3 "),
        ("0.3.36", Runtime(prio=2), " --prio 2 "),
        ("0.3.36", Runtime(poll=0), " --poll 0 "),
        ("0.3.36", Runtime(args=("--no-repack",)), " --no-repack "),
    ],
)
def test_settings_become_the_flags_of_their_era(build: str, runtime: Runtime, words: str) -> None:
    assert words in _argv(build, runtime)
    assert words not in _argv(build, Runtime())


@pytest.mark.parametrize(
    ("build", "runtime", "named"),
    [
        ("0.2.63", Runtime(flash_attn="on"), "--flash-attn"),
        ("0.3.16", Runtime(flash_attn="auto"), "--flash-attn auto"),
        ("0.2.90", Runtime(override_tensor="exps=CPU"), "--override-tensor"),
        ("0.2.63", Runtime(cpu_mask="3"), "--cpu-mask"),
        ("0.2.63", Runtime(prio=1), "--prio"),
        ("0.2.63", Runtime(poll=50), "--poll"),
        ("0.3.36", Runtime(mmproj=Path("P")), "--mmproj"),  # the plain program
    ],
)
def test_what_a_build_lacks_is_refused_by_name(build: str, runtime: Runtime, named: str) -> None:
    with pytest.raises(GgufspecError, match=f"has no {named}"):
        _argv(build, runtime)


def test_caches_have_types_of_their_own() -> None:
    assert "--flash-attn" not in _argv("0.3.16", Runtime(flash_attn="off"))  # where it is a switch
    line = _argv("0.3.36", None, "q8_0,q4_0")
    assert " --cache-type-k q8_0 --cache-type-v q4_0 " in line
    assert " --flash-attn on " in line
    with pytest.raises(GgufspecError, match="needs flash attention"):
        _argv("0.3.36", Runtime(flash_attn="off"), "f16,q8_0")
    assert "--flash-attn off" in _argv("0.3.36", Runtime(flash_attn="off"), "q8_0,f16")
    line = _argv("0.3.36", None, "q8_0", "f16", drafts=True)
    assert " --cache-type-k q8_0 --cache-type-v q8_0 " in line
    assert " --spec-draft-type-k f16 --spec-draft-type-v f16 " in line
    with pytest.raises(GgufspecError, match="has no --cache-type-k-draft"):
        _argv("0.2.90", None, "q8_0", "f16", drafts=True)


def test_draft_arguments_are_passed_to_runs_that_draft() -> None:
    runtime = Runtime(args=("--no-repack",), draft_args=("--spec-draft-poll", "0"))
    assert _argv("0.3.36", runtime, drafts=True).endswith(" --no-repack --spec-draft-poll 0 ")
    assert _argv("0.3.36", runtime).endswith(" --no-repack ")


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("--log-disable", "--log-disable"),
        ("--log_disable", "--log-disable"),
        ("-s", "use the option --seed"),
        ("--prompt=Hello", "--prompt"),
        ("-n", "--n-predict"),
        ("--model", "--target"),
        ("--port", "--port"),
        ("-fa", "-fa"),
        ("--spec-draft-n-max", "--draft"),
    ],
)
def test_what_would_break_a_measurement_is_refused_by_name(word: str, named: str) -> None:
    with pytest.raises(GgufspecError) as refused:
        check_arguments(("--no-repack", word, "1"))
    assert named in f"{refused.value.message}; {refused.value.hint}"


def _texts(caches: tuple[CacheTypes | None, ...]) -> list[str]:
    return [*map(str, caches)]


def test_both_caches_of_the_drafter_have_one_type_of_their_own() -> None:
    assert _texts(RuntimeOptions(kv_type_draft=("q8_0", "f16")).draft_caches) == ["q8_0", "f16"]
    spec = values.with_caches(values.spec(Role.DRAFTING, draft=3), None, "q8_0")
    assert (spec.caches, spec.offload.drafter_caches) == (None, CacheTypes("q8_0", "q8_0"))
    assert spec.drafter_alone.caches == CacheTypes("q8_0", "q8_0")
    with pytest.raises(GgufspecError, match="--kv-type-draft is for both caches"):
        RuntimeOptions(kv_type_draft=("q8_0",), cache_type_v_draft=("f16",))


def test_one_type_leaves_the_other_cache_at_f16_and_the_old_option_sets_both() -> None:
    assert _texts(RuntimeOptions(cache_type_k=("q8_0",)).caches) == ["q8_0,f16"]
    assert _texts(RuntimeOptions(cache_type_v=("q8_0",)).caches) == ["f16,q8_0"]
    assert _texts(RuntimeOptions(cache_type_v_draft=("q8_0", "f32")).draft_caches) == ["f16,q8_0", "f16,f32"]
    assert _texts(RuntimeOptions(kv_type=("q8_0",)).caches) == ["q8_0"]
    assert CacheTypes.parse("q8_0") == CacheTypes("q8_0", "q8_0")
    assert RuntimeOptions().caches == (None,)
    with pytest.raises(GgufspecError, match="--kv-type is for both caches"):
        RuntimeOptions(kv_type=("q8_0",), cache_type_v=("f16",))


def test_arguments_are_an_axis() -> None:
    runtimes = RuntimeOptions(args=PassedOn().parse("-- --no-repack | "), flash_attn=("on", "off")).runtimes
    assert isinstance(runtimes, tuple)
    assert [(runtime.flash_attn, runtime.args) for runtime in runtimes] == [
        ("on", ("--no-repack",)),
        ("on", ()),
        ("off", ("--no-repack",)),
        ("off", ()),
    ]
    with pytest.raises(ValueError, match="cannot be read"):
        PassedOn().parse("--x 'y")


def _sweep(
    *runtimes: Runtime,
    caches: tuple[CacheTypes | None, ...] = (None,),
    draft_caches: tuple[CacheTypes | None, ...] = (None,),
) -> list[list[RunSpec]]:
    sweep = scripted.sweep(
        draft_sizes=(3,), caches=caches, draft_caches=draft_caches, runtimes=runtimes or (Runtime(),)
    )
    blocks = [list(block.arms) for block in sweep.blocks()]
    distinct = {arm.key: arm.role for block in blocks for arm in block}
    for role, count in sweep.blocks().n_arms.items():
        assert list(distinct.values()).count(role) == count
    return blocks


def test_settings_make_blocks() -> None:
    blocks = _sweep(Runtime(flash_attn="on"), Runtime(flash_attn="off"))
    assert [[arm.runtime.flash_attn for arm in block] for block in blocks] == [["on"] * 3, ["off"] * 3]
    (block,) = _sweep(draft_caches=(None, Q8))
    assert [arm.role for arm in block] == [Role.TARGET, *[Role.DRAFTER] * 2, *[Role.DRAFTING] * 2]
    assert all(arm.baseline == block[0] for arm in block[3:])
    (block,) = _sweep(Runtime(draft_args=("--spec-draft-poll", "0")), Runtime())
    assert [arm.role for arm in block] == [Role.TARGET, Role.DRAFTER, *[Role.DRAFTING] * 2]


def test_types_of_caches_are_stated_in_one_way() -> None:
    ((target, alone, drafting),) = _sweep(caches=(Q8,), draft_caches=(None, Q8))
    assert target.caches == alone.caches == Q8
    assert drafting.offload.drafter.caches is None
    blocks = _sweep(caches=(F16, Q8), draft_caches=(F16, Q8))
    assert len({arm.key for block in blocks for arm in block if arm.role is Role.DRAFTER}) == 2


def test_memory_is_planned_with_both_types_and_the_batch() -> None:
    card = validate_file(paths.models_dir() / "demo" / "target.gguf")

    def planned(*caches: str) -> memory.MemoryPlan:
        spec = values.with_caches(replace(values.spec(), runtime=Runtime(batch=128)), *caches)
        settings = memory.settings_for(spec, memory.TODAY)
        assert settings.n_ubatch == 128
        return memory.plan(card, card, spec.offload, settings)

    def cached(model: memory.ModelMemory | None) -> int:
        return model.gpu.cache

    alike, mixed = planned("q8_0,f16"), planned("q8_0,f16", "f16,q4_0")
    assert cached(alike.target) == cached(alike.draft) == cached(mixed.target)
    whole = cached(planned("f16").target)
    assert cached(mixed.draft) < cached(mixed.target) < whole
    assert cached(planned("q8_0").target) < cached(alike.target)


def test_a_bench_stores_and_shows_what_it_was_given(llama: Path) -> None:
    shell.done("bench", *QUICK, "-fa", "off", "--name", "fa", "--", "--no-repack")
    assert {spec.runtime for spec in results.load("fa").runs.specs} == {
        Runtime(flash_attn="off", args=("--no-repack",))
    }
    rows = json.loads(shell.here("show", "fa", "-o", "json").stdout)
    assert {row["settings"] for row in rows} == {"-fa off -- --no-repack"}
    refused = shell.here("bench", *QUICK, "--", "--seed", "3")
    assert refused.returncode != 0
    assert "--seed cannot be passed to llama.cpp" in refused.stderr


def test_an_option_of_two_letters_never_falls_apart_and_a_value_may_look_like_one() -> None:
    for word in ("-ott", "-otd", "-td"):
        code, _, err = shell.run("bench", word, "exps=CPU")
        assert code == 2
        assert "No such option" in err
        assert f"-- {word}" in err
    assert "nine" in shell.here("bench", "-p", "-and so", "--suite", "nine").stderr


def test_a_specification_that_drafts_has_a_baseline_without_settings_of_the_drafter() -> None:
    spec = replace(
        values.spec(Role.DRAFTING, draft=3),
        runtime=Runtime(prio=1, draft_args=("x",)),
        offload=Offload(drafter=ModelRun(layers=3, caches=Q8)),
    )
    assert spec.baseline.runtime == Runtime(prio=1)
    assert spec.baseline.offload == Offload()
