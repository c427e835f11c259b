"""Paste the line that `ggufspec tune` prints into a shell, and measure the server that it starts.

    python scripts/check_served.py -- --pair demo -t 1 --precision 5%
    python scripts/check_served.py -- -m big.gguf -md small.gguf --vram 200M -t 1

What follows -- is for `ggufspec tune`. The server has to answer a prompt that fills a slot's context and a
short one. Then the line is pasted five times more, since one load of a model may be several percent faster
than another. Each server is sent each prompt of the tuning, one after the other, as one user. The geometric
mean of their tokens/s after the first token has to lie within the interval that the tuning printed;
otherwise the exit code is 1.

A machine's own speed may change by more within minutes. So `bench --tuned` measures the same configuration
and answers of the same length right before and right after the pasted servers. Run it on a quiet machine.
"""

from __future__ import annotations

import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from contextlib import closing
from typing import Any

import terminal

from ggufspec import results
from ggufspec.llama.server import launching

LOADS = 5
WRITTEN = 16  # tokens of the long and the short answer
PATIENCE_S = 600


def main() -> int:
    parser = terminal.parser(__doc__)
    parser.add_argument("words", nargs="+", metavar="OPTION", help="options of `ggufspec tune`, after --")
    words = parser.parse_args().words
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GGUFSPEC_DATA"] = folder
        tuned = _tune(words)
        print(tuned["verdict"])
        print(tuned["commands"]["llama-server"])
        prompts = _prompts()
        before = _measure_again(tuned)
        _fill_a_slot(tuned)
        rates = [_measure_load(tuned, prompts) for _ in range(LOADS)]
        after = _measure_again(tuned)
    measured, rate = tuned["overall"]["tokens_per_s"], statistics.geometric_mean(rates)
    lo, hi = measured["lo"], measured["hi"]
    if lo is None or hi is None:
        sys.exit(f"the tuning printed no interval, the server wrote {rate:.1f}: give it a longer --max-time")
    is_within = lo <= rate <= hi
    print(f"tuned {measured['value']:.1f} tokens/s [{lo:.1f}, {hi:.1f}]")
    single = ", ".join(f"{each:.1f}" for each in rates)
    print(f"pasted {rate:.1f}: {'within' if is_within else 'NOT WITHIN'} (the loads: {single})")
    print(f"the tuned configuration right before {before:.1f}, right after {after:.1f}")
    return int(not is_within)


def _tune(words: list[str]) -> dict[str, Any]:
    report: dict[str, Any] = _run("tune", *words, "--name", "checked")
    return report


def _fill_a_slot(tuned: dict[str, Any]) -> None:
    """Paste the line, and ask for answers to the longest prompt that a slot takes and to a short one."""
    longest = tuned["serving"]["context"] - WRITTEN - (tuned["overall"]["draft"] or 0) - 2
    with closing(_paste(tuned["commands"]["llama-server"])) as server:
        for length in (longest, 8):
            timings = _answer(server, {"prompt": [100] * length, "ignore_eos": True}, WRITTEN)
            print(f"answered a prompt of {timings['prompt_n']} tokens with {timings['predicted_n']}")


def _measure_load(tuned: dict[str, Any], prompts: list[str]) -> float:
    """Paste the line, and return the geometric mean over prompts of its server's tokens/s."""
    with closing(_paste(tuned["commands"]["llama-server"])) as server:
        _answer(server, {"prompt": prompts[0]}, tuned["n_predict"])  # a warm-up, as a tuning has
        answers = [_answer(server, {"prompt": prompt}, tuned["n_predict"]) for prompt in prompts]
        return statistics.geometric_mean(map(_rate, answers))


def _measure_again(tuned: dict[str, Any]) -> float:
    """Return tokens/s of the tuned configuration in a bench of its own."""
    rows = _run("bench", "--tuned", "checked", "-r", "3", "-n", str(tuned["n_predict"]))
    row = next(row for row in rows if row["role"] == ("drafting" if tuned["drafts"] else "target"))
    return float(row["gen_tps"])


def _run(*words: str) -> Any:
    argv = [sys.executable, "-m", "ggufspec", *words, "-o", "json"]
    ended = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode:
        sys.exit(ended.returncode)
    return json.loads(ended.stdout)


def _prompts() -> list[str]:
    """Return the texts that the tuning sent."""
    texts = {
        run.spec.prompt.id: run.spec.prompt.text for run in results.load("checked").runs if not run.warmup
    }
    return list(texts.values())


def _paste(line: str) -> launching.Server:
    """Run a line in a shell, and return its server once it answers."""
    words = shlex.split(line)
    port = int(words[words.index("--port") + 1])
    return launching.start_printed(("sh", "-c", f"exec {line}"), port=port, timeout_s=PATIENCE_S)


def _answer(server: launching.Server, asked: dict[str, Any], tokens: int) -> dict[str, Any]:
    """Return the server's timings of an answer."""
    body = asked | {"n_predict": tokens, "temperature": 0, "cache_prompt": False}
    answer = server.client.ask("/completion", body)
    if not answer.is_ok:
        sys.exit(f"the server answered {answer.code}: {answer.error[:200]}")
    timings: dict[str, Any] = json.loads(answer.content)["timings"]
    return timings


def _rate(timings: dict[str, Any]) -> float:
    """Return tokens/s after the first token, as a tuning counts them."""
    return (int(timings["predicted_n"]) - 1) / float(timings["predicted_ms"]) * 1000


if __name__ == "__main__":
    sys.exit(main())
