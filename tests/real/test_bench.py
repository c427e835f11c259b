"""The main job on real programs and the embedded pair."""

from __future__ import annotations

import functools
import json
import platform
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec import machine, results
from ggufspec.analysis import arms
from ggufspec.domain import Offload, Program, Prompt, Role, RunResult, Status, TextVerdict
from ggufspec.engines import InprocessEngine
from ggufspec.engines.binary import BinaryEngine
from ggufspec.forecast import profiles, trace
from ggufspec.llama.install.installs import Install
from ggufspec.measure import api
from ggufspec.results import ResultSet
from tests.support import embedded, shell
from tests.support.hub_client import PAIR
from tests.support.hub_server import Hub
from tests.support.walks import traced_run

TOKENS = 48
SIZES = (3, 8)


@functools.cache
def _bench(root: Path, engine: str) -> ResultSet:
    """Measure the embedded pair with a llama.cpp, once for all tests."""
    return api.bench(
        pair="demo",
        llama=root,
        engine=engine,
        draft=SIZES,
        n_predict=TOKENS,
        per_category=1,
        repeats=1,
        warmup=0,
        threads=1,
    )


def _counts(bench: ResultSet) -> dict[tuple[str, int], tuple[int | None, int | None]]:
    return {
        (run.spec.prompt.id, run.spec.drafting.n_max): (run.sample.n_drafted, run.sample.n_accepted)
        for run in bench.current
        if run.spec.drafting
    }


@pytest.mark.takes(8, together="bench")
@pytest.mark.parametrize("engine", ["binary", "binary-simple"])
def test_every_arm_is_measured_and_the_text_is_unchanged(llama: Install, engine: str) -> None:
    bench = _bench(llama.root, engine)
    assert {run.sample.status for run in bench.current} == {Status.OK}
    target, drafter, *drafting = arms.group(bench)
    assert [arm.draft_size for arm in drafting] == [*SIZES]
    for arm in drafting:
        assert 0.3 < arm.acceptance.accept_rate <= 1
        assert sum(arm.compared.values()) >= len(arm.compared) - 1
        assert len(arm.compared) == 4  # prompts, one of each category
    assert target.rate is not None
    assert drafter.rate is not None


@pytest.mark.takes(8, together="bench")
def test_the_table_says_what_the_raw_logs_say(llama: Install) -> None:
    """Read every kept log again with nothing but a regular expression, and compare number by number."""
    bench = _bench(llama.root, "binary")
    rates: dict[tuple[Role, int | None], list[float]] = {}
    for run in bench.current:
        size = run.spec.drafting.n_max if run.spec.drafting else None
        rates.setdefault((run.spec.role, size), []).append(
            _rate_in_log(run, bench.folder / "logs" / f"{run.log}.err")
        )
    for arm in arms.group(bench):
        by_hand = rates[arm.role, arm.draft_size]
        product = 1.0
        for rate in by_hand:
            product *= rate
        assert arm.rate.value == pytest.approx(product ** (1 / len(by_hand)))


def _rate_in_log(run: RunResult, log: Path) -> float:
    text = log.read_text()
    if run.spec.drafting is None:
        ((eval_ms, runs),) = re.findall(r"  eval time = +([\d.]+) ms / +(\d+) runs", text)
        (sampling_ms,) = re.findall(r" sampling time = +([\d.]+) ms", text)
        assert run.sample.gen_tokens == int(runs)
        return int(runs) / ((float(eval_ms) + float(sampling_ms)) / 1000)
    ((tokens, seconds),) = re.findall(r"^decoded +(\d+) tokens in +([\d.]+) seconds", text, re.MULTILINE)
    counts = {name: int(value) for name, value in re.findall(r"^(n_\w+) += (\d+)$", text, re.MULTILINE)}
    sample = run.sample
    assert (sample.n_draft, sample.gen_tokens) == (counts["n_draft"], counts["n_predict"])
    assert (sample.n_drafted, sample.n_accepted) == (counts["n_drafted"], counts["n_accept"])
    return (int(tokens) - 1) / float(seconds)


@pytest.mark.alone  # llama.cpp uses all cores
@pytest.mark.skipif(platform.system() != "Linux", reason="only Linux lets a library flush the log")
def test_no_log_lacks_its_end(llama: Install, tmp_path: Path) -> None:
    """Without flushing, one in six lacked it when all cores computed: all of 24 would have it once in 80."""
    spec = embedded.spec(Role.DRAFTER, Offload())
    spec = replace(spec, threads=machine.usable_cores(), n_predict=120)
    runs = [BinaryEngine(install=llama).measure(spec, tmp_path / str(number)) for number in range(24)]
    assert {run.sample.status for run in runs} == {Status.OK}


@pytest.mark.takes(8, together="bench")
def test_acceptance_of_2024_and_of_today_agree(llama: Install, legacy: Install) -> None:
    today, then = _counts(_bench(llama.root, "binary")), _counts(_bench(legacy.root, "binary"))
    assert today.keys() == then.keys()
    prompts = dict.fromkeys(run.spec.prompt for run in _bench(llama.root, "binary").current)
    sure = _sure_counts(llama, [*prompts])
    assert sure
    assert {key: today[key] for key in sure} == {key: then[key] for key in sure}


def _sure_counts(llama: Install, suite: Sequence[Prompt]) -> set[tuple[str, int]]:
    """Return the prompts and draft sizes whose counts no near-tie can change."""
    spec = embedded.spec(Role.DRAFTING, Offload().on_processor)
    assert spec.draft_source is not None
    long = replace(spec.baseline, n_predict=trace.needed(TOKENS, max(SIZES), Program.TREE))
    sure = set()
    with InprocessEngine(install=llama, timeout_s=120) as library:
        for texts in profiles.traces(library, long, suite, [spec.draft_source]):
            for size in SIZES:
                known = trace.certainty(
                    texts.by_drafter[0], traced_run(n_max=size, program=Program.TREE, n_predict=TOKENS)
                )
                if known is not None and known.is_sure:
                    sure.add((texts.prompt.id, size))
    return sure


# The five-minute path on real programs: fetch a pair from a Hub, then bench what was fetched


def test_a_fetched_pair_is_the_next_benchs_pair(hub: Hub, llama: Install) -> None:
    shell.done("fetch", "--quiet", *PAIR)
    quick = (
        *("-p", "Q: Who is Anna?\nA:", "-n", "24", "-r", "1", "-t", "1", "--warmup", "0"),
        *("--llama", str(llama.root)),
    )
    done = shell.done("bench", *quick, "-o", "json")
    assert "the last fetched pair" in done.stderr
    rows = json.loads(done.stdout)
    assert [(row["role"], row["status"]) for row in rows] == [
        (role, Status.OK.value) for role in ("target", "drafter", "drafting")
    ]
    # this Hub's target and drafter are one model under two names: only near-ties reject or change tokens
    assert rows[2]["accept_rate"] > 0.5
    (drafting,) = (run for run in results.load(results.ids()[0]).current if run.spec.role is Role.DRAFTING)
    assert drafting.text_identical or (
        drafting.difference is not None and drafting.difference.verdict is TextVerdict.NEAR_TIE
    )


# A pasted command on real programs: it drafts as it says, and is judged beside the target alone


DEMO = Path(__file__).parents[2] / "models" / "demo"


def test_a_compose_files_server_is_measured_with_and_without_drafter(llama: Install, tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(f"""\
services:
  llama:
    image: ghcr.io/ggml-org/llama.cpp:server
    command: -m /models/target.gguf -md /models/drafter.gguf --draft-max 5 -c 1024 -fa
    volumes: ["{DEMO}:/models:ro"]
    environment: [LLAMA_ARG_THREADS=1, HF_TOKEN=hf_SEEDEDSEEDEDSEEDED123]
""")
    texts = ("-p", "Once upon a time", "-n", "48", "-r", "1", "--warmup", "0")
    done = shell.ggufspec("bench", *texts, "--name", "mine", "--from", str(file), llama=llama.root)
    assert done.returncode == 0, done.stderr
    bench = results.load("mine")
    assert bench.meta.engine == "server"
    assert {run.spec.role for run in bench.current} == {Role.TARGET, Role.DRAFTER, Role.DRAFTING}
    (drafting,) = (run for run in bench.current if run.spec.drafting is not None)
    assert (drafting.spec.drafting.n_max, drafting.spec.context, drafting.spec.threads) == (5, 1024, 1)
    assert (drafting.sample.n_accepted or 0) > 0
    assert "translated: --draft-max 5 is --spec-draft-n-max 5" in done.stderr
    assert "SEEDED" not in done.stdout + done.stderr
