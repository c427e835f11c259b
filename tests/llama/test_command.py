"""argv in every era, from the recorded --help of real builds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ggufspec.domain import Drafting, Method, ModelRun, Offload, Program, Role, RunSpec, Sampling
from ggufspec.errors import GgufspecError
from ggufspec.llama.command import commands
from tests.support import values
from tests.support.fakes import recorded_install


def _sorted(words: str) -> list[list[str]]:
    """Return the options of a command, each with its values, in alphabetical order."""
    options: list[list[str]] = [[]]
    for word in words.split():
        if word.startswith("-"):
            options.append([])
        options[-1].append(word)
    return sorted(options)


def _argv(build: str, program: Program, backend: str | None, offload: Offload) -> str:
    role, draft = (Role.TARGET, None) if program is Program.PLAIN else (Role.DRAFTING, 3)
    spec = replace(values.spec(role, draft=draft, path=Path("T")), offload=offload)
    return " ".join(commands.argv(spec, recorded_install(build, backend), program=program))


COMMON = (
    "--prompt Text of p1 --n-predict 32 --ctx-size 512 --threads 2 --threads-batch 2 "
    "--temp 0 --top-k 1 --top-p 1 --min-p 0 --seed 1"
)
DRAFTER = "--model-draft drafter.gguf -ngld 999 --threads-draft 2 --threads-batch-draft 2"
OLD_LIMITS = f"{DRAFTER} --ctx-size-draft 512 --draft-max 3 --draft-min 0 --draft-p-min 0"
TODAYS_LIMITS = "--spec-draft-n-max 3 --spec-draft-n-min 0 --draft-p-min 0"
NEW_LIMITS = f"{DRAFTER} --ctx-size-draft 512 {TODAYS_LIMITS}"
FIXED = "--flash-attn auto --fit off --verbosity 4 --no-escape"
QUIET = "--no-display-prompt --simple-io"
BARE = "--no-log-prefix --no-log-timestamps"
AUTO = "--flash-attn auto --fit off --no-escape"
TODAY = {
    Program.PLAIN: ("llama-completion", "", f"{FIXED} --no-conversation {QUIET} {BARE}"),
    Program.TREE: ("llama-speculative", f"{DRAFTER} {TODAYS_LIMITS}", f"{FIXED} {BARE}"),
    Program.SIMPLE: (
        "llama-speculative-simple",
        f"--spec-type draft-simple {DRAFTER} {TODAYS_LIMITS}",
        f"{FIXED} {BARE}",
    ),
}
ERAS = {
    "0.2.63": {
        Program.PLAIN: ("main", "", QUIET),
        Program.TREE: ("speculative", f"{DRAFTER} --draft 3", QUIET),
    },
    "0.2.90": {
        Program.PLAIN: ("llama-cli", "", f"--no-escape {QUIET}"),
        Program.TREE: ("llama-speculative", f"{DRAFTER} --draft 3", f"--no-escape {QUIET}"),
    },
    "0.3.2": {
        Program.PLAIN: ("llama-cli", "", f"--no-escape {QUIET}"),
        Program.TREE: ("llama-speculative", f"{DRAFTER} --draft 3", "--no-escape"),
    },
    "0.3.16": {
        Program.PLAIN: ("llama-cli", "", f"--no-escape --no-conversation {QUIET}"),
        Program.TREE: ("llama-speculative", OLD_LIMITS, "--no-escape"),
        Program.SIMPLE: ("llama-speculative-simple", OLD_LIMITS, "--no-escape"),
    },
    "0.3.20": {
        Program.PLAIN: ("llama-completion", "", f"{AUTO} --no-conversation {QUIET}"),
        Program.TREE: ("llama-speculative", OLD_LIMITS, AUTO),
        Program.SIMPLE: ("llama-speculative-simple", OLD_LIMITS, AUTO),
    },
    "0.3.23": {
        Program.PLAIN: ("llama-completion", "", f"{AUTO} --no-conversation {QUIET}"),
        Program.TREE: ("llama-speculative", NEW_LIMITS, AUTO),
        Program.SIMPLE: ("llama-speculative-simple", NEW_LIMITS, AUTO),
    },
    "0.3.24": TODAY,
    "0.3.36": TODAY,
}
EVERY = [(build, program) for build, programs in ERAS.items() for program in programs]


@pytest.mark.parametrize(("build", "program"), EVERY, ids=str)
def test_argv_of_every_era(build: str, program: Program) -> None:
    name, drafting, ending = ERAS[build][program]
    common = COMMON.replace("--n-predict", "--predict") if build == "0.2.90" else COMMON  # for one summer
    offload = Offload(target=ModelRun(layers=45), drafter=ModelRun(layers="all"))
    words = f"{name} --model T {common} -ngl 45 {drafting} {ending}"
    assert _sorted(_argv(build, program, "cuda", offload)) == _sorted(words)


@pytest.mark.parametrize(
    ("build", "backend", "offload", "words"),
    [
        ("0.2.63", None, Offload(), "-ngl 999"),  # nobody knows what this build can: ask for everything
        ("0.2.63", "cpu", Offload(), "-ngl 0"),
        ("0.3.36", "cpu", Offload(), "-ngl 0"),
        ("0.3.36", "cpu", Offload(target=ModelRun(layers=45)), "-ngl 45"),  # a warning follows
        ("0.3.36", "cuda", Offload(), "-ngl auto"),
        ("0.3.36", "cuda", Offload(), "--fit on"),
        ("0.3.36", "cuda", Offload().on_processor, "--fit off"),
        ("0.3.36", "cuda", Offload(target=ModelRun(layers="all")), "-ngl 999"),
    ],
)
def test_layers(build: str, backend: str | None, offload: Offload, words: str) -> None:
    assert f" {words} " in _argv(build, Program.PLAIN, backend, offload) + " "


def test_drafter_alone_is_a_plain_run_of_the_drafter_with_its_own_layers() -> None:
    spec = replace(
        values.spec(Role.DRAFTER, path=Path("T")),
        offload=Offload(target=ModelRun(layers=45), drafter=ModelRun(layers=7)),
    )
    words = commands.argv(spec, recorded_install("0.3.36", "cuda"), program=Program.PLAIN)
    assert words[:3] == ("llama-completion", "--model", "drafter.gguf")
    assert words[words.index("-ngl") + 1] == "7"


def test_sampling_is_passed_whole() -> None:
    sampling = Sampling(temperature=0.6, top_k=50, top_p=0.9, min_p=0.05, seed=7)
    spec = replace(values.spec(path=Path("T")), sampling=sampling)
    text = " ".join(commands.argv(spec, recorded_install("0.2.63"), program=Program.PLAIN))
    assert "--temp 0.6 --top-k 50 --top-p 0.9 --min-p 0.05 --seed 7" in text


def test_a_flag_that_is_nowhere_to_be_found_is_an_error() -> None:
    install = recorded_install("0.3.36")
    simple = install.programs[Program.SIMPLE]
    known = {flag: text for flag, text in simple.options.help.items() if flag != "--spec-draft-n-max"}
    changed = replace(simple, options=replace(simple.options, help=known))
    install = replace(install, programs={**install.programs, Program.SIMPLE: changed})
    with pytest.raises(GgufspecError, match="has none of the flags --spec-draft-n-max, --draft-max, --draft"):
        commands.argv(values.spec(Role.DRAFTING, draft=3), install, program=Program.SIMPLE)


def test_only_prompts_too_long_for_a_command_line_need_a_file() -> None:
    assert not commands.needs_file("a" * 100_000)
    assert commands.needs_file("é" * 60_000)


Q8 = "--cache-type-k q8_0 --cache-type-v q8_0"
CACHE_TYPES = "it has f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1"
Q8_DRAFTER = "--cache-type-k-draft q8_0 --cache-type-v-draft q8_0"
Q8_DRAFTER_TODAY = "--spec-draft-type-k q8_0 --spec-draft-type-v q8_0"
KV_ERAS = {
    ("0.2.90", Program.PLAIN): f"{Q8} --flash-attn",
    ("0.2.90", Program.TREE): f"{Q8} --flash-attn",
    ("0.3.2", Program.TREE): f"{Q8} --flash-attn",
    ("0.3.16", Program.SIMPLE): f"{Q8} {Q8_DRAFTER} --flash-attn",
    ("0.3.20", Program.TREE): f"{Q8} {Q8_DRAFTER} --flash-attn on",
    ("0.3.23", Program.SIMPLE): f"{Q8} {Q8_DRAFTER_TODAY} --flash-attn on",
    ("0.3.36", Program.PLAIN): f"{Q8} --flash-attn on",
    ("0.3.36", Program.SIMPLE): f"{Q8} {Q8_DRAFTER_TODAY} --flash-attn on",
}


def _words_with(words: tuple[str, ...], part: str) -> str:
    """The flags of a command that have to do with one thing, each with its value."""
    pairs = zip(words, (*words[1:], "-"), strict=True)
    return " ".join(
        flag if value.startswith("-") else f"{flag} {value}"
        for flag, value in pairs
        if any(name in flag for name in part.split("|")) and flag.startswith("--")
    )


@pytest.mark.parametrize(("build", "program"), KV_ERAS, ids=str)
def test_a_quantised_cache_comes_with_flash_attention(build: str, program: Program) -> None:
    role, draft = (Role.TARGET, None) if program is Program.PLAIN else (Role.DRAFTING, 3)
    spec = values.with_caches(values.spec(role, draft=draft, path=Path("T")), "q8_0")
    words = commands.argv(spec, recorded_install(build), program=program)
    assert _words_with(words, "cache-type|draft-type|flash-attn") == KV_ERAS[build, program]


@pytest.mark.parametrize(
    ("build", "words"), [("0.2.63", ""), ("0.3.16", ""), ("0.3.20", "--flash-attn auto")]
)
def test_a_whole_cache_leaves_flash_attention_as_it_is(build: str, words: str) -> None:
    spec = values.with_caches(values.spec(path=Path("T")), "f16")
    argv = commands.argv(spec, recorded_install(build), program=Program.PLAIN)
    assert _words_with(argv, "flash-attn") == words
    assert _words_with(argv, "cache-type") == "--cache-type-k f16 --cache-type-v f16"


@pytest.mark.parametrize(
    ("build", "caches", "why", "way_out"),
    [
        ("0.2.63", "q8_0", "main cannot quantise its cache", ""),  # it has no flash attention
        *((build, "q6_k", "has no cache of type q6_k", CACHE_TYPES) for build in ("0.3.16", "0.3.36")),
    ],
)
def test_a_cache_that_a_build_cannot_have_is_refused(build: str, caches: str, why: str, way_out: str) -> None:
    spec = values.with_caches(values.spec(path=Path("T")), caches)
    with pytest.raises(GgufspecError, match=why) as caught:
        commands.argv(spec, recorded_install(build), program=Program.PLAIN)
    assert way_out in str(caught.value.hint)


@pytest.mark.parametrize("build", ["0.2.63", "0.2.90", "0.3.2", "0.3.16", "0.3.36"])
@pytest.mark.parametrize(("ubatch", "batch"), [(64, 2048), (2048, 2048), (4096, 4096)])
def test_a_batch_is_never_smaller_than_what_is_evaluated_at_once(build: str, ubatch: int, batch: int) -> None:
    spec = replace(values.spec(path=Path("T")), ubatch=ubatch)
    words = commands.argv(spec, recorded_install(build), program=Program.PLAIN)
    assert _words_with(words, "batch-size") == f"--batch-size {batch} --ubatch-size {ubatch}"


def _lookup(method: Method, n_max: int) -> RunSpec:
    spec = values.spec(Role.DRAFTING, draft=n_max, path=Path("T"))
    drafting = Drafting(n_max=n_max, method=method)
    return replace(spec, pair=replace(spec.pair, draft=None), drafting=drafting)


LIMITS = "--spec-draft-n-max {0} --spec-draft-n-min 0"
MAP = "--spec-{1}-size-n 12 --spec-{1}-size-m {0} --spec-{1}-min-hits 1"
MOD = "--spec-ngram-mod-n-match 24 --spec-ngram-mod-n-max {0} --spec-ngram-mod-n-min"
LOOKUPS = {
    (Method.NGRAM_SIMPLE, 16): MAP,
    (Method.NGRAM_MAP_K, 4): MAP,
    (Method.NGRAM_MAP_K4V, 8): MAP,
    (Method.NGRAM_MOD, 16): f"{MOD} 16",
    (Method.NGRAM_MOD, 64): f"{MOD} 48",
    (Method.NGRAM_CACHE, 8): "",
}


@pytest.mark.parametrize("build", ["0.3.24", "0.3.36"])
@pytest.mark.parametrize(("method", "n_max"), LOOKUPS, ids=str)
def test_a_method_without_a_drafter_says_all_that_decides(build: str, method: Method, n_max: int) -> None:
    words = commands.argv(_lookup(method, n_max), recorded_install(build, "cuda"), program=Program.SIMPLE)
    said = f"--spec-type {method} {LIMITS} {LOOKUPS[method, n_max]}".format(n_max, method)
    expected = f"llama-speculative-simple --model T {COMMON} -ngl auto {said} {FIXED} {BARE}"
    assert _sorted(" ".join(words)) == _sorted(expected.replace("--fit off", "--fit on"))


def test_flags_that_methods_once_shared_are_said_once() -> None:
    install = recorded_install("0.3.20")
    serve = partial(commands.server_argv, install=install, port=1, key_file=Path("K"), slots_dir=None)
    simple = " ".join(serve(_lookup(Method.NGRAM_SIMPLE, 16)))
    shared = (
        "--draft-max 16 --draft-min 0 --spec-ngram-size-n 12 --spec-ngram-size-m 16 --spec-ngram-min-hits 1"
    )
    assert f" --spec-type ngram-simple {shared} " in simple
    mod = " ".join(serve(_lookup(Method.NGRAM_MOD, 64)))
    assert " --spec-type ngram-mod --draft-max 64 --draft-min 48 --spec-ngram-size-n 24 " in mod


@pytest.mark.parametrize(
    ("build", "program", "method", "n_max", "why", "way_out"),
    [
        ("0.2.63", Program.PLAIN, Method.NGRAM_MOD, 16, "cannot draft by ngram-mod", "`ggufspec build`"),
        ("0.3.20", Program.SIMPLE, Method.NGRAM_MOD, 16, "cannot draft by ngram-mod", "`ggufspec build`"),
        # it lists the methods, and knows none
        ("0.3.36", Program.TREE, Method.NGRAM_SIMPLE, 16, "only with a draft model, not", "--engine server"),
        ("0.3.36", Program.SIMPLE, Method.NGRAM_SIMPLE, 11, "drafts nothing with at most", "--draft 48"),
        ("0.3.36", Program.SIMPLE, Method.NGRAM_CACHE, 9, "drafts nothing with at most", "--draft 8"),
    ],
)
def test_what_a_program_cannot_draft_by_is_refused_with_a_way_out(
    build: str, program: Program, method: Method, n_max: int, why: str, way_out: str
) -> None:
    with pytest.raises(GgufspecError, match=why) as caught:
        commands.argv(_lookup(method, n_max), recorded_install(build), program=program)
    assert way_out in str(caught.value.hint)
