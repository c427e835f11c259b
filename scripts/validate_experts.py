"""Compare what batches of a mixture are forecast to take with what they take, at 1 to 16 tokens.

    python scripts/validate_experts.py [--threads 1] [--repeats 3]

The small trained mixture of the tests runs in llama.cpp's library, on the processor. The experts that its
texts need are counted; the host's memory is read here. Everything else is from its header and
``forecast/costs/roofline.py``. Its fixed times are those of published runs, where many threads meet after
each operation; beside them are the forecasts without, since one thread meets nobody.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, cast

import terminal

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ggufspec import engines, machine, prompts  # noqa: E402
from ggufspec.domain import ModelFile, ModelRun, Offload, Pair, Role  # noqa: E402
from ggufspec.forecast import costs, profiles, whatif  # noqa: E402
from ggufspec.llama.install import installs  # noqa: E402
from ggufspec.modelfiles import gguf  # noqa: E402
from tests.support import embedded  # noqa: E402

if TYPE_CHECKING:
    from ggufspec.engines import InprocessEngine

MIXTURE = ROOT / "tests" / "models" / "mixture.gguf"
_BATCHES = range(1, 17)
_TEXTS, _TOKENS = 4, 120


def main() -> None:
    parser = terminal.parser(__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    offload = Offload(target=ModelRun(layers=0))
    spec = replace(
        embedded.spec(Role.TARGET, offload),
        pair=Pair(name="mixture", target=ModelFile(filename=MIXTURE.name, path=MIXTURE), draft=None),
        n_predict=_TOKENS,
        threads=args.threads,
    )
    texts = []
    with engines.make("inprocess", installs.find_install(None), timeout_s=120) as made:
        engine = cast("InprocessEngine", made)
        for prompt in prompts.suite("demo").prompts[:_TEXTS]:
            text = replace(spec, prompt=prompt)
            trace = engine.trace(text, ())
            texts.append(engine.experts(text, trace.written.tokens).layers)
        depth = len(trace.prompt)
        measured = profiles.measure_curve(
            engine, text, None, batches=_BATCHES, depths=(depth,), repeats=args.repeats
        ).curve
    card = gguf.read_card(MIXTURE)
    use, bandwidth = costs.count_experts(texts, card.n_experts), machine.read_bandwidth(args.threads)
    assert use is not None
    machines = whatif.Machines.named("1G", f"{bandwidth / 1e9:.1f}G", n_gpus=0)
    parts = whatif.parts_of(card, offload, machines, depth=depth, experts=use)
    share = card.n_experts_used / card.n_experts
    counted = use.shares(dict.fromkeys(use.layers, 1.0))
    print(
        f"{machine.snapshot(()).cpu}, memory read at {bandwidth / 1e9:.1f} GB/s, {args.threads} thread(s)\n"
    )
    assert machines.host is not None
    alone = replace(machines.host, efficiency=replace(costs.ON_HOST, layer_s=0.0, experts_s=0.0))
    columns = parts, [replace(part, device=alone) for part in parts if part.device is machines.host]
    shares, times = ("experts", "prior", "independent"), ("measured", "forecast", "off by", "nothing fixed")
    terminal.print_head("tokens", *shares, *times, "off by", texts=0)
    misses: list[list[float]] = []
    for tokens in _BATCHES:
        took = measured.verify[tokens - 1].seconds.value
        told = [costs.seconds_of_parts(column, tokens, depth) for column in columns]
        misses.append([seconds / took - 1 for seconds in told])
        experts = (
            counted[tokens - 1],
            *(costs.needed_share(share, tokens, persistence=rho) for rho in (costs.PERSISTENCE, 0.0)),
        )
        cells = [f"{tokens}", *(f"{part:.1%}" for part in experts), f"{1000 * took:.3f} ms"]
        for seconds, miss in zip(told, misses[-1], strict=True):
            cells += [f"{1000 * seconds:.3f} ms", f"{miss:+.0%}"]
        terminal.print_row(*cells)
    for name, column in zip(("forecast", "nothing fixed"), zip(*misses, strict=True), strict=True):
        sizes = sorted(map(abs, column))
        print(f"\n{name}: off by {median(sizes):.0%} in the middle, {sizes[-1]:.0%} at worst")


if __name__ == "__main__":
    main()
