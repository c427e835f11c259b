"""One server, the same prompts: ggufspec beside llama-benchy, guidellm and llama.cpp's speed_bench.py.

    LLAMA_BENCHY_PYTHON=… GUIDELLM_PYTHON=… SPEED_BENCH=…/speed_bench.py python scripts/check_clients.py
    … python scripts/check_clients.py [--rounds 8] [--draft 3] [-n 200] [-t 1] [--per-category 2]

A llama-server of today's build serves the embedded target, with --draft drafting. In each round every client
sends each prompt once, as a chat, one after the other and greedily, without the server's prompt cache; the
order of the clients is another one in each round. ggufspec is `bench --url`; of llama-benchy and guidellm the
clients are run with these prompts, because llama-benchy makes its own otherwise; speed_bench.py is run as it
is, with a `datasets` that returns these prompts. A client whose variable is not set is left out. The Python
that runs this script needs `requests` and `tqdm` for speed_bench.py.

Printed are tokens/s after the first token and the time to first token by each client's own definition:
geometric means, and ratios to ggufspec over the same prompts and rounds with their 95 % intervals.
speed_bench.py does not stream: its tokens/s are the server's own figures, and it has no time to first token.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import terminal

import ggufspec
from ggufspec import results, stats
from ggufspec.domain import Program, Role, UserRequest
from ggufspec.llama.server import launching
from ggufspec.measure import Session, prepare_session
from ggufspec.options import BenchOptions

BENCHY = """
import aiohttp
from llama_benchy.client import LLMClient
from llama_benchy.results import BenchmarkResults
client = LLMClient(url + "/v1", "", "x", extra_body={"temperature": 0})
async def run():
    found = []
    connector = aiohttp.TCPConnector(force_close=True)  # llama-server closes it after an answer
    async with aiohttp.ClientSession(connector=connector) as session:
        for text in prompts:
            result = await client.run_generation(session, "", text, tokens, True)
            assert result.error is None, result.error
            stamps = result.token_timestamps
            after = BenchmarkResults()._count_tokens_after_first_timestamp(stamps)
            found.append([after / (stamps[-1] - stamps[0]), result.first_token_ts - result.start_ts])
    return found
"""
GUIDELLM = """
from guidellm.backends.openai import OpenAIHTTPBackend
from guidellm.schemas import GenerationRequest, RequestInfo
from guidellm.schemas.backends.openai_http import OpenAIHTTPBackendArgs
backend = OpenAIHTTPBackend(OpenAIHTTPBackendArgs(
    target=url, model="x", request_format="/v1/chat/completions", stream=True, max_tokens=tokens,
    extras={"body": {"temperature": 0, "cache_prompt": False}},
))
async def run():
    found = []
    await backend.process_startup()
    for text in prompts:
        request = GenerationRequest(columns={"text_column": [text]})
        async for response, info in backend.resolve(request, RequestInfo()):
            pass
        times, written = info.timings, response.output_metrics.total_tokens
        seconds = times.last_token_iteration - times.first_token_iteration
        found.append([(written - 1) / seconds, times.first_token_iteration - times.request_start])
    return found
"""
DRIVER = """
import asyncio, json, sys
url, tokens, *prompts = sys.argv[1], int(sys.argv[2]), *json.loads(sys.argv[3])
{client}
print(json.dumps(asyncio.run(run())))
"""
SPEED_BENCH = """
import json, runpy, sys, types
file, url, tokens, prompts, out = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4]), sys.argv[5]
class Rows(list):
    def __getitem__(self, key):
        return [row[key] for row in self] if isinstance(key, str) else super().__getitem__(key)
rows = Rows(dict(question_id=str(n), category="all of them", turns=[text]) for n, text in enumerate(prompts))
sys.modules["datasets"] = types.SimpleNamespace(
    get_dataset_config_names=lambda name: ["qualitative"], load_dataset=lambda *_, **__: rows
)
sys.argv = [file, "--url", url, "--osl", tokens, "--output", out,
            "--extra-inputs", '{"temperature": 0, "cache_prompt": false}']
runpy.run_path(file, run_name="__main__")
"""


class Figures(NamedTuple):
    """Tokens/s after the first token, and seconds to it, of one answer."""

    tps: float
    ttft_s: float | None


def main() -> int:
    asked = _arguments()
    session = prepare_session(
        BenchOptions(pair="demo", per_category=asked.per_category, n_predict=asked.n_predict)
    )
    prompts = [prompt.text for prompt in session.suite.prompts]
    clients = {"ggufspec": _measure_ggufspec}
    for name, measure, variable in (
        ("llama-benchy", _measure_benchy, "LLAMA_BENCHY_PYTHON"),
        ("guidellm", _measure_guidellm, "GUIDELLM_PYTHON"),
        ("speed_bench.py", _measure_speed_bench, "SPEED_BENCH"),
    ):
        if variable in os.environ:
            clients[name] = measure
        else:
            print(f"{name}: not measured, {variable} is not set", file=sys.stderr)
    found: dict[str, dict[stats.Cell, Figures]] = {name: {} for name in clients}
    chance = random.Random(asked.rounds)
    with tempfile.TemporaryDirectory() as folder, closing(_start(session, asked)) as server:
        url = server.client.url
        os.environ["GGUFSPEC_DATA"] = folder
        for repeat in range(-1, asked.rounds):  # the first warms up
            for name in chance.sample(list(clients), len(clients)):
                measured = clients[name](url, prompts, asked.n_predict)
                if repeat >= 0:
                    for number, figures in enumerate(measured):
                        found[name][str(number), repeat] = figures
    _print(found)
    return 0


def _print(found: Mapping[str, Mapping[stats.Cell, Figures]]) -> None:
    rates = {name: {cell: one.tps for cell, one in each.items()} for name, each in found.items()}
    speeds = {  # the inverse of a time is a rate, whose ratios have the same intervals
        name: {cell: 1 / one.ttft_s for cell, one in each.items() if one.ttft_s}
        for name, each in found.items()
    }
    print(f"{'':16} {'tokens/s':>9}  {'over ggufspec':24} {'first token':>12}  over ggufspec")
    for name in found:
        rate, speed = stats.mean_rate(rates[name]), stats.mean_rate(speeds[name])
        assert rate is not None
        first = "" if speed is None else f"{1000 / speed.value:.2f} ms"
        over = _ratio(rates[name], rates["ggufspec"], name)
        inverse = _ratio(speeds["ggufspec"], speeds[name], name)
        print(f"{name:16} {rate.value:9.1f}  {over:24} {first:>12}  {inverse}")


def _ratio(new: Mapping[stats.Cell, float], old: Mapping[stats.Cell, float], name: str) -> str:
    effect = stats.paired_effect(new, old)
    if name == "ggufspec" or effect is None:
        return ""
    ratio = effect.ratio
    return f"{ratio.value:.3f} [{ratio.lo:.3f}, {ratio.hi:.3f}]"


def _start(session: Session, asked: argparse.Namespace) -> launching.Server:
    """Start llama-server, without a key."""
    pair = next(arm.pair for arm in session.suite.blocks[0].arms if arm.role is Role.DRAFTING)
    port = next(launching.find_free_ports(8080))
    program = session.install.programs[Program.SERVER].path
    argv = [str(program), "-m", str(pair.target.path), "--port", str(port)]
    argv += ["-np", "1", "-c", "2048", "-t", str(asked.threads), "-tb", str(asked.threads), "--no-webui"]
    if asked.draft:
        assert pair.draft is not None
        argv += ["-md", str(pair.draft.path), "-td", str(asked.threads)]
        argv += ["--spec-type", "draft-simple", "--spec-draft-n-max", str(asked.draft)]
    return launching.start_printed(argv, port=port, timeout_s=60)


def _measure_ggufspec(url: str, prompts: Sequence[str], tokens: int) -> list[Figures]:
    bench = ggufspec.bench(url=url, prompt=tuple(prompts), chat=True, n_predict=tokens, repeats=1)
    results.delete(bench.meta.id)
    (run,) = bench.runs
    sent, traffic = run.spec.traffic, run.sample.traffic
    assert sent is not None
    assert traffic is not None
    answers: dict[str, list[UserRequest]] = {}
    for answer in traffic.requests:  # one user sends each prompt as often as the others
        answers.setdefault(sent.prompts[answer.prompt].id, []).append(answer)
    return [_mean(answers[f"p{number}"]) for number, _ in enumerate(prompts, start=1)]


def _mean(answers: Sequence[UserRequest]) -> Figures:
    return Figures(
        1 / statistics.geometric_mean(answer.token_s or 0.0 for answer in answers),
        statistics.geometric_mean(answer.ttft_s or 0.0 for answer in answers),
    )


def _measure_benchy(url: str, prompts: Sequence[str], tokens: int) -> list[Figures]:
    return _drive(os.environ["LLAMA_BENCHY_PYTHON"], BENCHY, url, prompts, tokens)


def _measure_guidellm(url: str, prompts: Sequence[str], tokens: int) -> list[Figures]:
    return _drive(os.environ["GUIDELLM_PYTHON"], GUIDELLM, url, prompts, tokens)


def _drive(python: str, client: str, url: str, prompts: Sequence[str], tokens: int) -> list[Figures]:
    argv = [python, "-c", DRIVER.format(client=client), url, str(tokens), json.dumps(prompts)]
    return [Figures(*each) for each in json.loads(_output(argv).splitlines()[-1])]


def _measure_speed_bench(url: str, prompts: Sequence[str], tokens: int) -> list[Figures]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        argv = [sys.executable, "-c", SPEED_BENCH, os.environ["SPEED_BENCH"], url, str(tokens)]
        _output([*argv, json.dumps(prompts), str(out)])
        answers = sorted(json.loads(out.read_text())["results"], key=lambda answer: int(answer["id"]))
    return [Figures(answer["predicted_per_second"], None) for answer in answers]


def _output(argv: Sequence[str]) -> str:
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(f"{argv[0]} failed: {ended.stderr.strip()[-500:]}")
    return ended.stdout


def _arguments() -> argparse.Namespace:
    parser = terminal.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--draft", type=int, help="γ; without it the target alone is served")
    parser.add_argument("--per-category", type=int, default=2, help="prompts of each category of the suite")
    parser.add_argument("-n", "--n-predict", type=int, default=200)
    parser.add_argument("-t", "--threads", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
