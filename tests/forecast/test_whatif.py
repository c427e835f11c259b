"""What would drafting gain: by hand, there and back, and as users meet it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, strategies as st

from ggufspec import forecast
from ggufspec.cli import forecasts
from ggufspec.domain import AcceptanceRate, Positions, Program, Steady
from ggufspec.forecast import costs, whatif
from ggufspec.forecast.whatif import Network
from ggufspec.modelfiles import gguf
from ggufspec.report.rows.plans import OutlookRow
from tests.support import models

command = forecasts.whatif("whatif")

NOTEBOOK = ("--target-tps", "2.01", "--drafter-tps", "87.02")
PROGRAMS = (Program.SERVER, Program.SIMPLE, Program.TREE)


def _run(*words: str) -> Result:
    return CliRunner().invoke(command, words)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_by_hand() -> None:
    curve = costs.flat_curve(2.0, 20.0, ratios=(1.0, 1.0, 1.0, 1.6), overhead_s=0.05)
    found = whatif.outlook(curve, Steady(0.5), n_max=3, program=Program.TREE)
    seconds = 0.8 + 4 * 0.05 + 0.05
    assert found.mean_accepted_length == pytest.approx(1.875)
    assert found.accept_rate == pytest.approx(0.875 / 3)
    assert found.tokens_per_s == pytest.approx(1.875 / seconds)
    assert found.speedup == pytest.approx(1.875 / seconds / 2)
    assert found.verify_ratio == pytest.approx(1.6)
    assert found.break_even_accept_rate == pytest.approx((seconds * 2 - 1) / 3)
    even = whatif.outlook(curve, Steady(found.break_even_alpha or 0), n_max=3, program=Program.TREE)
    assert even.speedup == pytest.approx(1.0)


def test_the_notebook_implies_what_verification_costs() -> None:
    """2.58 tokens/s at 70.8 % accepted, γ = 3: rounds of 3.124 tokens, the tree's drafter runs four times."""
    curve = costs.flat_curve(2.01, 87.02, ratios=(1.0,) * 4)
    accepted = Steady.from_rate(0.708, 3)
    ratio = whatif.implied_verify_ratio(curve, 2.58, accepted, n_max=3, program=Program.TREE)
    assert ratio == pytest.approx((3.124 / 2.58 - 4 / 87.02) * 2.01)
    assert ratio == pytest.approx(2.34, abs=0.005)
    back = costs.flat_curve(2.01, 87.02, ratios=(1.0, *(ratio,) * 3))
    assert whatif.outlook(back, accepted, n_max=3, program=Program.TREE).tokens_per_s == pytest.approx(2.58)


def test_the_closed_form_is_what_the_paper_leaves_out() -> None:
    """Batches as dear as one token, and a drafter that reads nothing else: theorem 3.8."""
    curve = costs.CostCurve(
        verify=(one := costs.flat_curve(2.0, 25.0, ratios=(1.0,) * 9)).verify, draft=one.draft
    )
    for n_max in range(1, 9):
        found = whatif.outlook(curve, Steady(0.7), n_max=n_max)
        assert found.speedup == pytest.approx(forecast.closed_form(0.7, n_max, 2 / 25))


def test_positions_are_what_servers_print() -> None:
    shares = Positions((0.9, 0.8, 0.7))
    assert [shares.accepted(size) for size in (1, 2, 3)] == pytest.approx([0.9, 1.7, 2.4])
    with pytest.raises(ValueError, match="3 positions, not for 4"):
        shares.accepted(4)


@given(alpha=st.floats(0, 1), n_max=st.integers(1, 32))
def test_a_rate_and_its_alpha_are_one(alpha: float, n_max: int) -> None:
    rate = Steady(alpha).accepted(n_max) / n_max
    assert AcceptanceRate(rate).accepted(n_max) == pytest.approx(rate * n_max)
    assert Steady.from_rate(rate, n_max).accepted(n_max) / n_max == pytest.approx(rate, abs=1e-9)


@given(
    target=st.floats(0.1, 1000),
    times=st.floats(1.1, 100),
    alpha=st.floats(0, 1),
    ratio=st.floats(1, 9),
    n_max=st.integers(1, 16),
    program=st.sampled_from(PROGRAMS),
)
def test_inversion_is_a_round_trip(
    target: float, times: float, alpha: float, ratio: float, n_max: int, program: Program
) -> None:
    curve = costs.flat_curve(target, target * times, ratios=(1.0, *(ratio,) * n_max))
    found = whatif.outlook(curve, Steady(alpha), n_max=n_max, program=program)
    implied = whatif.implied_verify_ratio(
        curve, found.tokens_per_s, Steady(alpha), n_max=n_max, program=program
    )
    assert implied == pytest.approx(ratio, rel=1e-6)


@given(
    alpha=st.floats(0, 0.99),
    more=st.floats(0.001, 0.01),
    n_max=st.integers(1, 16),
    ratio=st.floats(1, 4),
)
def test_more_acceptance_is_never_slower(alpha: float, more: float, n_max: int, ratio: float) -> None:
    curve = costs.flat_curve(10, 100, ratios=(1.0, *(ratio,) * n_max))
    here, there = (whatif.outlook(curve, Steady(each), n_max=n_max) for each in (alpha, alpha + more))
    assert there.speedup > here.speedup
    assert there.break_even_accept_rate == here.break_even_accept_rate
    if here.break_even_alpha is not None and abs(here.speedup - 1) > 1e-9:
        assert (here.speedup > 1) == (alpha > here.break_even_alpha)


@pytest.mark.parametrize("n_experts", [0, 8])
def test_a_header_tells_what_is_read_and_computed(tmp_path: Path, n_experts: int) -> None:
    path = models.write_model(
        tmp_path / "model.gguf", *models.llama(n_layers=3, n_embd=256, n_ff=512, n_experts=n_experts)
    )
    card = gguf.read_card(path)
    found = whatif.shape(card, depth=1000)
    looked_up = 64 * 256 * 2  # the input embedding: 64 tokens in F16
    assert found.weight_bytes == sum(tensor.size_bytes for tensor in card.tensors) - looked_up
    assert found.kv_bytes == pytest.approx(3 * 2 * 256 * 2)  # keys and values of three layers in F16
    assert found.kv_flops == 3 * 4 * 256
    if n_experts:
        assert found.used_share == 0.25
        assert found.active_bytes < found.weight_bytes
        assert found.read_bytes(1, 0) == pytest.approx(found.active_bytes)
    else:
        assert found.active_bytes == found.weight_bytes
        assert found.flops == pytest.approx(found.weight_bytes, rel=0.05)  # two per weight of two bytes


def test_users_see_the_notebook_explained() -> None:
    result = _run(
        *NOTEBOOK, *["--accept", "0.708", "--observed", "2.58", "--draft", "3", "--program", "speculative"]
    )
    assert result.exit_code == 0
    assert "1.28× of the target alone. Verifying 4 tokens took 2.34 times as long" in result.stderr
    assert "|   3 |     70.8 % |           3.12 |" in result.stdout
    assert "2.580" in result.stdout


@pytest.mark.parametrize("acceptance", [("--accept", "0.708"), ("--accept", "0.708@3"), ("--alpha", "0.8")])
def test_an_acceptance_means_the_same_with_an_observed_speed(acceptance: tuple[str, str]) -> None:
    shared = (*NOTEBOOK, *acceptance, "--draft", "3", "-o", "csv")
    (without,) = csv.DictReader(io.StringIO(_run(*shared).stdout))
    (observed,) = csv.DictReader(io.StringIO(_run(*shared, "--observed", "2.58").stdout))
    for name in ("accept_rate", "mean_accepted_length"):
        assert without[name] == observed[name]
    if acceptance[0] == "--accept":
        assert float(without["mean_accepted_length"]) == pytest.approx(1 + 3 * 0.708)


def test_an_acceptance_rate_holds_at_every_draft_size() -> None:
    result = _run(*NOTEBOOK, "--accept", "0.5", "--draft", "2,4", "--verify-ratio", "1.5")
    assert [_cells(line)[2] for line in result.stdout.splitlines()[2:4]] == ["2.00", "3.00"]
    assert result.stdout.endswith(
        "Acceptance: the share of the drafted tokens that is accepted, at every γ.\n"
    )
    assert "--alpha compares draft sizes" in result.stderr
    ranged = _run(*NOTEBOOK, "--accept", "0.5-0.6", "--draft", "2", "--verify-ratio", "1.5")
    assert _cells(ranged.stdout.splitlines()[0])[1:3] == ["50.0 % accepted", "60.0 % accepted"]
    assert ranged.stderr == ""


def test_users_see_a_table_for_one_acceptance() -> None:
    result = _run(*NOTEBOOK, "--accept", "70.8%@3", "--draft", "1-4", "--verify-cost", "1,1.2,1.4,1.6,1.8")
    assert result.exit_code == 0
    assert len([line for line in result.stdout.splitlines() if line.startswith("| ")]) == 5
    assert "Best: γ = 4, 1.89×." in result.stdout
    assert result.stderr == ""


def test_users_see_a_surface_for_a_range() -> None:
    result = _run(*NOTEBOOK, "--alpha", "0.1-0.9+0.4", "--verify-ratio", "2.5", "--draft", "1-8")
    head, *_, best, reading = result.stdout.splitlines()
    assert _cells(head) == ["speed-up at γ", "α = 0.10", "α = 0.50", "α = 0.90", "break-even"]
    assert best.startswith("Best: α = 0.10: no γ would pay; α = 0.50: no γ would pay; α = 0.90: γ = 8, ")
    assert reading == "Acceptance: the probability α that each drafted token is accepted, at every γ."
    assert "never" in result.stdout  # one token more for two and a half times the time


def test_a_table_of_users_ends_where_drafting_does() -> None:
    slow = _run("--target-tps", "10", "--drafter-tps", "9", "--accept", "0.9", "--draft", "1-4")
    assert "drafting would not pay: at these costs no acceptance rate is high enough." in slow.stdout
    low = _run("--target-tps", "10", "--drafter-tps", "50", "--alpha", "0.1", "--draft", "1-4")
    assert "drafting would not pay: γ = 1 comes closest with 0.79×. γ = 4 would pay above" in low.stdout
    result = _run(*NOTEBOOK, "--accept", "0.9,0.8", "--verify-ratio", "1.5")
    assert "|   2 |" in result.stdout
    assert "|   3 |" not in result.stdout
    assert "no acceptance or cost is known for drafts of more than 2 tokens" in result.stderr
    costs_end = _run(*NOTEBOOK, "--accept", "0.9", "--verify-cost", "1,1.2,1.4,1.6")
    assert "no acceptance or cost is known for drafts of more than 3 tokens" in costs_end.stderr


def test_places_are_searched_before_a_download(tmp_path: Path) -> None:
    """With room for everything the figures are those of all layers on the GPU; with less, of what fits."""
    shape = models.llama(n_layers=12, n_embd=1024, n_ff=1024, n_heads=8, n_experts=16, context=4096)
    small = models.llama(n_layers=2, n_embd=512, n_ff=512, n_heads=8)
    target, drafter = (
        str(models.write_model(tmp_path / name, *model))
        for name, model in (("target.gguf", shape), ("drafter.gguf", small))
    )
    words = f"-m {target} -md {drafter} --machine rtx-3090 --host 60G --alpha 0.8 --draft 1,8 --reserve 0"
    pair = words.split()

    def rows(*words: str) -> list[dict[str, Any]]:
        return list(json.loads(_run(*pair, "-o", "json", *words).stdout))

    whole, named = rows("--vram", "24G"), rows()
    assert [row["places"] for row in whole] == ["-ngl 13 -ngld 999"] * 2
    assert [row["places"] for row in named] == [None, None]
    for name in ("tokens_per_s", "speedup", "verify_ratio"):
        assert [float(row[name]) for row in whole] == pytest.approx([float(row[name]) for row in named])
    half = rows("--vram", "800M")
    assert all("--n-cpu-moe" in row["places"] for row in half)
    assert all(float(a["tokens_per_s"]) < float(b["tokens_per_s"]) for a, b in zip(half, whole, strict=True))
    shown = _run(*pair, "--vram", "800M")
    assert "the target alone, where it is fastest: " in shown.stderr
    assert "published measurements of routers" in shown.stderr
    assert "is -ot 'blk" in shown.stdout
    assert _run(*pair, "--vram", "10M", "--ram", "10M").exit_code == 2
    assert "leave out --ngl" in _run(*pair, "--vram", "800M", "--ngl", "3").stderr


def test_other_formats_have_every_figure() -> None:
    result = _run(*NOTEBOOK, "--alpha", "0.5-0.6", "--draft", "1-3", "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert tuple(rows[0]) == OutlookRow.names()
    assert [(row["draft"], row["alpha"]) for row in rows] == [
        (str(size), alpha) for alpha in ("0.5", "0.6") for size in (1, 2, 3)
    ]
    assert "the best case" in result.stderr


def test_costs_are_computed_from_headers_and_a_machine(tmp_path: Path) -> None:
    big = models.write_model(tmp_path / "big.gguf", *models.llama(n_layers=20, n_embd=2048, n_ff=5632))
    small = models.write_model(tmp_path / "small.gguf", *models.llama(n_layers=2, n_embd=512, n_ff=1024))
    pair = ("-m", str(big), "-md", str(small))
    named = _run(*pair, "--machine", "rtx-3090", "--accept", "0.8", "--draft", "1-8")
    assert named.exit_code == 0
    assert "computed for NVIDIA GeForce RTX 3090: 936 GB/s, 71 TFLOPS" in named.stderr
    given = _run(*pair, *["--bandwidth", "936G", "--flops", "71T", "--accept", "0.8", "--draft", "1-8"])
    assert given.stdout == named.stdout
    starved = _run(*pair, *["--bandwidth", "936G", "--flops", "200G", "--accept", "0.8", "--draft", "1-8"])
    assert "drafting would not pay" in starved.stdout


def test_machines_are_listed() -> None:
    listed = _run("--machine", "list")
    assert len(listed.stdout.splitlines()) == len(costs.DEVICES) >= 12
    assert "h100         NVIDIA H100 SXM: 3350 GB/s" in listed.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        *(
            (" ".join((*NOTEBOOK, words)), message)
            for words, message in {
                "": "the acceptance is missing",
                "--accept 1.5": "from 0 to 1",
                "--accept 0.5,0.9": "never rising",
                "--accept much": "'much' is not an acceptance",
                "--accept 0.7 --alpha 0.7": "use either --accept or --alpha",
                "--alpha 0.7@3": "'0.7@3' is not an acceptance; examples: 0.7, 0.5-0.9",
                "--alpha 1.5": "from 0 to 1",
                "--accept 0.7@0": "a draft has 1 to 1000 tokens, not 0",
                "--accept 0.9,0.8 --draft 5": "no acceptance or cost is known for drafts of these sizes",
                "--accept 0.7 --observed 3": "needs one --draft",
                "--accept 0.7 --observed 300 --draft 3": "longer than these rounds",
                "--accept 0.7 --machine h100": "use either rates",
                "--accept 0.7 --verify-cost 1,x": "not a list of positive numbers",
                "--alpha 0.8 --rtt 2": "is not a time",
                "--alpha 0.8 --rtt 2ms --bandwidth 1G": "--token-bytes",
                "--alpha 0.8 --rtt 2ms --bandwidth 1G --flops 71T": "name the machine with --machine",
            }.items()
        ),
        ("--accept 0.7 --target-tps 3", "are needed together"),
        ("--accept 0.7 --machine abacus", "unknown machine: 'abacus'; known are h200"),
        ("--accept 0.7 --bandwidth 900G", "use --target-tps and --drafter-tps, or --machine"),
        ("--accept 0.7 --bandwidth fast", "not a quantity"),
    ],
)
def test_wrong_and_missing_words_are_named(words: str, message: str) -> None:
    result = _run(*words.split())
    assert result.exit_code == 2
    assert message in result.stderr


# Over a network ------------------------------------------------------------------------------------------


def test_a_network_is_paid_once_a_pass() -> None:
    curve = costs.flat_curve(2.0, 20.0, ratios=(1.0,) * 4)
    network = Network(rtt_s=0.1, bytes_per_s=1000.0, round_trips=2, token_bytes=20)
    found = whatif.outlook(curve, Steady(0.5), n_max=3, program=Program.TREE, network=network)
    alone, verify = 0.5 + 0.2 + 0.02, 0.5 + 0.2 + 0.08
    assert found.tokens_per_s == pytest.approx(1.875 / (verify + 4 * 0.05))
    assert found.speedup == pytest.approx(1.875 * alone / (verify + 4 * 0.05))
    assert found.verify_ratio == pytest.approx(verify / alone)


@given(st.floats(0.01, 1.0), st.integers(1, 8), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_longer_round_trips_favour_drafting(alpha: float, n_max: int, first: float, second: float) -> None:
    """Drafting pays it once for all tokens of a round, and the target alone for each of them."""
    curve = costs.flat_curve(2.0, 20.0, ratios=(1.0,) * 9)
    near, far = sorted((first, second))
    gains = [
        whatif.outlook(curve, Steady(alpha), n_max=n_max, network=Network(rtt_s=rtt_s)).speedup
        for rtt_s in (near, far)
    ]
    written = 1 + Steady(alpha).accepted(n_max)
    assert gains[1] >= gains[0] - 1e-9
    assert gains[1] <= written + 1e-9


def test_the_round_trip_of_the_command_is_that_of_the_model() -> None:
    answer = whatif.whatif(alpha=0.5, draft=3, target_tps=2.0, drafter_tps=20.0, rtt=100.0, round_trips=2)
    curve = costs.flat_curve(2.0, 20.0, ratios=(1.0,) * 4)
    network = Network(rtt_s=0.1, round_trips=2)
    expected = whatif.outlook(curve, Steady(0.5), n_max=3, network=network)
    assert answer.best.tokens_per_s == pytest.approx(expected.tokens_per_s)
    assert any("pays 2 × 100 ms for the network" in note for note in answer.notes)


@pytest.mark.parametrize(("text", "milliseconds"), [("2ms", 2.0), ("0.02s", 20.0), ("200us", 0.2)])
def test_short_times_are_read(text: str, milliseconds: float) -> None:
    found = _run(*NOTEBOOK, "--alpha", "0.8", "--rtt", text)
    assert found.exit_code == 0, found.output
    assert f"pays 1 × {milliseconds:g} ms" in found.output


def test_a_header_says_what_a_token_sends() -> None:
    words = ("--pair", "demo", "--machine", "h100", "--alpha", "0.8", "--draft", "3", "--rtt", "2ms")
    slow, fast = (_run(*words, "--bandwidth", rate) for rate in ("1M", "1G"))
    assert (slow.exit_code, fast.exit_code) == (0, 0), slow.output
    assert "a token at" in slow.output
    assert slow.output != fast.output
