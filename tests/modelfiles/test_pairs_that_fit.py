"""`ggufspec pairs --fits`: sizes, layers, the largest quant that fits, and estimated tokens/s."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ggufspec import machine
from ggufspec.domain import ModelFile, Pair
from ggufspec.forecast import costs, planning
from ggufspec.forecast.planning import FetchState, Site
from ggufspec.machine import Gpu
from ggufspec.modelfiles import catalog, hub, memory
from tests.support import shell
from tests.support.hub_client import DEMO, gguf
from tests.support.hub_server import Hub
from tests.support.shell import run

MIB = 1 << 20
PAIR = Pair(
    name="mine",
    target=ModelFile(filename="t-Q4_K_M.gguf", repo="me/T-GGUF"),
    draft=ModelFile(filename="d-Q8_0.gguf", repo="me/D-GGUF"),
)
ENTRY = """\
[pairs.mine]
target = { repo = "me/T-GGUF", file = "t-Q4_K_M.gguf", quant = "Q4_K_M" }
drafter = { repo = "me/D-GGUF", file = "d-Q8_0.gguf", quant = "Q8_0" }
[pairs.gone]
target = { repo = "me/Gone-GGUF", file = "g-Q8_0.gguf" }
"""


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pairs of the loopback Hub beside the package's own: one that is there, and one that is not."""
    monkeypatch.setenv("GGUFSPEC_CONFIG", str(tmp_path))
    (tmp_path / "pairs.toml").write_text(ENTRY)


def _site(*vram: int, memory_bytes: int = 64 << 30, gpu: str | None = "rtx-4090") -> Site:
    return Site(vram_bytes=vram, memory_bytes=memory_bytes, gpu=gpu, host="60G")


def _fit(site: Site, pair: Pair = PAIR) -> planning.PairFit:
    return planning.fit_pair(pair, site, hub.Access())


def test_on_a_large_gpu_everything_fits_and_the_largest_quant_is_named(hub: Hub) -> None:
    fit = _fit(_site(24 << 30))
    assert fit.error is None
    assert fit.fits
    assert fit.fitting_layers == fit.max_layers
    assert (fit.quant, fit.quant_bytes) == ("Q8_0", len(gguf(2 << 20)))
    assert fit.size_bytes == len(gguf(1 << 20)) + len(gguf())
    assert fit.fetched is FetchState.NO
    assert fit.rate.value > 0


def _needed() -> int:
    """What the pair takes completely on a GPU, by the plan."""
    model = str(DEMO / "drafter.gguf")
    return planning.plan(target=model, draft_model=model, vram=()).plans[-1].gpu_bytes


def test_on_a_small_gpu_some_layers_fit_and_a_quant_that_is_too_large_is_left_out(hub: Hub) -> None:
    needed = _needed()
    exact = _fit(_site(needed + memory.RESERVE_BYTES))
    assert (exact.fits, exact.quant) == (True, "Q4_K_M")
    short = _fit(_site(needed + memory.RESERVE_BYTES - 1))
    assert (short.fits, short.quant) == (False, None)
    assert short.fitting_layers < short.max_layers
    assert short.rate.value < exact.rate.value  # the rest is on the host, which is slower


def test_without_a_gpu_the_hosts_memory_and_bandwidth_count(hub: Hub) -> None:
    fit = _fit(_site(gpu=None))
    assert (fit.fits, fit.fitting_layers, fit.quant) == (True, None, "Q8_0")
    slower = _fit(replace(_site(gpu=None), host="30G"))
    assert fit.rate.value / 2 < slower.rate.value < fit.rate.value  # each layer takes time besides
    crowded = _fit(_site(memory_bytes=MIB, gpu=None))
    assert (crowded.fits, crowded.quant) == (False, None)


def test_what_the_processors_cache_holds_has_no_estimate_from_memory_bandwidth(hub: Hub) -> None:
    site = replace(_site(gpu=None), cache_bytes=1 << 30)
    fit = _fit(site)
    assert (fit.fits, fit.rate, fit.in_cache) == (True, None, True)
    for other in (replace(site, cache_bytes=MIB), replace(site, vram_bytes=(24 << 30,), gpu="rtx-4090")):
        fit = _fit(other)
        assert (fit.rate is not None, fit.in_cache) == (True, False)


def test_which_pairs_have_no_estimate_is_said(
    hub: Hub, catalogue: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ggufspec.llama.install.installs.detect_gpus", tuple)
    monkeypatch.setattr(machine, "read_bandwidth", lambda threads: 10e9)
    monkeypatch.setattr(machine, "last_cache_bytes", lambda: 1 << 30)
    code, out, err = run("pairs", "mine", "--fits")
    assert code == 0, err
    assert "tokens/s not estimated for mine: the processor's cache (1 GiB) can hold all that is read" in err
    code, out, _ = run("pairs", "mine", "--fits", "-o", "json")
    assert [(fit["rate"], fit["in_cache"]) for fit in json.loads(out)] == [(None, True)]
    code, out, err = run("pairs", "mine", "--fits", "--host", "60G")
    assert "not estimated" not in err  # the host is another machine, whose cache is not known


def test_a_gpu_without_known_peaks_has_layers_and_no_rate(hub: Hub) -> None:
    fit = _fit(_site(24 << 30, gpu=None))
    assert (fit.fits, fit.rate) == (True, None)


def test_the_embedded_pair_needs_no_hub() -> None:
    fit = planning.fit_pair(catalog.find_pair("demo"), _site(gpu=None), hub.Access(offline=True))
    assert (fit.error, fit.fits, fit.fetched, fit.quant) == (None, True, FetchState.YES, None)


def test_a_pair_that_is_not_available_says_why(hub: Hub) -> None:
    gone = Pair(name="gone", target=ModelFile(filename="g.gguf", repo="me/Gone-GGUF"))
    fit = _fit(_site(24 << 30), gone)
    assert fit.error is not None
    assert (fit.fits, fit.size_bytes, fit.is_unreachable) == (None, None, False)


def test_the_table_and_the_json_say_the_same(hub: Hub, catalogue: None) -> None:
    words = ("pairs", "mine", "--fits", "--vram", "24G", "--machine", "rtx-4090", "--host", "60G")
    code, out, err = run(*words)
    assert code == 0, err
    heading, row = out.splitlines()[:2]
    for name in ("pair", "size", "fetched", "fits", "GPU layers", "quant that fits", "estimated tokens/s"):
        assert name in heading
    assert row.startswith("mine")
    assert "Q8_0" in row
    assert "from memory bandwidth, at a context of 4,096 tokens; not measured" in err
    (fit,) = json.loads(run(*words, "-o", "json")[1])
    assert (fit["pair"], fit["quant"], fit["fits"], fit["fetched"]) == ("mine", "Q8_0", True, "no")


def test_a_pair_without_an_answer_is_a_row_without_figures(hub: Hub, catalogue: None) -> None:
    words = ("--fits", "--vram", "24G", "--host", "60G")
    code, out, err = run("pairs", "gone", *words)
    assert code == 0
    assert out.splitlines()[1].split() == ["gone", "no"]
    assert "not known for 1 pair; gone: " in err
    assert "name it with --machine" in err
    code, out, err = run("pairs", "mine", *words, "--offline")
    assert code == 0
    assert "not in the cache" in err


def test_what_is_fetched_is_said(hub: Hub, catalogue: None) -> None:
    shell.done("fetch", "mine")
    words = ("--fits", "--vram", "24G", "--host", "60G", "-o", "json", "--offline")
    assert json.loads(shell.done("pairs", "mine", *words).stdout)[0]["fetched"] == "yes"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--fits", "--verify"), "use either --verify or --fits"),
        (("--vram", "24G"), "are for --fits"),
        (("--fits", "--machine", "abacus", "--host", "60G", "--vram", "1G"), "unknown machine"),
    ],
)
def test_contradictions_are_refused(words: tuple[str, ...], problem: str) -> None:
    code, _, err = run("pairs", "demo", *words)
    assert code == 2
    assert problem in err


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("Tesla T4", "t4"),
        ("Apple M1 Max", "m1-max"),
        ("Some other GPU", None),
    ],
)
def test_a_detected_gpu_is_matched_by_its_name(name: str, key: str | None) -> None:
    assert costs.match_device(name) == key


def test_the_machine_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(name="NVIDIA H100 80GB HBM3", total_bytes=80 << 30, free_bytes=79 << 30)
    monkeypatch.setattr("ggufspec.llama.install.installs.detect_gpus", lambda: (gpu,))
    monkeypatch.setattr(machine, "read_bandwidth", lambda threads: 12.34e9)
    site = planning.detect_site(None, None, None)
    assert (site.vram_bytes, site.gpu, site.host) == ((79 << 30,), "h100", "12.3G")
    assert site.notes == ("detected: NVIDIA H100 80GB HBM3", "host: memory read here at 12.3 GB/s")


def test_memory_is_read_at_some_speed() -> None:
    assert machine.read_bandwidth(1) > 1e8
    assert machine.read_bandwidth(0) > 1e8


def test_the_largest_cache_is_the_last_one(tmp_path: Path) -> None:
    assert machine.last_cache_bytes(tmp_path) is None
    for number, size in enumerate(("48K", "2048K", "32768K", "?")):
        folder = tmp_path / f"sys/devices/system/cpu/cpu0/cache/index{number}"
        folder.mkdir(parents=True)
        (folder / "size").write_text(f"{size}\n")
    assert machine.last_cache_bytes(tmp_path) == 32 << 20


def test_every_pair_of_ours_that_was_not_checked_is_marked() -> None:
    unchecked: dict[str, Any] = {
        name: entry for name, entry in catalog.entries().items() if not entry.verified
    }
    assert all(entry.note and "not checked" in entry.note for entry in unchecked.values())
