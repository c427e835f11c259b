"""What a tuning may choose from: drafters in further quantizations, and the context of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from ggufspec import machine, paths, tuning
from ggufspec.cli import cli
from ggufspec.domain import ModelFile, Offload, Role, RunSpec, Runtime, Serving
from ggufspec.errors import GgufspecError, NoInstallError
from ggufspec.llama.install import installs
from ggufspec.machine import Room
from ggufspec.modelfiles import memory
from ggufspec.modelfiles.gguf import ModelCard, read_card
from ggufspec.options import TuneOptions
from ggufspec.tuning import planning
from tests.support import fake_server, fakes, models, values

DEMO = paths.models_dir() / "demo"
COPIES = """\
folder=$(dirname "$0")
echo "$@" >> "$folder/calls"
[ "$4" = Q2_K ] && { echo 'main: failed to quantize model' >&2; exit 1; }
cp "$2" "$3"
"""


@pytest.fixture
def llama(llama: Path) -> Path:
    fake_server.program(llama / "llama-server")
    fakes.program(llama / "llama-quantize", COPIES)
    return llama


def _calls(llama: Path) -> list[list[str]]:
    file = llama / "calls"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def _drafters(request: TuneOptions) -> list[str]:
    named = request.draft_model
    assert isinstance(named, tuple)
    return [getattr(model, "filename", str(model)) for model in named]


def test_each_drafter_is_made_once_in_each_quantization(llama: Path) -> None:
    install = installs.find_install()
    request, notes = planning.add_quantized(
        TuneOptions(pair="demo", quantize_drafter=("Q4_0", "Q5_K_M")), install
    )
    assert _drafters(request) == ["drafter.gguf", "drafter-Q4_0.gguf", "drafter-Q5_K_M.gguf"]
    assert notes == (
        "drafters: drafter-Q4_0.gguf was made from drafter.gguf by llama-quantize",
        "drafters: drafter-Q5_K_M.gguf was made from drafter.gguf by llama-quantize",
    )
    first, second = _calls(llama)
    assert first[:2] == ["--allow-requantize", str(DEMO / "drafter.gguf")]
    assert (first[3], second[3]) == ("Q4_0", "Q5_K_M")
    again, _ = planning.add_quantized(TuneOptions(pair="demo", quantize_drafter=("Q4_0", "Q5_K_M")), install)
    assert again == request
    assert len(_calls(llama)) == 2
    made = [*paths.quantized_dir().rglob("*")]
    assert sorted(path.name for path in made if path.is_file()) == [
        "drafter-Q4_0.gguf",
        "drafter-Q5_K_M.gguf",
    ]


def test_quantized_drafters_are_listed_and_can_be_removed(llama: Path) -> None:
    planning.add_quantized(TuneOptions(pair="demo", quantize_drafter=("Q4_0",)), installs.find_install())
    listed = CliRunner().invoke(cli, ["cache", "list", "other"])
    assert "drafters that were quantized here" in listed.stdout
    assert CliRunner().invoke(cli, ["cache", "prune", "other/quantized", "--yes"]).exit_code == 0
    assert not paths.quantized_dir().exists()


def test_a_quantization_that_adds_nothing_is_left_out(llama: Path) -> None:
    install = installs.find_install()
    request, notes = planning.add_quantized(
        TuneOptions(pair="demo", quantize_drafter=("Q8_0", "F16")), install
    )
    assert _drafters(request) == ["drafter.gguf"]
    assert notes == (
        "drafters: drafter.gguf is Q8_0, so Q8_0 of it would add nothing",
        "drafters: drafter.gguf is Q8_0, so F16 of it would add nothing",
    )
    assert _calls(llama) == []


def test_another_file_of_the_same_name_is_made_anew(llama: Path, tmp_path: Path) -> None:
    install = installs.find_install()
    target, drafter = DEMO / "target.gguf", tmp_path / "drafter-q8_0.gguf"
    drafter.write_bytes((DEMO / "drafter.gguf").read_bytes())
    for _ in range(2):
        request, _ = planning.add_quantized(
            TuneOptions(target=target, draft_model=drafter, quantize_drafter="Q4_0"), install
        )
        assert _drafters(request) == ["drafter-q8_0.gguf", "drafter-Q4_0.gguf"]
        drafter.write_bytes(drafter.read_bytes() + b"more")
    assert len(_calls(llama)) == 2


def test_what_cannot_be_made_leaves_nothing_behind(llama: Path) -> None:
    install = installs.find_install()
    with pytest.raises(GgufspecError, match=r"cannot make Q2_K of drafter\.gguf: main: failed") as caught:
        planning.add_quantized(TuneOptions(pair="demo", quantize_drafter=("Q2_K",)), install)
    assert "--quantize-drafter" in (caught.value.hint or "")
    made = paths.quantized_dir().rglob("*")
    assert not [path for path in made if path.is_file()]
    (llama / "llama-quantize").unlink()
    with pytest.raises(NoInstallError, match="has no llama-quantize"):
        planning.add_quantized(TuneOptions(pair="demo", quantize_drafter=("Q4_0",)), installs.find_install())
    with pytest.raises(GgufspecError, match="there is no drafter to quantize"):
        planning.add_quantized(
            TuneOptions(target=DEMO / "target.gguf", quantize_drafter="Q4_0"), installs.find_install()
        )


def test_a_tuning_tries_drafters_in_every_quant(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggufspec.engines.check_library", lambda install: None)
    asked = TuneOptions(
        pair="demo", prompt="Hello", n_predict=32, method="draft-model", quantize_drafter=("Q4_0",)
    )
    plan = tuning.prepare_tuning(asked)
    tried = {
        arm.drafter.filename
        for block in plan.blocks
        for arm in block.arms
        if arm.role is Role.DRAFTING and arm.drafter is not None
    }
    assert tried == {"drafter.gguf", "drafter-Q4_0.gguf"}
    assert any("drafter-Q4_0.gguf was made from" in note for note in plan.session.notes)
    assert {prompt.id for prompt in plan.session.suite.prompts} == {"p1"}


def test_quantizations_are_named_as_llama_cpp_names_them(llama: Path) -> None:
    result = CliRunner().invoke(cli, ["tune", "--pair", "demo", "--quantize-drafter", "Q4_0,q9_9"])
    assert result.exit_code == 2
    assert "'Q9_9' is not one of Q8_0, Q6_K, " in " ".join(result.stderr.split())


# The context that a tuning measures at

GIB = 1 << 30
Cards = dict[ModelFile, ModelCard]


def _cards(folder: Path, *, trained: int, drafter_trained: int = 1 << 20) -> Cards:
    """A target of 33 layers with a cache of some 128 KiB per token, and a small drafter."""
    vocabulary = models.tokens(1000)
    big = models.llama(
        n_layers=32,
        n_embd=4096,
        n_ff=11_008,
        n_heads=32,
        n_heads_kv=8,
        vocabulary=vocabulary,
        context=trained,
    )
    small = models.llama(vocabulary=vocabulary, context=drafter_trained)
    spec = values.spec(Role.DRAFTING, draft=3)
    assert spec.pair.draft is not None
    return {
        spec.pair.target: read_card(models.write_model(folder / "target.gguf", *big)),
        spec.pair.draft: read_card(models.write_model(folder / "drafter.gguf", *small)),
    }


def _arms(context: int = 512) -> list[RunSpec]:
    drafting = replace(values.spec(Role.DRAFTING, draft=3), context=context, offload=Offload())
    return [drafting.baseline, drafting]


def _choose(
    cards: Cards,
    *,
    wanted: int | None = None,
    slots: int = 1,
    vram_bytes: int | None = None,
    arms: Sequence[RunSpec] = (),
) -> Serving:
    serving, _ = tuning.choose_serving(
        wanted, slots, arms or _arms(), cards, layout=memory.TODAY, vram_bytes=vram_bytes
    )
    return serving


def _free(monkeypatch: pytest.MonkeyPatch, free_bytes: int) -> None:
    room = Room(total_bytes=free_bytes, free_bytes=free_bytes, gpus=())
    monkeypatch.setattr(machine, "memory", lambda *_: room)


def test_models_that_were_trained_for_little_are_served_with_that(tmp_path: Path) -> None:
    assert _choose(_cards(tmp_path, trained=1024)) == Serving(context=1024, slots=1)
    assert _choose(_cards(tmp_path, trained=32_768, drafter_trained=2048)).context == 2048


def test_the_largest_context_in_half_the_host_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards = _cards(tmp_path, trained=131_072)
    contexts = []
    for free in (4 * GIB, 34 * GIB, 40 * GIB, 500 * GIB):
        _free(monkeypatch, free)
        contexts.append(_choose(cards).context)
    assert contexts == sorted(contexts)
    assert contexts[0] == 4096  # the smallest that is tried, even where it does not fit
    assert 4096 < contexts[2] <= contexts[3]
    assert contexts[3] == 65_536  # 8 GiB of caches beside 11 GiB of weights; 16 GiB would be more than these
    assert all(context.bit_count() == 1 for context in contexts)
    _free(monkeypatch, 500 * GIB)
    assert _choose(cards, slots=4).context == 16_384


def test_a_larger_context_costs_no_layers_on_the_gpu(tmp_path: Path) -> None:
    cards = _cards(tmp_path, trained=131_072)
    half = _choose(cards, vram_bytes=8 * GIB)
    assert half.context == 4096  # a part of the layers fits, and each of them needs more cache at 8,192
    whole = _choose(cards, vram_bytes=24 * GIB)
    assert whole.context > 4096
    assert _choose(cards, vram_bytes=80 * GIB).context == 131_072
    few = [replace(arm, offload=arm.offload.with_layers(2)) for arm in _arms()]
    assert _choose(cards, vram_bytes=8 * GIB, arms=few).context > 4096


def test_prompts_that_need_more_get_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _free(monkeypatch, GIB)
    cards = _cards(tmp_path, trained=131_072)
    assert _choose(cards, arms=_arms(context=9984)).context == 9984


def test_a_requested_context_is_taken_up_to_what_the_target_was_trained_for(tmp_path: Path) -> None:
    cards = _cards(tmp_path, trained=8192, drafter_trained=2048)
    assert _choose(cards, wanted=8192, slots=4) == Serving(context=8192, slots=4)
    assert _choose(cards, wanted=8192, slots=4).total_context == 32_768
    with pytest.raises(GgufspecError, match="trained for a context of 8,192 tokens, not 8,193"):
        _choose(cards, wanted=8193)
    stretched = [replace(arm, runtime=Runtime(args=("--rope-scaling", "yarn"))) for arm in _arms()]
    assert _choose(cards, wanted=16_384, arms=stretched).context == 16_384
