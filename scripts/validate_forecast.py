"""Check what ``ggufspec tune`` forecasts against what the same server then measures: tokens/s and speed-up.

python scripts/validate_forecast.py --work build/forecast                       all pairs and suites
python scripts/validate_forecast.py --work build/forecast --pair 2 --suite demo   one of them
python scripts/validate_forecast.py --work build/forecast --extra T D           one more pair of files
python scripts/validate_forecast.py --work build/forecast --short               as `tune --forecast` forecasts
python scripts/validate_forecast.py --work build/forecast --busy 1              beside one busy loop
python scripts/validate_forecast.py --work build/forecast --parallel            several users together

Forecast and bench take turns, --rounds times for each pair and suite: look ahead as ``tune`` does (traces,
costs timed anew, a calibration of a few runs, all in llama-server), then measure draft sizes and p_min as a
bench does. So what changes within minutes does not pass for an error of all forecasts. What was measured
stays in --work: an interrupted run of the script continues, and the table is printed from what is there. Run
it on a quiet machine, and append the table to docs/forecasting.md, also where it is worse than earlier ones.

For one configuration and round, e = ln(forecast / measured), and v is the variance of ln(measured) by the
bench's own loads: the variance of the means of its repeats, over their number. The error without the bench's
noise is sqrt(max(0, e^2 - v)). Columns give the median and the 95th percentile of it, over all draft sizes,
p_min and rounds. "covered" counts the printed intervals that hold the measured value. "by costs" counts
|e| <= 1.96 sqrt(c^2 + v), where c is the standard error that the forecast states for its costs, without the
spread of prompts: bench and forecast have the same prompts.

The last line takes each bench for the forecast of the next one of the same arms: no forecast can be nearer
than a measurement that is repeated.

With --busy N, N processes compute all the time. A forecast that is refused is counted, and has no errors.

With --parallel, tokens/s of all users together are forecast and measured for 1, 2, 4 and 8 users: of the
embedded pair, and of two pairs of random weights with simulated acceptance. Costs are timed with one
sequence, and corrected by runs of the server with one user. Where acceptance is simulated, the forecast draws
as many accepted tokens per round as the runs had: it is the server's time that is checked.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import terminal
from bench_max_time import busy_loops

from ggufspec import engines, paths, results, stats, tuning
from ggufspec.analysis import Arm, arms
from ggufspec.domain import Drafting, Method, Program, Role, RunSpec
from ggufspec.engines import InprocessEngine
from ggufspec.errors import InconclusiveError
from ggufspec.forecast import concurrency, profiles, trace
from ggufspec.forecast.costs import CostCurve
from ggufspec.forecast.trace import DraftTrace, TracedRun
from ggufspec.llama.install import installs
from ggufspec.measure import Block, RunPlan, Session, api, identify, prepare_session
from ggufspec.options import BenchOptions, TuneOptions
from ggufspec.results import ResultSet
from ggufspec.tuning import Plan, Prospect, TuningForecast

SUITES = ("demo", "general", "seven")
SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
P_MINS = (0.0, 0.5, 0.8)
WITH_P_MIN = (4, 7, 8, 16)  # draft sizes measured at every p_min, the others only at 0; DFlash: 7 at most
DEMO = paths.models_dir() / "demo"
HEAD = (
    *("pair", "suite", "acceptance: worst (points)", "tokens/s: median", "95th percentile"),
    *("speed-up: median", "95th percentile", "worst, noise and all", "at", "covered", "by costs"),
    *("refused", "rounds × repeats"),
)
USERS = (1, 2, 4, 8)
USERS_SIZES = (2, 5)  # γ: the drafts of eight users are batches of 48 tokens, the largest that are timed
USERS_PAIRS = (0, 3, 4)  # places in PAIRS: the embedded one and two of random weights
ACCEPTED = 0.7  # probability of a token, where acceptance is simulated
DRAWS = 200  # of simulated texts, among which the one is taken that accepted as many as was measured
USERS_HEAD = (
    *("pair", "users", "γ", "tokens/s: forecast", "measured", "error"),
    *("noise", "speed-up: forecast", "measured", "error"),
)
Z95 = 1.96


@dataclass(frozen=True, kw_only=True)
class Miss:
    """How far the forecast of one draft size and p_min lies from what was measured.

    Attributes:
        n_max: γ.
        p_min: as asked for.
        points: percentage points of acceptance.
        speedup: ln of forecast over measured.
        speedup_noise: variance of the bench's ln; see ``noise``.
        speedup_costs: standard error of the forecast's ln by its costs.
        rate: ln of forecast over measured tokens/s.
        rate_noise: as for the speed-up.
        covered: whether the printed interval holds the measured speed-up.
    """

    n_max: int
    p_min: float
    points: float
    speedup: float
    speedup_noise: float
    speedup_costs: float
    rate: float
    rate_noise: float
    covered: bool

    @property
    def fits_costs(self) -> bool:
        """Whether the stated error of the costs and the bench's noise allow the speed-up's error."""
        return abs(self.speedup) <= Z95 * math.hypot(self.speedup_costs, math.sqrt(self.speedup_noise))


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A pair that a script makes: its name, and the function that writes or finds its files.

    There is no second file where layers of the target draft.
    """

    name: str
    make: Callable[[Path], tuple[Path, Path | None]]
    method: Method = Method.DRAFT_MODEL


PAIRS = (
    Pair(name="embedded", make=lambda _: (DEMO / "target.gguf", DEMO / "drafter.gguf")),
    Pair(
        name="embedded, target in Q4_0",
        make=lambda folder: (quantized(DEMO / "target.gguf", folder, "Q4_0"), DEMO / "drafter.gguf"),
    ),
    Pair(
        name="embedded target, drafted for by itself in Q4_0",
        make=lambda folder: (DEMO / "target.gguf", quantized(DEMO / "target.gguf", folder, "Q4_0")),
    ),
    Pair(
        name="random weights, 12 and 4 layers",
        make=lambda folder: (random_model(folder, 12), random_model(folder, 4)),
    ),
    Pair(
        name="random weights of another seed, 24 and 2 narrow layers",
        make=lambda folder: (
            random_model(folder, 24, width=384, seed=7),
            random_model(folder, 2, width=384, seed=7),
        ),
    ),
    Pair(
        name="embedded, with its EAGLE-3 head",
        make=lambda _: (DEMO / "target.gguf", DEMO / "eagle3.gguf"),
        method=Method.DRAFT_EAGLE3,
    ),
    Pair(
        name="embedded target with a layer for MTP",
        make=lambda _: (DEMO / "mtp.gguf", None),
        method=Method.DRAFT_MTP,
    ),
    Pair(
        name="embedded, with its DFlash head",
        make=lambda _: (DEMO / "target.gguf", DEMO / "dflash.gguf"),
        method=Method.DRAFT_DFLASH,
    ),
)


def main() -> int:
    asked = _arguments()
    asked.work.mkdir(parents=True, exist_ok=True)
    os.environ["GGUFSPEC_DATA"] = str((asked.work / "data").absolute())  # its costs and benches are kept
    if asked.parallel:
        return _validate_users(asked)
    pairs = [*PAIRS]
    if asked.extra:
        target, drafter = asked.extra
        pairs.append(Pair(name=f"{target.stem} + {drafter.stem}", make=lambda _: (target, drafter)))
    chosen = pairs if asked.pair is None else [pairs[asked.pair - 1]]
    suites = SUITES if asked.suite is None else (asked.suite,)
    terminal.print_head(*HEAD, texts=2)
    everything: list[Miss] = []
    repeated: list[tuple[float, float]] = []
    refused = forecasts = 0
    with busy_loops(asked.busy):
        for pair in chosen:
            for suite in suites:
                rounds = [_step(pair, suite, asked, number) for number in range(asked.rounds)]
                misses = [miss for found in rounds if found is not None for miss in found]
                forecasts += len(rounds)
                refused += rounds.count(None)
                everything += misses
                benches = [_name(pair, suite, asked, number) for number in range(asked.rounds)]
                stored = [results.load(name) for name in benches if name in results.ids()]
                repeated += [errors for before, after in pairwise(stored) for errors in _apart(before, after)]
                terminal.print_row(*_cells(pair.name, suite, misses, rounds.count(None), asked))
    if not everything:
        sys.exit("all forecasts were refused")
    covered = sum(miss.covered for miss in everything)
    print(
        f"\n{len(everything)} configurations, without the bench's own noise: tokens/s "
        f"{_percentiles([without_noise(miss.rate, miss.rate_noise) for miss in everything])}, speed-up "
        f"{_percentiles([without_noise(miss.speedup, miss.speedup_noise) for miss in everything])} "
        f"(goal: 2.0% and 5.0%); {covered} of {len(everything)} intervals cover "
        f"({covered / len(everything):.1%}), {refused} of {forecasts} forecasts refused"
    )
    if repeated:
        rates, speedups = zip(*repeated, strict=True)
        print(
            f"{len(repeated)} configurations of two benches, the first as the forecast of the second: "
            f"tokens/s {_percentiles(rates)}, speed-up {_percentiles(speedups)}"
        )
    return 0


def _apart(before: ResultSet, after: ResultSet) -> Iterator[tuple[float, float]]:
    """Yield how far apart two benches measured the tokens/s and the speed-up of each drafting arm."""
    earlier = {arm.spec: arm for arm in arms.group(before) if arm.gain is not None and arm.rate is not None}
    for arm in arms.group(after):
        other = earlier.get(arm.spec)
        if other is None or arm.gain is None or arm.rate is None or arm.baseline is None:
            continue
        assert other.gain is not None  # as in ``earlier``
        assert other.rate is not None
        speedup = math.log(other.gain.ratio.value / arm.gain.ratio.value)
        yield (
            without_noise(math.log(other.rate.value / arm.rate.value), noise(arm.rates)),
            without_noise(speedup, noise(arm.rates, arm.baseline.rates)),
        )


def without_noise(error: float, variance: float) -> float:
    """Return the size of a logarithm's error without the variance of what it is compared with."""
    return math.sqrt(max(0.0, error**2 - variance))


def noise(rates: stats.Rates, baseline: stats.Rates | None = None) -> float:
    """Return the variance of a bench's mean log rate, or ratio of rates, by the means of its repeats.

    Repeats have loads of their own. Prompts do not count: forecast and bench have the same.
    """
    means = _repeat_means(rates)
    if baseline is not None:
        others = _repeat_means(baseline)
        means = {repeat: mean - others[repeat] for repeat, mean in means.items() if repeat in others}
    return statistics.variance(means.values()) / len(means) if len(means) > 1 else 0.0


def _repeat_means(rates: stats.Rates) -> dict[int, float]:
    logs: dict[int, list[float]] = {}
    for (_, repeat), rate in rates.items():
        logs.setdefault(repeat, []).append(math.log(rate))
    return {repeat: statistics.fmean(of_repeat) for repeat, of_repeat in logs.items()}


def _percentiles(errors: Sequence[float]) -> str:
    median, high = percentiles(errors)
    return f"{median:.1%} (median) and {high:.1%} (95th percentile)"


def percentiles(errors: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 95th percentile."""
    median, high = np.percentile(np.array(errors), [50, 95])
    return float(median), float(high)


def _step(pair: Pair, suite: str, asked: argparse.Namespace, number: int) -> list[Miss] | None:
    """Return the errors of one round of a pair and suite; None where the forecast was refused.

    What is stored is not measured again.
    """
    name = _name(pair, suite, asked, number)
    file = asked.work / f"{name}.json"
    if not file.exists():
        target, drafter = pair.make(asked.work)
        plan = tuning.identify(tuning.prepare_tuning(_request(target, drafter, suite, asked, pair.method)))
        began = time.monotonic()
        misses: list[Miss] | None = None
        try:
            outlook = tuning.outlook(replace(plan, fresh=True, forecast_only=asked.short))
        except InconclusiveError as error:
            print(f"{pair.name}, {suite}, round {number + 1}: {error}", file=sys.stderr)
        else:
            seconds = time.monotonic() - began
            print(f"{pair.name}, {suite}, round {number + 1}: {seconds:.0f} s ahead", file=sys.stderr)
            for note in outlook.notes:
                print(f"  {note}", file=sys.stderr)
            misses = _misses(plan, outlook, name, asked.repeats)
        records = None if misses is None else [asdict(miss) for miss in misses]
        file.write_text(json.dumps(records, indent=1), encoding="utf-8")
    stored = json.loads(file.read_text(encoding="utf-8"))
    return None if stored is None else [Miss(**record) for record in stored]


def _name(pair: Pair, suite: str, asked: argparse.Namespace, number: int) -> str:
    """Return the name of a round's bench."""
    name = f"{pair.name}-{suite}-{asked.tokens}-{asked.repeats}-{asked.per_category}"
    name += f"{'-short' * asked.short}{f'-busy{asked.busy}' * (asked.busy > 0)}-{number}"
    return "".join(letter if letter.isalnum() else "-" for letter in name).lower()


def _request(
    target: Path, drafter: Path | None, suite: str, asked: argparse.Namespace, method: Method
) -> TuneOptions:
    return TuneOptions(
        target=target,
        draft_model=drafter,
        suite=suite,
        chat=False,
        draft=SIZES,
        p_min=P_MINS,
        n_predict=asked.tokens,
        threads=asked.threads,
        per_category=asked.per_category,
        method=method,
        max_time=None,
    )


def _misses(plan: Plan, outlook: TuningForecast, name: str, repeats: int) -> list[Miss]:
    """Measure beside the target alone what was forecast; the bench ``name`` is continued where it exists."""
    chosen = {
        prospect.arm: prospect
        for prospect in outlook.prospects
        if prospect.overall.drafting.n_max in WITH_P_MIN or prospect.overall.drafting.p_min == 0
    }
    (block,) = plan.blocks
    suite = RunPlan(
        blocks=(
            Block(
                arms=tuple(
                    replace(arm, n_predict=outlook.n_predict)
                    for arm in block.arms
                    if arm.drafting is None or arm in chosen
                )
            ),
        ),
        prompts=outlook.prompts,
        warmup_prompts=plan.session.suite.warmup_prompts[:1],
        repeats=repeats,
        loads=plan.session.suite.loads and repeats,
        seed=plan.session.suite.seed,
    )
    session = replace(plan.session, suite=suite)
    begun = name in results.ids()
    store = api.begin(
        session,
        command=("validate_forecast",),
        name=None if begun else name,
        resume=name if begun else None,
    )
    with session.engine:
        *_, measured = api.record(session, store)
    drafting = [arm for arm in arms.group(measured) if arm.role is Role.DRAFTING]
    return [
        miss
        for arm in drafting
        if (prospect := outlook.prospect(arm.spec)) is not None and (miss := _miss(arm, prospect)) is not None
    ]


def _miss(arm: Arm, prospect: Prospect) -> Miss | None:
    """Compare one arm with its forecast; None where no run of it ended well."""
    expected = prospect.overall
    if arm.gain is None or arm.rate is None or arm.baseline is None:
        return None
    measured = arm.gain.ratio.value
    drafted = sum(n for n in arm.good.column("n_drafted") if n is not None)
    accepted = sum(n for n in arm.good.column("n_accepted") if n is not None)
    lo, hi = expected.speedup.lo, expected.speedup.hi
    return Miss(
        n_max=expected.drafting.n_max,
        p_min=expected.drafting.p_min,
        points=100 * ((expected.accept_rate or 0.0) - (accepted / drafted if drafted else 0.0)),
        speedup=math.log(expected.speedup.value / measured),
        speedup_noise=noise(arm.rates, arm.baseline.rates),
        speedup_costs=float(np.linalg.norm(expected.speedup_errors)),
        rate=math.log(expected.tokens_per_s.value / arm.rate.value),
        rate_noise=noise(arm.rates),
        covered=lo is not None and hi is not None and lo <= measured <= hi,
    )


@dataclass(frozen=True, kw_only=True)
class UsersMiss:
    """The tokens/s of all users together, forecast and measured; ``n_max`` 0 is the target alone.

    ``noise`` is the variance of the measured ln, see ``noise``.
    """

    users: int
    n_max: int
    forecast: float
    measured: float
    forecast_speedup: float
    speedup: float
    noise: float = 0.0


def _validate_users(asked: argparse.Namespace) -> int:
    """Print the errors for several users; what is stored is not measured again."""
    terminal.print_head(*USERS_HEAD)
    everything: list[UsersMiss] = []
    chosen = USERS_PAIRS if asked.pair is None else (asked.pair - 1,)
    for pair in (PAIRS[place] for place in chosen):
        letters = (letter if letter.isalnum() else "-" for letter in f"users-{pair.name}-{asked.tokens}")
        file = asked.work / f"{''.join(letters).lower()}-{asked.repeats}.json"
        if not file.exists():
            target, drafter = pair.make(asked.work)
            assert drafter is not None
            misses = _users_misses(target, drafter, asked, simulated="random" in pair.name)
            file.write_text(json.dumps([asdict(miss) for miss in misses], indent=1), encoding="utf-8")
        misses = [UsersMiss(**record) for record in json.loads(file.read_text(encoding="utf-8"))]
        everything += misses
        for miss in misses:
            terminal.print_row(
                *(pair.name, miss.users, miss.n_max or "", f"{miss.forecast:.1f}", f"{miss.measured:.1f}"),
                *(f"{miss.forecast / miss.measured - 1:+.1%}", f"{math.sqrt(miss.noise):.1%}"),
                *(f"{miss.forecast_speedup:.2f}", f"{miss.speedup:.2f}"),
                f"{miss.forecast_speedup / miss.speedup - 1:+.1%}",
            )
    errors = [without_noise(math.log(miss.forecast / miss.measured), miss.noise) for miss in everything]
    print(
        f"\ntokens/s of all users, without the bench's own noise: {_percentiles(errors)} "
        f"(goal: 5.0% and 10.0%)"
    )
    return 0


def _users_misses(
    target: Path, drafter: Path, asked: argparse.Namespace, *, simulated: bool
) -> list[UsersMiss]:
    request = BenchOptions(
        target=target,
        draft_model=drafter,
        suite="demo",
        chat=False,
        engine="server",
        draft=USERS_SIZES,
        parallel=USERS,
        n_predict=asked.tokens,
        threads=asked.threads,
        repeats=asked.repeats,
        synthetic_accept=ACCEPTED if simulated else None,
    )
    session = identify(prepare_session(request))
    traces, curve = _look_at_users(session, request)
    store = api.begin(session, command=("validate_forecast", "--parallel"))
    with session.engine:
        *_, measured = api.record(session, store)
    misses = []
    for arm in arms.group(measured):
        load = arm.spec.traffic
        if arm.rate is None or load is None:
            continue
        size = arm.draft_size
        run = TracedRun(
            drafting=Drafting(n_max=size or USERS_SIZES[0]),
            n_predict=asked.tokens,
            build=session.install.build_number,
        )
        views = traces
        if simulated and size:
            assert arm.acceptance is not None
            assert arm.acceptance.mean_accepted_length is not None
            views = _accepting(traces, run, arm.acceptance.mean_accepted_length)
        by_prompt = {view.prompt_id: view for view in views}
        (expected,) = concurrency.forecasts_of_users(
            [by_prompt[prompt.id] for prompt in load.prompts],
            curve,
            [run],
            users=load.users,
            n_requests=load.n_requests,
        )
        misses.append(
            UsersMiss(
                users=load.users,
                n_max=size or 0,
                forecast=(expected.served if size else expected.served_alone).tokens_per_s,
                measured=arm.rate.value,
                forecast_speedup=expected.speedup if size else 1.0,
                speedup=arm.gain.ratio.value if arm.gain else 1.0,
                noise=noise(arm.rates),
            )
        )
    return misses


def _accepting(traces: Sequence[DraftTrace], run: TracedRun, length: float) -> list[DraftTrace]:
    """Return traces whose drafts are accepted at random, with so many tokens per round as were measured.

    A few hundred rounds are too few to tell the costs of a server from luck. So of many draws, the one is
    taken whose tokens per round are the nearest to those of the measured arm.

    Args:
        traces: of the prompts.
        run: of the server, without p_min.
        length: tokens per round that were measured.
    """

    def draw(seed: int) -> list[DraftTrace]:
        dice = random.Random(seed)
        return [replace(text, match=tuple(dice.random() < ACCEPTED for _ in text.match)) for text in traces]

    def off(seed: int) -> float:
        rounds = [step for drawn in draw(seed) for step in trace.steps(drawn, run)]
        return abs(1 + statistics.fmean(step.accepted for step in rounds) - length)

    return draw(min(range(DRAWS), key=off))


def _look_at_users(session: Session, request: BenchOptions) -> tuple[list[DraftTrace], CostCurve]:
    """Return the traces of all prompts, and the costs as ``tune`` corrects them by runs of one user."""
    block = session.suite.blocks[0]
    alone, drafting = block.arms[0], block.arms[1]
    load = alone.traffic
    assert load is not None
    assert drafting.drafter is not None
    tokens = trace.needed(request.n_predict, max(USERS_SIZES), Program.SERVER)
    spec: RunSpec = replace(alone, traffic=None, n_predict=tokens)
    with engines.make("inprocess", session.install) as engine:
        assert isinstance(engine, InprocessEngine)
        texts = [*profiles.traces(engine, spec, load.prompts, [drafting.drafter])]
    plan = tuning.identify(
        tuning.prepare_tuning(
            TuneOptions(
                target=request.target,
                draft_model=request.draft_model,
                suite="demo",
                chat=False,
                draft=(*USERS_SIZES, max(USERS) * (max(USERS_SIZES) + 1) - 1),
                p_min=0.0,
                n_predict=request.n_predict,
                threads=request.threads,
                method="draft-model",
                max_time=None,
            )
        )
    )
    outlook = tuning.outlook(plan)
    assert outlook.calibration is not None
    return [text.by_drafter[0] for text in texts], outlook.calibration.curve


def _cells(
    pair: str, suite: str, misses: Sequence[Miss], refused: int, asked: argparse.Namespace
) -> tuple[object, ...]:
    shape = f"{asked.rounds} × {asked.repeats}"
    if not misses:
        return pair, suite, *[""] * (len(HEAD) - 4), refused, shape
    worst = max(misses, key=lambda miss: abs(miss.speedup))
    p_min = f", p-min {worst.p_min:g}" if worst.p_min else ""
    rate = percentiles([without_noise(miss.rate, miss.rate_noise) for miss in misses])
    speedup = percentiles([without_noise(miss.speedup, miss.speedup_noise) for miss in misses])
    exact = [abs(miss.points) for miss in misses if miss.p_min == 0]
    return (
        *(pair, suite, f"{max(exact):.2f}" if exact else ""),
        *(f"{value:.1%}" for value in (*rate, *speedup)),
        *(f"{math.expm1(worst.speedup):+.1%}", f"γ = {worst.n_max}{p_min}"),
        *(f"{sum(miss.covered for miss in misses)}/{len(misses)}",),
        *(f"{sum(miss.fits_costs for miss in misses)}/{len(misses)}", refused, shape),
    )


def random_model(folder: Path, layers: int, *, width: int = 512, seed: int = 0) -> Path:
    """Write a model of random weights; one with fewer layers agrees with one with more in part."""
    made = folder / f"random-{layers}-{width}-{seed}.gguf"
    if not made.exists():
        heads = str(width // 64)
        shape = ["--embd", str(width), "--ff", str(width * 11 // 4), "--heads", heads, "--kv-heads", heads]
        script = Path(__file__).with_name("make_random_gguf.py")
        words: list[str | Path] = [sys.executable, script, *shape, "--vocab", "4000", "--seed", str(seed)]
        words += ["--layers", str(layers), "--quant", "Q8_0", "-o", made]
        subprocess.run(words, check=True, capture_output=True, timeout=600)
    return made


def quantized(model: Path, folder: Path, kind: str) -> Path:
    """Return a copy of a model in another quantization."""
    made = folder / f"{model.stem}-{kind}.gguf"
    if not made.exists():
        plain = installs.find_install(None).executable(Program.PLAIN).path
        quantize = plain.with_name("llama-quantize")
        words: list[str | Path] = [quantize, "--allow-requantize", model, made, kind]
        subprocess.run(words, check=True, capture_output=True, timeout=600)
    return made


def _names() -> Iterator[str]:
    yield from (f"{number}: {pair.name}" for number, pair in enumerate(PAIRS, 1))


def _arguments() -> argparse.Namespace:
    parser = terminal.parser(__doc__)
    parser.epilog = f"pairs: {'; '.join(_names())}"
    parser.add_argument("--work", type=Path, required=True, help="folder for pairs, costs, runs and results")
    parser.add_argument("--pair", type=int, metavar="N", help="only this pair, from 1")
    parser.add_argument("--suite", choices=SUITES, help="only this suite")
    parser.add_argument("-t", "--threads", type=int, help="as in a bench")
    parser.add_argument("-n", "--tokens", type=int, default=120, help="of each run, by default 120")
    parser.add_argument("-r", "--repeats", type=int, default=3, help="loads of each in a bench, by default 3")
    parser.add_argument("--rounds", type=int, default=2, help="forecasts and benches in turn, by default 2")
    parser.add_argument("--short", action="store_true", help="forecast as `tune --forecast` does")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="let N processes compute meanwhile")
    parser.add_argument("--per-category", type=int, default=2, help="prompts of each category, by default 2")
    parser.add_argument("--parallel", action="store_true", help="forecast and measure 1, 2, 4 and 8 users")
    parser.add_argument("--extra", type=Path, nargs=2, metavar=("TARGET", "DRAFTER"), help="one more pair")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
