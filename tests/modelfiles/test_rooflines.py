"""Models that lie on several devices: what each holds, what fits, and about how fast that is."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import ggufspec
from ggufspec.cli import cli
from ggufspec.domain import ModelRun, Offload
from ggufspec.errors import GgufspecError
from ggufspec.forecast import costs, whatif
from ggufspec.modelfiles import gguf, memory
from ggufspec.modelfiles.gguf import ModelCard
from tests.support import models

PEAK = costs.Efficiency()
GPU = costs.DevicePeaks(name="gpu", bandwidth=1e9, flops=1e15, source="", efficiency=PEAK)
HOST = costs.DevicePeaks(name="host", bandwidth=1e8, flops=1e15, source="", efficiency=PEAK)
SETTINGS = memory.MemorySettings(context=512)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Return a target of eight equal layers, with experts."""
    shape = models.llama(n_layers=8, n_embd=256, n_ff=512, n_experts=8, vocabulary=models.tokens(1000))
    return models.write_model(tmp_path / "target.gguf", *shape)


@pytest.fixture
def card(target: Path) -> ModelCard:
    return gguf.read_card(target)


def _offload(layers: Any = "all", *split: float, cpu_moe: Any = None) -> Offload:
    return Offload(target=ModelRun(layers=layers, cpu_moe=cpu_moe), tensor_split=split)


def _seconds(card: ModelCard, offload: Offload, depth: int = 0) -> float:
    machines = whatif.Machines.of((GPU,), HOST, n_gpus=len(offload.tensor_split))
    return 1 / whatif.forecast_rate(whatif.parts_of(card, offload, machines, depth=depth), depth).value


def test_a_model_on_one_device_takes_what_its_shape_takes(card: ModelCard) -> None:
    shape = whatif.shape(card, depth=512)
    for layers, device in (("all", GPU), (0, HOST)):
        assert _seconds(card, _offload(layers), 512) == pytest.approx(costs.seconds(shape, device, 1, 512))


@pytest.mark.parametrize(
    ("offload", "visits"),
    [
        (_offload(4), [0, 1]),  # the host's layers come first
        (_offload(cpu_moe=3), [0, 3]),  # experts are left and come back
        (_offload(6, cpu_moe=5), [2, 1]),  # three whole layers, experts of two more
        (_offload(6, 3.0, 1.0), [0, 1, 1]),
    ],
    ids=str,
)
def test_the_parts_are_the_whole(card: ModelCard, offload: Offload, visits: list[int]) -> None:
    whole = whatif.shape(card, depth=512)
    machines = whatif.Machines.of((GPU,), HOST, n_gpus=len(offload.tensor_split))
    parts = [part.shape for part in whatif.parts_of(card, offload, machines, depth=512)]
    assert len(parts) > 1
    assert [part.visits for part in parts] == visits
    for name in ("weight_bytes", "active_bytes", "kv_bytes", "flops", "kv_flops", "layers", "expert_layers"):
        assert sum(getattr(part, name) for part in parts) == pytest.approx(getattr(whole, name))


def test_half_on_the_gpu_by_hand(card: ModelCard) -> None:
    """Four of eight layers and the output on the GPU: reading takes the sum of both devices' times."""
    used = 0.25  # two of eight experts
    layer = sum(
        tensor.size_bytes * (used if "_exps" in tensor.name else 1)
        for tensor in card.tensors
        if tensor.name.startswith("blk.0.")
    )
    output = sum(tensor.size_bytes for tensor in card.tensors if tensor.name.startswith("output"))
    by_hand = (4 * layer + output) / 1e9 + 4 * layer / 1e8
    assert _seconds(card, _offload(5)) == pytest.approx(by_hand)


def test_more_layers_on_the_faster_device_are_never_slower(card: ModelCard) -> None:
    times = [_seconds(card, _offload(layers), 512) for layers in range(10)]
    assert times == sorted(times, reverse=True)
    assert _seconds(card, _offload(cpu_moe="all")) > _seconds(card, _offload())


def test_layers_are_split_over_gpus_as_llama_cpp_does(card: ModelCard) -> None:
    """Nine layers with the output, 3 to 1: places 0 to 6 are below 3/4 of 9, so seven go to the first GPU."""
    distribution = memory.distribute(card, ModelRun(), SETTINGS.layout, tensor_split=(3.0, 1.0))
    assert distribution.caches == (0,) * 7 + (1,)
    assert distribution.output == 1
    whole = memory.plan(card, None, _offload(), SETTINGS).target
    split = memory.plan(card, None, _offload("all", 3.0, 1.0), SETTINGS).target
    assert whole.gpus == (whole.gpu,)
    assert (split.gpu.weights, split.gpu.cache) == (whole.gpu.weights, whole.gpu.cache)
    assert split.gpus[0].cache == 7 * split.gpus[1].cache


def test_experts_on_the_host_leave_room_on_the_gpu(card: ModelCard) -> None:
    plans = [
        memory.plan(card, None, _offload(cpu_moe=layers), SETTINGS).target for layers in (None, 3, "all")
    ]
    experts = sum(t.size_bytes for t in card.tensors if "_exps" in t.name) // 8
    assert plans[0].gpu.weights - plans[1].gpu.weights == 3 * experts
    assert plans[1].host.weights - plans[0].host.weights == 3 * experts
    assert plans[0].gpu.weights - plans[2].gpu.weights == 8 * experts
    assert len({plan.gpu.cache for plan in plans}) == 1


def test_each_gpu_of_a_split_must_have_room(card: ModelCard) -> None:
    plan = memory.plan(card, None, _offload("all", 3.0, 1.0), SETTINGS)
    first, second = plan.each_gpu_bytes
    assert memory.fits(plan, (first, second), 0)
    assert not memory.fits(plan, (first - 1, second + 1), 0)
    assert memory.fits(plan, (first + second,), 0)  # together, where that is all that is known
    with pytest.raises(ValueError, match="split has 2 GPUs, and memory is given for 3"):
        memory.fits(plan, (first, first, first), 0)


def _run(*words: str | Path | float) -> Result:
    return CliRunner().invoke(cli, [*map(str, words)])


def _rows(result: Result) -> list[dict[str, str]]:
    assert result.exit_code == 0, result.output
    return [*csv.DictReader(io.StringIO(result.stdout))]


def test_a_plan_says_how_fast_it_can_be_at_most(target: Path) -> None:
    words = ("plan", "-m", target, "-c", 512, "--machine", "rtx-3090", "--vram", "24G")
    result = _run(*words, "--host", "ryzen-7950x", "-o", "csv")
    rates = [float(row["forecast_tps"]) for row in _rows(result)]
    assert len(rates) == 10
    # for the first layer alone, handing over takes longer than it saves
    assert rates[1:] == sorted(rates[1:])
    assert rates[1] < rates[0] < rates[-1]
    assert "layers on the CPU: AMD Ryzen 9 7950X" in result.stderr
    assert "tokens/s are forecast from these machines' peak rates" in result.stderr
    table = _run(*words, "--host", "83.2G").stdout
    assert "Forecast: " in table
    assert "forecast tokens/s" in table
    # without the host, only what is all on the GPU is known
    known = [row["forecast_tps"] for row in _rows(_run(*words, "-o", "csv"))]
    assert known[:-1] == [""] * 9
    assert float(known[-1]) == pytest.approx(rates[-1])
    assert "Forecast" not in _run("plan", "-m", target, "--vram", "24G").stdout


def test_a_plan_over_two_gpus_names_each(target: Path) -> None:
    words = ("plan", "-m", target, "-c", 512, "-ts", "3,1")
    result = _run(*words, "--vram", "24G,12G")
    assert result.exit_code == 0, result.output
    assert "9 of 9 layers fit into 24 GiB + 12 GiB with 1 GiB left free" in result.stdout
    assert "target on GPU 0" in result.stdout
    assert "target on GPU 1" in result.stdout
    refused = _run(*words, "--vram", "8G,8G,8G")
    assert refused.exit_code == 2
    assert "give that of each" in refused.stderr


def test_drafting_is_forecast_for_a_target_that_lies_half_on_the_gpu(target: Path, tmp_path: Path) -> None:
    shape = models.llama(n_layers=1, n_embd=32, vocabulary=models.tokens(1000))
    small = models.write_model(tmp_path / "small.gguf", *shape)
    words = ("whatif", "-m", target, "-md", small, "--machine", "rtx-3090", "--alpha", 0.8)
    drafting = (*words, "--draft", 3, "-o", "csv")
    (fast,) = _rows(_run(*drafting))
    (slow,) = _rows(_run(*drafting, "--ngl", 4, "--host", "ryzen-7950x"))
    assert float(slow["tokens_per_s"]) < float(fast["tokens_per_s"])
    assert fast["costs"] == slow["costs"] == "headers"
    assert "nine of ten such speed-ups are within a factor of 1.5" in _run(*words, "--draft", "3").stdout
    lacking = _run(*words, "--ngl", "4")
    assert lacking.exit_code == 2
    assert "some layers stay on the CPU: name its machine with --host" in lacking.stderr
    several = _run(*words, "--machine", "rtx-3090,rtx-4090")
    assert "2 machines need a --tensor-split" in several.stderr
    assert _run(*words, "--machine", "rtx-3090,rtx-4090", "-ts", "1,1").exit_code == 0


@pytest.mark.parametrize(
    ("size", "meant"), [("24", "24 is 24 bytes; did you mean 24G?"), ("8192", "did you mean 8192M?")]
)
def test_a_size_without_its_unit_is_refused_with_what_was_meant(size: str, meant: str) -> None:
    for option in ("--vram", "--reserve"):
        result = _run("plan", option, size)
        assert result.exit_code == 2
        assert meant in result.stderr
    with pytest.raises(GgufspecError, match=r"vram: .*did you mean"):
        ggufspec.plan("demo", vram=int(size))
    assert _run("plan", "--reserve", "0").exit_code == 0
    assert _run("plan", "--vram", str(24 << 30)).exit_code == 0


def test_a_plan_lists_the_fastest_places_ready_to_paste(target: Path, tmp_path: Path) -> None:
    """The experts of some layers stay on the host; what is printed is what a memory plan of it needs."""
    drafter = models.write_model(
        tmp_path / "drafter.gguf", *models.llama(n_embd=128, vocabulary=models.tokens(1000))
    )
    machines = ("--machine", "9G", "--host", "600M")
    words = ("plan", "-m", target, "-md", drafter, "-c", 256, "-ub", 16, "--vram", "20M", "--reserve", 0)
    found = _run(*words, *machines)
    assert found.exit_code == 0, found.output
    listed = re.findall(r"\| *(none|\d+) *\| *(-ngl .*?) *\|", found.output) or re.findall(
        r"^ *(none|\d+) +(-ngl .*?)  ", found.output, re.MULTILINE
    )
    assert [size for size, _ in listed] == ["none", "1", "2", "4", "8", "16"]
    kept = re.search(r"--n-cpu-moe (\d+)", listed[0][1])
    assert kept
    assert 0 < int(kept[1]) < 8
    assert f"--n-cpu-moe {kept[1]} is -ot" in found.output
    metadata, tensors = models.llama(n_embd=256, n_ff=2048)
    clip = metadata | {"general.architecture": "clip"}
    projector = models.write_model(tmp_path / "mmproj.gguf", clip, tensors)
    asked = ("-m", target, "-md", drafter, "-c", 256, "--vram", "40M", "--reserve", 0, *machines)
    ranked = ("whatif", *asked, "--alpha", 0.8, "--draft", 1, "-o", "csv")
    (row,), (less,) = _rows(_run(*ranked)), _rows(_run(*ranked, "--mmproj", projector))
    assert row["places"] != less["places"]  # what reads images takes the room of experts
    assert "fastest places" not in _run(*words, *machines, "--ram", "1M").output
