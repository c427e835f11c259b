"""Compare `ggufspec fetch` with `hf download`, and count what a check of two large vocabularies reads.

    python scripts/bench_fetch.py [--mib 1024] [--repeats 3]

Both programs fetch the same two files from the same loopback Hub (a process of its own), by turns, each time
into an empty cache; once as fast as the machine can, once at 10 MB/s a connection, as content hosts give.
`hf download` does not compare hashes; `ggufspec fetch` does, within its time. Then `ggufspec fetch` gets the
target alone, for the speed in connections.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gguf as gguf_library
import terminal

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ggufspec.domain import ModelFile, Program  # noqa: E402
from ggufspec.modelfiles import hub  # noqa: E402
from ggufspec.modelfiles.compat import judging  # noqa: E402
from ggufspec.modelfiles.hub.transfer import CONNECTIONS  # noqa: E402
from tests.support.hub_client import environment, gguf  # noqa: E402
from tests.support.hub_server import Hub  # noqa: E402

REPO = "bench/Pair-GGUF"
FILES = ("target-Q4_0.gguf", "drafter-Q8_0.gguf")
LINE_BYTES_PER_S = 10e6
N_TOKENS = 128_256
N_MERGES = 280_147  # Llama 3's


def main() -> None:
    parser = terminal.parser(__doc__)
    parser.add_argument("--mib", type=int, default=1024, help="size of the target; the drafter has a quarter")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--serve", nargs=2, metavar=("FOLDER", "RATE"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        serve(Path(asked.serve[0]), float(asked.serve[1]))
        return
    with tempfile.TemporaryDirectory(prefix="bench-fetch-") as name:
        folder = Path(name)
        for file, mib in zip(FILES, (asked.mib, asked.mib // 4), strict=True):
            (folder / file).write_bytes(gguf(mib << 20, seed=mib))
        for title, rate in (("unlimited", 0.0), ("10 MB/s a connection", LINE_BYTES_PER_S)):
            compare(title, rate, folder, asked.repeats)
        count_connections(folder, asked.repeats)
        check_headers(folder)


def compare(title: str, rate: float, folder: Path, repeats: int) -> None:
    commands = {
        "hf download": ["hf", "download", REPO, *FILES, "--quiet"],
        "ggufspec fetch": [
            "ggufspec", "fetch", "--quiet", "--no-check",
            "--target", f"{REPO}/{FILES[0]}", "--draft-model", f"{REPO}/{FILES[1]}",
        ],
    }  # fmt: skip
    size = sum((folder / file).stat().st_size for file in FILES)
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    with served(folder, rate) as url:
        for _ in range(repeats):
            for name, argv in commands.items():
                seconds[name].append(run(argv, url, folder / "home"))
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    for name, times in seconds.items():
        all_times = ", ".join(f"{time_s:.2f}" for time_s in times)
        print(f"{title}: {name:<14} {size / medians[name] / 1e6:7.1f} MB/s  (s: {all_times})")
    print(f"{title}: ratio {medians['hf download'] / medians['ggufspec fetch']:.3f}")


def count_connections(folder: Path, repeats: int) -> None:
    """Print how many capped connections would bring the target in the same time, start and hash included."""
    argv = ["ggufspec", "fetch", "--quiet", "--no-check", "--target", f"{REPO}/{FILES[0]}"]
    size = (folder / FILES[0]).stat().st_size
    with served(folder, LINE_BYTES_PER_S) as url:
        seconds = statistics.median(run(argv, url, folder / "home") for _ in range(repeats))
    many = size / LINE_BYTES_PER_S / seconds
    print(f"one file: {seconds:.2f} s, as {many:.2f} connections; {many / CONNECTIONS:.3f} of {CONNECTIONS}")


def run(argv: list[str], url: str, home: Path) -> float:
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    program = Path(sys.executable).with_name(argv[0])
    env = {
        "PATH": os.environ["PATH"], "HOME": str(home), "HF_HOME": str(home / "hf"), "HF_ENDPOINT": url,
        "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1",
    }  # fmt: skip
    started = time.perf_counter()
    subprocess.run([program, *argv[1:]], env=env, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


@contextmanager
def served(folder: Path, rate: float) -> Iterator[str]:
    argv = [sys.executable, __file__, "--serve", str(folder), str(rate)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.communicate()  # closes its stdin, which ends it


def serve(folder: Path, rate: float) -> None:
    with Hub(folder) as server:
        server.rate = rate or None
        server.add(REPO, {file: folder / file for file in FILES})
        print(server.url, flush=True)
        sys.stdin.read()


def check_headers(folder: Path) -> None:
    """Check two models with Llama 3's number of tokens and merges by range, as `fetch` does first."""
    file = folder / "vocabulary.gguf"
    write_model(file)
    with Hub(folder) as server:
        os.environ.update(environment(server, folder / "home"))
        for repo in ("bench/T-GGUF", "bench/D-GGUF"):
            server.add(repo, {"m-Q4_0.gguf": file})
        access = hub.Access(endpoint=server.url, cache_dir=folder / "home" / "hf" / "hub")
        models = [ModelFile(repo=repo, filename="m-Q4_0.gguf") for repo in server.repos]
        started = time.perf_counter()
        target, draft = (hub.read_card(model, access) for model in models)
        verdict = judging.check_pair(target, draft, judging.rule_for(Program.SIMPLE))
        seconds = time.perf_counter() - started
        print(
            f"check of 2 x {N_TOKENS} tokens: {verdict.outcome} after {seconds:.2f} s, "
            f"{server.bytes_served / 2 / (1 << 20):.1f} MiB a file"
        )


def write_model(file: Path) -> None:
    writer = gguf_library.GGUFWriter(file, "llama")
    writer.add_block_count(1)
    writer.add_context_length(8192)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(64)
    writer.add_head_count(1)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list([f"token{no:08d}" for no in range(N_TOKENS)])
    writer.add_token_types([1] * N_TOKENS)
    writer.add_token_merges([f"tok{no:05d} en{no:05d}" for no in range(N_MERGES)])
    writer.add_bos_token_id(128_000)
    writer.add_eos_token_id(128_009)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with file.open("ab") as end:
        end.write(bytes(32 << 20))  # weights that a check must not read


if __name__ == "__main__":
    main()
