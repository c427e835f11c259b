"""Does the target alone run as fast by every way of measuring it?

    scripts/check_definitions.py [--repeats 20] [-n 250] [-t 1]

The embedded target generates as many tokens by the plain program (engine `binary`), by llama-server
(engine `server`) and in llama-bench's test `tg`, one after the other and again, in one run. Tokens/s of each
with their 95 % intervals over repeats, and their ratios to `binary`, paired by repeat. llama-bench leaves
sampling out; so the last row adds what the plain program says that sampling takes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from ggufspec import engines, proc, stats
from ggufspec.domain import Prompt, RunSpec, Sample, Status
from ggufspec.llama.install.installs import Install, program_environment
from ggufspec.measure import request


def main() -> int:
    options = _options()
    spec, install = _spec(options.n_predict, options.threads)
    rates: dict[str, dict[stats.Cell, float]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        engines.make("binary", install) as binary,
        engines.make("server", install) as server,
    ):
        log = Path(folder)
        for repeat in range(-1, options.repeats):  # the first warms up
            plain, served = (_good(engine.measure(spec, log / "run").sample) for engine in (binary, server))
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
    return 0


def _spec(n_predict: int, threads: int | None) -> tuple[RunSpec, Install]:
    asked = request.Request(pair="demo", prompt=("Once upon a time",), n_predict=n_predict, threads=threads)
    session = request.prepare_session(asked)
    (prompt,) = session.suite.prompts
    return session.suite.blocks[0].on(Prompt(id=prompt.id, text=prompt.text))[0], session.install


def _tg(install: Install, spec: RunSpec, scratch: Path) -> float:
    """Return llama-bench's tokens/s for generating as many tokens after an empty context."""
    argv = [str(install.root / "llama-bench"), "-m", str(spec.pair.target.path), "-p", "0"]
    argv += ["-n", str(spec.n_predict), "-t", str(spec.threads), "-r", "1", "-o", "json"]
    _, out, err = proc.capture(argv, env=program_environment(scratch), cwd=scratch, timeout_s=600)
    if not out:
        sys.exit(f"llama-bench said nothing: {err[-500:]}")
    return float(json.loads(out)[0]["avg_ts"])


def _good(sample: Sample) -> Sample:
    if sample.status is not Status.OK:
        sys.exit(f"a run ended as {sample.status.value}")
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
