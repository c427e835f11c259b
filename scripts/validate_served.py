"""Check `ggufspec whatif --url` against servers that are started with the draft sizes that it forecasts.

    python scripts/validate_served.py
    python scripts/validate_served.py --target gemma-3-270m-q4_k_m.gguf --drafter gemma-3-270m-Q2_K.gguf

Starts llama-server with the target alone, and with a large draft size. The second answers prompts, and then
both are asked about smaller sizes: by the log of its rounds, and by its counters alone. Then servers of each
size answer the same prompts in turn. Other work only adds to times, so the fastest answer to each prompt
counts, as in the forecast. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack, closing
from pathlib import Path

import terminal

import ggufspec
from ggufspec import paths, prompts, units
from ggufspec.forecast.whatif import ServedForecast
from ggufspec.llama.install import installs
from ggufspec.llama.server import Server, launching

DEMO = paths.models_dir() / "demo"
SIZES, LARGEST = (1, 2, 4, 6, 8, 12), 16
PROMPTS, TOKENS = 8, 160
PATIENCE_S = 120


def start(asked: argparse.Namespace, port: int, size: int, *words: str) -> Server:
    """Start a server that drafts so many tokens; with 0 that of the target alone."""
    program = installs.find_install(asked.llama).root / "llama-server"
    argv: list[object] = [
        "env",
        "LLAMA_TRACE=1",
        program,
        "-m",
        asked.target,
        "-c",
        2048,
        "-np",
        1,
        "-ngl",
        0,
    ]
    argv += ["-t", asked.threads, "-tb", asked.threads, "--port", port, *words]
    if size:
        argv += ["-md", asked.drafter, "--spec-type", "draft-simple", "--spec-draft-n-max", size]
    return launching.start_printed([*map(str, argv)], port=port, timeout_s=PATIENCE_S)


def answer(server: Server) -> dict[str, tuple[int, float]]:
    """Return how many tokens a server wrote behind the first one for each prompt, and its milliseconds."""
    found = {}
    for prompt in prompts.suite("demo").prompts[:PROMPTS]:
        body = {"prompt": prompt.text, "n_predict": TOKENS, "temperature": 0, "cache_prompt": False}
        timings = json.loads(server.post("/completion", body | {"ignore_eos": True}))["timings"]
        found[prompt.id] = int(timings["predicted_n"]) - 1, float(timings["predicted_ms"])
    return found


def forecast(asked: argparse.Namespace, folder: Path) -> dict[str, ServedForecast]:
    """Return what two servers say of smaller sizes, by where the rounds are from."""
    log, (port, other, *_) = folder / "server.log", launching.find_free_ports(8600)
    with ExitStack() as opened:
        drafting = start(asked, port, LARGEST, "--metrics", "--log-file", str(log))
        opened.enter_context(closing(drafting))
        opened.enter_context(closing(start(asked, other, 0)))
        answer(drafting)
        time.sleep(1)  # a thread writes the log
        traffic = folder / "traffic.log"
        traffic.write_bytes(log.read_bytes())  # without the requests of the first forecast
        urls = tuple(f"http://127.0.0.1:{each}" for each in (port, other))
        by_counters = ggufspec.whatif_served(url=urls, draft=SIZES)
        by_log = ggufspec.whatif_served(url=urls, draft=SIZES, server_log=traffic)
        return {"in their order": by_log, "counted by position": by_counters}


def measure(asked: argparse.Namespace) -> dict[int, float]:
    """Return tokens/s of the target alone and of each size."""
    fastest: dict[int, dict[str, tuple[int, float]]] = defaultdict(dict)
    for repeat in range(asked.repeats):
        for size in (0, *SIZES, LARGEST)[:: -1 if repeat % 2 else 1]:
            with closing(start(asked, next(launching.find_free_ports(8600)), size)) as server:
                for prompt, found in answer(server).items():
                    best = fastest[size].get(prompt, found)
                    fastest[size][prompt] = min(best, found, key=lambda each: each[1])
    return {
        size: sum(tokens for tokens, _ in found.values()) * 1000 / sum(ms for _, ms in found.values())
        for size, found in fastest.items()
    }


def main() -> None:
    parser = terminal.parser(__doc__)
    parser.add_argument("--target", type=Path, default=DEMO / "target.gguf")
    parser.add_argument("--drafter", type=Path, default=DEMO / "drafter.gguf")
    parser.add_argument("-t", "--threads", type=int, default=1)
    parser.add_argument("--llama", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        forecasts, rates = forecast(asked, Path(folder)), measure(asked)
    terminal.print_head("rounds", "γ", "forecast", "measured", "off")
    for name, served in forecasts.items():
        off, covered = [], 0
        for found in served.forecasts:
            size, speedup = found.drafting.n_max, found.speedup
            shown = rates[size] / rates[0]
            off.append(abs(math.log(speedup.value / shown)))
            covered += (speedup.lo or 0) <= shown <= (speedup.hi or math.inf)
            ends = "" if speedup.lo is None else f" [{speedup.lo:.2f}, {speedup.hi:.2f}]"
            change = units.format_percent(off[-1], 1)
            terminal.print_row(name, size, f"{speedup.value:.2f}×{ends}", f"{shown:.2f}×", change)
        middle, worst = (units.format_percent(pick(off), 1) for pick in (statistics.median, max))
        print(f"{name}: off by {middle} in the middle, {worst} at worst; {covered} of {len(off)} covered\n")


if __name__ == "__main__":
    main()
