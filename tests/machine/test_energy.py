"""Energy per token and GPU memory, where a bench has measured them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ggufspec import results
from ggufspec.analysis import arms
from ggufspec.domain import Conditions, LoadedModel, Placement, Role, RunResult
from ggufspec.report import frames, plot
from ggufspec.report.html.sections import html, section
from ggufspec.report.plot.curves import pareto_rows
from ggufspec.report.rows.benches import EnergyRow
from ggufspec.results import ResultSet
from tests.support.values import BUILD, MACHINE, META, bench, run

MIB = 1 << 20
TARGET = LoadedModel(
    placement=(
        Placement(device="CUDA0", model_bytes=200 * MIB, kv_bytes=50 * MIB),
        Placement(device="CPU", model_bytes=700 * MIB),
    )
)
DRAFTER = LoadedModel(placement=(Placement(device="CUDA0", model_bytes=150 * MIB),))


def _runs(
    gpu: float | None = 300.0, cpu: float | None = None, *, loading_s: float = 0.1
) -> Iterator[RunResult]:
    """Target alone at 50 tokens/s and drafting at 100, 100 tokens each; ``gpu`` and ``cpu`` are in W.

    Energies differ from run to run, by factors whose geometric mean is 1 for each prompt and each repeat.
    """
    for repeat in range(2):
        for prompt in ("p1", "p2"):
            for role, tps in ((Role.TARGET, 50.0), (Role.DRAFTING, 100.0)):
                made = run(
                    role, prompt=prompt, repeat=repeat, tps=tps, draft=4 if role is Role.DRAFTING else None
                )
                wall_s = 100 / tps + loading_s
                sign = 1 if (prompt == "p1") == (repeat == 0) else -1
                factor = (1.01 if role is Role.TARGET else 1.02) ** sign
                used = Conditions(
                    gpu_j=None if gpu is None else gpu * wall_s * factor,
                    cpu_j=None if cpu is None else cpu * wall_s * factor,
                )
                yield replace(made, wall_s=wall_s, program_s=wall_s, conditions=used)


def test_a_token_s_energy_is_the_request_s_over_its_tokens() -> None:
    summary = frames.summary(bench(*_runs(300.0, 40.0)))
    rows = {role: summary[summary.role == role.value].iloc[0] for role in (Role.TARGET, Role.DRAFTING)}
    alone, drafting = rows[Role.TARGET], rows[Role.DRAFTING]
    assert alone["gpu_j_per_token"] == pytest.approx(300 * 2.1 / 100)
    assert drafting["gpu_j_per_token"] == pytest.approx(300 * 1.1 / 100)
    assert drafting["cpu_j_per_token"] == pytest.approx(40 * 1.1 / 100)
    for device in ("gpu", "cpu"):
        assert drafting[f"{device}_energy_ratio"] == pytest.approx(1.1 / 2.1)
    assert drafting["gpu_energy_ratio_lo"] <= drafting["gpu_energy_ratio"] <= drafting["gpu_energy_ratio_hi"]
    assert not isinstance(alone["gpu_energy_ratio"], float)


def test_the_ratio_pairs_what_both_sides_have() -> None:
    """A target alone that is only known on the dear prompt must not be compared with the cheap one."""
    runs = [
        replace(each, conditions=Conditions())
        if each.spec.role is Role.TARGET and each.spec.prompt.id == "p1"
        else replace(each, conditions=Conditions(gpu_j=10 * (each.conditions.gpu_j or 0)))
        if each.spec.prompt.id == "p2" and each.conditions
        else each
        for each in _runs()
    ]
    (drafting,) = [arm for arm in arms.group(bench(*runs)) if arm.role is Role.DRAFTING]
    found = drafting.energy["GPU"]
    assert found.ratio.value == pytest.approx(1.1 / 2.1)
    assert found.runs == 4


def test_the_interval_is_that_of_rates() -> None:
    runs = [
        replace(each, conditions=Conditions(gpu_j=(each.conditions.gpu_j or 0) * (1 + 0.1 * each.repeat)))
        for each in _runs()
        if each.conditions
    ]
    first = arms.group(bench(*runs))[0]
    energy = first.energy["GPU"].per_token
    assert energy.value == pytest.approx(300 * 2.1 / 100 * 1.1**0.5)
    assert energy.lo <= energy.value


def test_runs_of_one_load_are_no_independent_energies() -> None:
    """Each load takes another energy, and its eight runs agree: as runs of their own they look precise."""
    of_load = {Role.TARGET: (1.0, 1.1, 0.9), Role.DRAFTING: (1.1, 0.9, 1.0)}
    runs = []
    for repeat in range(3):
        for number in range(8):
            for role, tps in ((Role.TARGET, 50.0), (Role.DRAFTING, 100.0)):
                drafts = role is Role.DRAFTING
                made = run(role, prompt=f"p{number}", repeat=repeat, tps=tps, draft=4 if drafts else None)
                joules = 600.0 * of_load[role][repeat] * (1 + 0.001 * math.sin(number + 9 * drafts))
                conditions = Conditions(gpu_j=joules)
                load = 2 * repeat + drafts
                runs.append(replace(made, wall_s=100 / tps, load=load, conditions=conditions))
    programs = bench(*runs)
    server = replace(programs, meta=replace(programs.meta, engine="server"))
    energy = arms.group(server)[1].energy["GPU"]
    assert energy.ratio.hi > 1.25 * energy.ratio.lo
    assert energy.per_token.lo < 0.85 * energy.per_token.value


@pytest.mark.parametrize(("loading_s", "counts"), [(0.0, True), (0.2, True), (0.6, False), (5.0, False)])
def test_runs_that_loaded_are_left_out(loading_s: float, counts: bool) -> None:
    (target, _) = arms.group(bench(*_runs(loading_s=loading_s)))
    assert ("GPU" in target.energy) is counts


def test_only_what_was_measured_is_shown() -> None:
    runs = [
        replace(each, sample=replace(each.sample, prompt_tokens=500, prompt_tps=1000.0))
        for each in _runs(loading_s=0.5)
    ]
    assert [set(arm.energy) for arm in arms.group(bench(*runs))] == [{"GPU"}, {"GPU"}]
    stored = bench(*_runs(None), run(Role.TARGET, prompt="p3"))
    assert all(not arm.energy for arm in arms.group(stored))
    assert frames.summary(stored)[list(EnergyRow.names())].isna().all(axis=None)
    assert not section(stored).energy.rows
    assert "J/token" not in html(stored)


def test_runs_tell_what_their_gpus_did() -> None:
    seen = Conditions(gpu_j=12.5, gpu_peak_bytes=MIB, gpu_throttled=("hw-thermal", "sw-power-cap"))
    stored = bench(
        replace(run(), conditions=seen), replace(run(repeat=1), conditions=Conditions(gpu_throttled=()))
    )
    first = frames.runs(stored).iloc[0]
    assert (first["gpu_j"], first["gpu_peak_bytes"]) == (12.5, MIB)
    assert first["gpu_throttled"] == "hw-thermal; sw-power-cap"
    assert frames.runs(stored).gpu_throttled.isna().tolist() == [False, True]


def test_the_page_has_a_table_of_energy() -> None:
    page = section(bench(*_runs(300.0, 40.0))).energy
    over = ("GPU J/token", "GPU J over target alone", "CPU J/token", "CPU J over target alone")
    assert [column.head for column in page.columns] == ["", "model", "γ", *over]
    alone, drafting = page.rows
    assert alone[3].text.startswith("6.3 [")
    assert alone[4].text == ""
    assert drafting[4].text.startswith("0.52×")
    assert "J/token" in html(bench(*_runs()))


def test_the_page_names_gpu_memory_and_driver() -> None:
    here = replace(MACHINE, gpu_driver="580.65.06", gpu_bytes=(80 << 30, 24 << 30))
    stored = results.create(replace(META, machine=here))
    facts = section(stored).facts
    assert (facts["GPU memory"], facts["GPU driver"]) == ("80 GiB, 24 GiB", "580.65.06")


def _sized(
    engine: str, backend: str, *, nvml: bool = True, logged: bool = True, rss: bool = True
) -> ResultSet:
    """Target alone and drafting: by NVML 300 and 500 MiB above 1000 in use before, by the log 250 and 400."""
    stored = results.create(replace(META, engine=engine, build=replace(BUILD, backend=backend)))
    for made in _runs():
        drafts = made.spec.role is Role.DRAFTING
        seen = Conditions(gpu_used_bytes=1000 * MIB, gpu_peak_bytes=(1500 if drafts else 1300) * MIB)
        sample = replace(
            made.sample, target=TARGET if logged else None, drafter=DRAFTER if logged and drafts else None
        )
        stored = results.append(
            stored,
            replace(
                made,
                sample=sample,
                conditions=seen if nvml else Conditions(),
                peak_rss_bytes=(900 if drafts else 800) * MIB if rss else None,
            ),
        )
    return stored


@pytest.mark.parametrize(
    ("stored", "of", "sizes"),
    [
        (("binary", "cuda", True, True), "GPU memory taken at its peak, by NVML", [300, 500]),
        (("server", "cuda", True, True), "GPU memory taken, by llama.cpp's log", [250, 400]),
        (("server", "cuda", True, False), "GPU memory in use at its peak, by NVML", [1300, 1500]),
        (("binary", "cuda", False, True), "GPU memory taken, by llama.cpp's log", [250, 400]),
        (("binary", "cuda", False, False), "peak resident memory on the host", [800, 900]),
        (("binary", "cpu", True, True), "peak resident memory on the host", [800, 900]),
    ],
)
def test_speed_is_drawn_over_memory(stored: tuple[str, str, bool, bool], of: str, sizes: list[int]) -> None:
    engine, backend, nvml, logged = stored
    results = _sized(engine, backend, nvml=nvml, logged=logged)
    rows = pareto_rows(results)
    assert [row["memory_mib"] for row in rows] == sizes
    assert {row["memory_of"] for row in rows} == {of}
    chart = plot.pareto(results)
    assert f"{of} (MiB)" in chart.to_json()
    assert str(chart.description).startswith(f"Speed over {of};")


def test_memory_is_of_one_kind_for_all_arms() -> None:
    """Where one arm's GPU memory is unknown, no arm's is drawn beside the host's of others."""
    stored = _sized("binary", "cuda", logged=False)
    odd = run(Role.DRAFTING, draft=8, tps=120.0)
    stored = results.append(stored, replace(odd, peak_rss_bytes=950 * MIB))
    assert [row["memory_mib"] for row in pareto_rows(stored)] == [800, 900, 950]
