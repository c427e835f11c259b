"""Does the target alone run as fast by every way of measuring it?

    scripts/check_definitions.py [--repeats 20] [-n 250] [-t 1]

The embedded target generates as many tokens by the plain program (engine `binary`), by llama-server
(engine `server`) and in llama-bench's test `tg`, one after the other and again, in one run. Tokens/s of each
with their 95 % intervals over repeats, and their ratios to `binary`, paired by repeat. llama-bench leaves
sampling out; so the last row adds what the plain program says that sampling takes.

Then, on a prompt of 1,000 tokens, how much of the prompt falls into the window for decoding of each drafting
program: the seconds that target and drafter alone take for it, less the window for encoding, as a share of
the window for decoding. On a processor it should be below 1 %; a negative share says that the window for
encoding holds other work.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ggufspec import engines, proc, stats
from ggufspec.domain import Program, Prompt, Role, RunSpec, Sample, Status
from ggufspec.llama.install.environment import program_environment
from ggufspec.llama.install.installs import Install
from ggufspec.measure import prepare_session
from ggufspec.options import BenchOptions

_ATTEMPTS = 6
_LONG_CONTEXT = 2048  # tokens; longer than the embedded pair was trained for, which changes no time


def main() -> int:
    options = _options()
    (spec, *_), install = _block(options.n_predict, options.threads, "Once upon a time")
    rates: dict[str, dict[stats.Cell, float]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        engines.make("binary", install) as binary,
        engines.make("server", install) as server,
    ):
        log = Path(folder)
        for repeat in range(-1, options.repeats):  # the first warms up
            plain, served = (_measure(engine, spec, log / "run") for engine in (binary, server))
            bench_s = options.n_predict / _tg(install, spec, log)
            sampling_s = (plain.sampling_s or 0.0) * options.n_predict / (plain.gen_tokens or 1)
            if repeat < 0:
                continue
            for name, rate in (
                ("binary", plain.decode_tps),
                ("server", served.decode_tps),
                ("llama-bench tg", options.n_predict / bench_s),
                ("llama-bench tg, with sampling", options.n_predict / (bench_s + sampling_s)),
            ):
                assert rate is not None
                rates.setdefault(name, {})["prompt", repeat] = rate
    print(f"{'':30}  {'tokens/s':24}  over binary")
    for name, each in rates.items():
        speed, effect = stats.mean_rate(each), stats.paired_effect(each, rates["binary"])
        assert speed is not None
        assert effect is not None
        print(f"{name:30}  {_shown(speed, 1):24}  {_shown(effect.ratio, 4)}")
    print(f"\n{'prompt of 1,000 tokens':30}  in the window for decoding, median [quartiles]")
    for program, shares in _prompt_shares(options).items():
        low, middle, high = statistics.quantiles(shares, n=4)
        print(f"{program:30}  {middle:+.2%} [{low:+.2%}, {high:+.2%}]")
    return 0


def _prompt_shares(options: argparse.Namespace) -> dict[str, list[float]]:
    """Return the prompt's share of the window for decoding, by engine, one for each repeat.

    The models alone are measured before and after each drafting run, and their mean counts: a drift of the
    machine's speed cancels.
    """
    words = "Once upon a time there was a little girl who lived with her mother in a house near the wood. "
    block, install = _block(options.n_predict, options.threads, words * 37, context=_LONG_CONTEXT)
    target, drafter, drafting = (
        next(spec for spec in block if spec.role is role)
        for role in (Role.TARGET, Role.DRAFTER, Role.DRAFTING)
    )
    shares: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "run"
        for name in ("binary", "binary-simple"):
            with engines.make(name, install) as engine:
                for _ in range(options.repeats):
                    before = [_measure(engine, spec, log) for spec in (target, drafter)]
                    run = _measure(engine, drafting, log)
                    after = [_measure(engine, spec, log) for spec in (target, drafter)]
                    prompt_s = sum(map(_prompt_s, (*before, *after))) / 2
                    if run.program is Program.TREE:  # evaluates the prompt's last token by itself
                        prompt_s += sum(1 / (one.decode_tps or 1) for one in (before[0], after[0])) / 2
                    share = (prompt_s - _prompt_s(run)) / (run.gen_s or 1)
                    shares.setdefault(name, []).append(share)
    return shares


def _prompt_s(sample: Sample) -> float:
    assert sample.prompt_tokens is not None
    assert sample.prompt_tps is not None
    return sample.prompt_tokens / sample.prompt_tps


def _block(
    n_predict: int, threads: int | None, text: str, *, context: int | None = None
) -> tuple[Sequence[RunSpec], Install]:
    asked = BenchOptions(pair="demo", prompt=(text,), n_predict=n_predict, threads=threads, ctx=context)
    session = prepare_session(asked)
    (prompt,) = session.suite.prompts
    return session.suite.blocks[0].on(Prompt(id=prompt.id, text=prompt.text)), session.install


def _tg(install: Install, spec: RunSpec, scratch: Path) -> float:
    """Return llama-bench's tokens/s for generating as many tokens after an empty context."""
    argv = [str(install.root / "llama-bench"), "-m", str(spec.pair.target.path), "-p", "0"]
    argv += ["-n", str(spec.n_predict), "-t", str(spec.threads), "-r", "1", "-o", "json"]
    _, out, err = proc.capture(argv, env=program_environment(scratch), cwd=scratch, timeout_s=600)
    if not out:
        sys.exit(f"llama-bench said nothing: {err[-500:]}")
    return float(json.loads(out)[0]["avg_ts"])


def _measure(engine: engines.Engine, spec: RunSpec, log: Path) -> Sample:
    """Return the sample of a run; one whose log llama.cpp truncated is repeated."""
    for _ in range(_ATTEMPTS):
        sample = engine.measure(spec, log).sample
        if sample.status is not Status.SUMMARY_LOST:
            break
    if sample.status is not Status.OK:
        sys.exit(f"a run of {engine.name} ended as {sample.status.value}")
    return sample


def _shown(estimate: stats.Estimate, digits: int) -> str:
    if estimate.lo is None or estimate.hi is None:  # as "binary over binary" has none
        return f"{estimate.value:.{digits}f}"
    return f"{estimate.value:.{digits}f} [{estimate.lo:.{digits}f}, {estimate.hi:.{digits}f}]"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("-n", "--n-predict", type=int, default=250)
    parser.add_argument("-t", "--threads", type=int)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
