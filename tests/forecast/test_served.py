"""Draft sizes of a server that runs: by the rounds of its traffic, and by what short requests take."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import ggufspec
from ggufspec.errors import GgufspecError
from ggufspec.forecast import trace
from ggufspec.forecast.trace import TraceStep
from ggufspec.forecast.whatif import ServedForecast
from ggufspec.report.text import projections
from tests.support import fake_server, shell
from tests.support.fake_server import FakeServer, round_ms
from tests.support.walks import trace_of, traced_run

LARGEST, REQUEST = 8, 150  # the server's draft size; tokens of a request


def _text() -> tuple[bool, ...]:
    """Which tokens of the traffic the drafter has right: whole passages of it are easy, others hard."""
    draw = random.Random(5)
    return tuple(draw.random() < chance for chance in (0.95, 0.5, 0.8) * 8 for _ in range(REQUEST))


TEXT = _text()


def _steps(n_max: int) -> list[list[TraceStep]]:
    """The rounds of each request of the traffic."""
    found = []
    for start in range(0, len(TEXT), REQUEST):
        view = trace_of(TEXT[start : start + REQUEST])
        found.append([*trace.steps(view, traced_run(n_max=n_max, n_predict=REQUEST))])
    return found


def _log(folder: Path) -> Path:
    lines = [
        f"0.12.345.678 I slot update_slots: id  {task % 2} | task {7 * task} | "
        f"accepted {step.accepted:2.0f}/{step.drafted:2} draft tokens\n"
        for task, steps in enumerate(_steps(LARGEST))
        for step in steps
        if step.drafted  # a round without a draft has no line
    ]
    (folder / "server.log").write_text("".join(lines))
    return folder / "server.log"


def _usual_log(folder: Path) -> Path:
    """The log of a server without LLAMA_TRACE, whose last line says what was accepted at each position."""
    steps = [step for request in _steps(LARGEST) for step in request if step.drafted]
    rates = (sum(step.accepted > place for step in steps) / len(steps) for place in range(LARGEST))
    (folder / "server.log").write_text(
        f"spec common_specu: statistics     draft-simple: #calls(b,g,a) =   24 {len(steps)} {len(steps)}, "
        f"#gen drafts = {len(steps):6}, #acc drafts =    676, #gen tokens = "
        f"{sum(step.drafted for step in steps)}, #acc tokens = {sum(step.accepted for step in steps)}, "
        f"#mean acc len = 3.38, #acc rate/pos = ({', '.join(f'{rate:.3f}' for rate in rates)}), "
        "dur(b,g,a) = 0.005, 967.169, 0.045 ms\n"
    )
    return folder / "server.log"


def _metrics() -> str:
    steps = [step for request in _steps(LARGEST) for step in request if step.drafted]
    counted = {
        "tokens_predicted_total": len(TEXT),
        "spec_decode_num_drafts_total": len(steps),
        "spec_decode_num_draft_tokens_total": sum(step.drafted for step in steps),
        "spec_decode_num_accepted_tokens_total": sum(step.accepted for step in steps),
    }
    for place in range(LARGEST):
        name = f'spec_decode_num_accepted_tokens_per_pos_total{{position="{place}"}}'
        counted[name] = sum(step.accepted > place for step in steps)
    return "".join(f"llamacpp:{name} {count:g}\n" for name, count in counted.items())


@pytest.fixture
def servers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def _start(servers: ExitStack, **settings: Any) -> str:
    settings = {"software": "llama-server", "right": TEXT} | settings
    return servers.enter_context(fake_server.serve(FakeServer(**settings))).url


def _speedup(n_max: int) -> float:
    """What a server with another draft size would gain on this traffic."""
    rounds = [step for request in _steps(n_max) for step in request]
    written = sum(1 + step.accepted for step in rounds)
    return written * round_ms(0) / sum(round_ms(step.drafted) for step in rounds)


def _check(served: ServedForecast, within: float) -> None:
    assert [forecast.drafting.n_max for forecast in served.forecasts] == [*range(1, LARGEST + 1)]
    for forecast in served.forecasts:
        shown, found = _speedup(forecast.drafting.n_max), forecast.speedup
        assert found.value == pytest.approx(shown, rel=within), forecast.drafting.n_max
        assert found.lo < shown < found.hi


def test_a_log_tells_what_each_smaller_draft_size_would_do(servers: ExitStack, tmp_path: Path) -> None:
    urls = _start(servers, gamma=LARGEST), _start(servers)
    served = ggufspec.whatif_served(url=urls, server_log=_log(tmp_path))
    _check(served, within=0.03)
    assert served.n_max == LARGEST
    assert served.best.drafting.n_max < LARGEST
    text = projections.of_server(served)
    assert f"restart with --spec-draft-n-max {served.best.drafting.n_max}" in text
    assert f"The server's γ {LARGEST} gives about {served.now.speedup.value:.2f}×" in text


@pytest.mark.parametrize("logs", [False, True])
def test_counters_tell_it_with_wider_intervals(servers: ExitStack, tmp_path: Path, logs: bool) -> None:
    answers = {} if logs else {"/metrics": _metrics()}
    urls = _start(servers, gamma=LARGEST, answers=answers), _start(servers)
    served = ggufspec.whatif_served(url=urls, server_log=_usual_log(tmp_path) if logs else None)
    _check(served, within=0.06)
    assert "counted by position" in served.basis[0]


def test_without_the_target_alone_the_servers_size_is_the_measure(servers: ExitStack, tmp_path: Path) -> None:
    url = _start(servers, gamma=LARGEST)
    shown = shell.done("whatif", "--url", url, "--server-log", str(_log(tmp_path)), "-o", "md")
    assert "speed-up" not in shown.stdout.splitlines()[0]
    assert f"as fast as γ {LARGEST} is: restart with" in shown.stdout
    assert "in their order, from the server's log" in shown.stderr
    table = shell.here("whatif", "--url", url, "--server-log", str(_log(tmp_path)), "-o", "csv")
    head = table.stdout.splitlines()[0]
    assert "tokens_per_s" in head
    assert "speedup" not in head


@pytest.mark.parametrize(
    ("settings", "message", "hint"),
    [
        ({"software": "vLLM", "gamma": 3}, "is not llama-server", "bench --url"),
        ({}, "0 servers of 1 drafts", "name the one that drafts"),
        ({"gamma": LARGEST, "has_metrics": False}, "does not tell its rounds", "--metrics"),
        *(
            (
                {
                    "gamma": LARGEST,
                    "answers": {
                        "/metrics": _metrics(),
                        "/slots": [{"speculative": True, "params": {"speculative.types": f"none,{method}"}}],
                    },
                },
                f"drafts with {method}",
                "ggufspec tune",
            )
            for method in ("draft-eagle3", "draft-mtp", "ngram-mod")
        ),
    ],
)
def test_what_tells_too_little_is_refused_by_name(
    servers: ExitStack, settings: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(GgufspecError, match=message) as caught:
        ggufspec.whatif_served(url=(_start(servers, **settings),))
    assert hint in (caught.value.hint or "")


def test_the_log_of_another_start_is_refused(servers: ExitStack, tmp_path: Path) -> None:
    with pytest.raises(GgufspecError, match="up to 5 tokens now, and up to 8 in its traffic so far"):
        ggufspec.whatif_served(url=(_start(servers, gamma=5),), server_log=_log(tmp_path))


def test_drafts_that_a_p_min_ends_are_refused(servers: ExitStack, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    sizes = [1 + number % LARGEST for number in range(200)]
    log.write_text("".join(f"| task 3 | accepted  0/ {size} draft tokens\n" for size in sizes))
    assert all(first != second for first, second in pairwise(sizes))
    with pytest.raises(GgufspecError, match="ends drafts early"):
        ggufspec.whatif_served(url=(_start(servers, gamma=LARGEST),), server_log=log)
