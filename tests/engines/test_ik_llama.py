"""ik_llama.cpp: a fork with a --spec-type of its own for each method, measured by its server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec import engines
from ggufspec.domain import Chain, Drafting, Method, NgramSettings, Offload, Program, Role, Status
from ggufspec.errors import GgufspecError, NoInstallError
from ggufspec.llama.command import check_chain, commands
from ggufspec.llama.install import Install, installs
from ggufspec.llama.logs import parsing
from ggufspec.measure import programs
from tests.support import fake_server, fakes, models, shell, values

SPEC = values.spec(Role.DRAFTING, draft=3, path=Path("T"))
ALONE = replace(SPEC.pair, draft=None)
WORDS = {
    "draft-model": "draft:n_max=3,n_min=0,p_min=0.5 --model-draft",
    "draft-mtp": "mtp:n_max=3,n_min=0,p_min=0.5 --",
    "ngram-simple": "ngram-simple:n_max=16,ngram_size_n=12,ngram_size_m=16 --",
    "ngram-map-k4v": "ngram-map-k4v:n_max=16,ngram_size_n=12,ngram_size_m=16,ngram_min_hits=1 --",
    "ngram-mod": "ngram-mod:n_max=16,ngram_size_n=24,n_min=16 --",
    "ngram-cache": "ngram-cache:n_max=8 --",
    "suffix": "suffix:n_max=16,suffix_min_match_len=5,n_min=0 --",
    "suffix+draft-mtp": "suffix:n_max=16,suffix_min_match_len=5,n_min=0 "
    "--spec-type mtp:n_max=3,n_min=0,p_min=0.5 --",
    "ngram-mod+draft-model": "ngram-mod:n_max=64,ngram_size_n=24,n_min=48 --spec-type draft:n_max=3,",
}


@pytest.fixture
def install(tmp_path: Path) -> Install:
    fake_server.program(tmp_path / "ik" / "llama-server", fake_server.IK)
    return installs.find_install(tmp_path / "ik")


def _words(install: Install, drafting: Drafting, offload: Offload | None = None) -> str:
    pair = SPEC.pair if drafting.method is Method.DRAFT_MODEL else ALONE
    spec = replace(SPEC, drafting=drafting, pair=pair, offload=offload or SPEC.offload)
    return " ".join(commands.server_argv(spec, install, port=4711, key_file=Path("K"), slots_dir=None))


def test_it_is_recognised_and_its_build_numbers_are_not_those_of_llama_cpp(install: Install) -> None:
    assert (install.fork, install.version) == ("ik_llama.cpp", "ik_llama.cpp b4840")
    assert (install.build_number, install.commit) == (None, "8337e4cd")
    with pytest.raises(NoInstallError, match=r"the library of ik_llama\.cpp .* has other functions"):
        engines.check_library(install)


@pytest.mark.parametrize("way", WORDS)
def test_each_method_is_a_stage_with_all_that_decides(install: Install, way: str) -> None:
    chain = Chain.parse(way)
    size = 3 if chain.method.drafts_with_model else 8 if chain.method is Method.NGRAM_CACHE else 16
    drafting = Drafting(n_max=size, p_min=0.5, method=chain.method, first=chain.first)
    words = _words(install, drafting)
    assert f" --spec-type {WORDS[way]}" in words
    assert "--draft-" not in words.replace("--threads-draft", "")
    assert " --cache-ram 0 --metrics " in words
    assert words.endswith(" --flash-attn auto")  # --fit is a switch there, which is left out


def test_settings_of_n_grams_and_a_request_to_fit_arrive(install: Install) -> None:
    drafting = Drafting(n_max=20, method=Method.SUFFIX, ngram=NgramSettings(size_n=7, n_min=2))
    words = _words(install, drafting, offload=Offload(fit=True))
    assert "--spec-type suffix:n_max=20,suffix_min_match_len=7,n_min=2 --" in words
    assert " --fit --" in words


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("draft-eagle3", r"llama-server of ik_llama\.cpp cannot draft by draft-eagle3: its --help does not"),
        ("ngram-simple+ngram-mod+draft-mtp", "it takes one n-gram method before draft-model or draft-mtp"),
        ("ngram-mod+draft-dflash", "it takes one n-gram method before draft-model or draft-mtp"),
    ],
)
def test_what_it_cannot_draft_by_is_refused_by_name(install: Install, way: str, message: str) -> None:
    with pytest.raises(GgufspecError, match=message):
        check_chain(install, Program.SERVER, Chain.parse(way))


def test_several_users_and_other_engines_are_refused_by_name(install: Install) -> None:
    with pytest.raises(GgufspecError, match="drafts for one request at a time, not for 2"):
        commands.serving_argv(SPEC, install, slots=2, port=1)
    for engine in ("binary", "binary-simple", "inprocess"):
        with pytest.raises(GgufspecError, match=r"ik_llama\.cpp is measured by its llama-server alone"):
            programs.check_engine(engine, [install], [Chain(Method.DRAFT_MODEL)], drafting=True)
    programs.check_engine(
        "server", [install], [Chain(Method.DRAFT_MODEL), Chain(Method.SUFFIX)], drafting=True
    )


def test_its_types_of_tensors_are_read_and_refused_elsewhere(install: Install, tmp_path: Path) -> None:
    metadata, tensors = models.llama(n_embd=256, n_ff=256, types=lambda name: "IQ4_KS")
    model = models.write_model(tmp_path / "m-IQ4_KS.gguf", metadata | {"general.file_type": 145}, tensors)
    words = ("bench", "-m", str(model), "--dry-run", "--llama")
    assert f"--model {model}" in shell.done(*words, str(install.root)).stdout
    refused = shell.here(*words, str(fakes.install(tmp_path / "llama")))
    assert "m-IQ4_KS.gguf has tensors of type IQ4_KS, which llama.cpp does not read" in refused.stderr


def test_llama_cpp_has_no_suffix_tree_and_says_who_has() -> None:
    with pytest.raises(GgufspecError, match="cannot draft by suffix") as caught:
        check_chain(fakes.recorded_install("b11434"), Program.SERVER, Chain(Method.SUFFIX))
    assert "ik_llama.cpp can" in (caught.value.hint or "")


def test_accepted_tokens_by_position_come_from_the_end_of_an_answer(install: Install, tmp_path: Path) -> None:
    with engines.make("server", install, timeout_s=20, capacity=9) as engine:
        sample = engine.measure(values.spec(Role.DRAFTING, draft=3), tmp_path / "log").sample
    assert (sample.status, sample.rounds) == (Status.OK, None)
    assert sum(sample.accepted_at) == sample.n_accepted
    assert [*sample.accepted_at] == sorted(sample.accepted_at, reverse=True)


def test_a_chain_is_counted_by_its_stages(install: Install, tmp_path: Path) -> None:
    drafting = Drafting(n_max=3, method=Method.DRAFT_MODEL, first=(Method.SUFFIX,))
    spec = replace(values.spec(Role.DRAFTING, draft=3), drafting=drafting)
    with engines.make("server", install, timeout_s=20, capacity=9) as engine:
        sample = engine.measure(spec, tmp_path / "log").sample
    assert [counts.method for counts in sample.by_method] == ["suffix", "draft"]
    assert sum(counts.n_accepted for counts in sample.by_method) == sample.n_accepted


def test_a_refused_option_is_the_reason_of_a_failure() -> None:
    usage = (fake_server.HELP / "ik" / "llama-server.txt").read_bytes()  # it follows every error
    said = b"legacy speculative option '--draft-max' is disabled; use repeated --spec-type"
    assert parsing.explain(1, said + b"\n" + usage) == (Status.FAILED, said.decode())
    said = b"error: invalid speculative stage configuration: speculative stage has n_min greater than n_max"
    assert parsing.explain(1, said + b"\n" + usage) == (Status.FAILED, said.decode())
