"""Record the logs of one build of llama.cpp, untouched, as a terminal would have shown them.

    python scripts/record_logs.py --llama BIN_DIR --name 0.3.36 --pair models/demo --out tests/logs

Every case that the build can run becomes ``OUT/NAME/CASE.log``; what was run stands on stderr. The expected
values beside a log (``CASE.json``) are written by hand, from the log: that is what makes them worth a test.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from gguf import GGUFReader
from make_random_head import KINDS, Target, write as write_head

from ggufspec import proc
from ggufspec.domain import (
    Chain,
    Drafting,
    Method,
    ModelFile,
    ModelRun,
    NgramSettings,
    Offload,
    Pair,
    Program,
    Prompt,
    Role,
    RunSpec,
    Status,
)
from ggufspec.errors import GgufspecError, NoInstallError
from ggufspec.llama.command import check_chain, commands
from ggufspec.llama.install import installs
from ggufspec.llama.install.environment import program_environment
from ggufspec.llama.logs import parsing
from ggufspec.llama.rpc import lending

PROMPT = "Letter to Jonas"
DRAFTERS = (Program.TREE, Program.SIMPLE)
UNSTYLED = ("--no-log-prefix", "--no-log-timestamps")
TRIES = 40
KEY = "a key for requests from this machine"
WORKER_PORTS = (50052, 50053)

PLAIN = RunSpec(
    pair=Pair(
        name="demo",
        target=ModelFile(filename="target.gguf", path=Path("target.gguf")),
        draft=ModelFile(filename="drafter.gguf", path=Path("drafter.gguf")),
    ),
    role=Role.TARGET,
    prompt=Prompt(id="letter", text=PROMPT),
    n_predict=32,
    context=256,
    threads=1,
    offload=Offload().on_processor,
)
SPEC = replace(PLAIN, role=Role.DRAFTING, drafting=Drafting(n_max=4))
REPEATING = "Packing list for Anna, who goes to the sea:\n- "  # the embedded target comes back to its phrases
SPREAD = Offload(
    target=ModelRun(layers="all"),
    drafter=ModelRun(layers=0),
    rpc=tuple(f"127.0.0.1:{port}" for port in WORKER_PORTS),
)
"""For builds with RPC: the target is on two workers of this machine, the drafter is not."""

LOOKUPS = {
    Method.NGRAM_SIMPLE: 16,
    Method.NGRAM_MAP_K: 16,
    Method.NGRAM_MAP_K4V: 16,
    Method.NGRAM_MOD: 16,
    Method.NGRAM_CACHE: 8,
}


HEADS = {
    "draft-mtp": "mtp",
    "draft-eagle3": "eagle3",
    "draft-dflash": "dflash",
    "draft-dspark": "dspark",
    "ngram-mod+draft-eagle3": "eagle3",
}
"""Methods and chains -> the head that drafts, as make_random_head.py names it."""


def headed(way: Chain, head: str, n_max: int = 4) -> RunSpec:
    """Return a run that drafts with a head; the layers for MTP are the target's own."""
    if way.first:
        return replace(
            headed(Chain(way.method), head, n_max),
            prompt=Prompt(id="packing", text=REPEATING),
            n_predict=300,
            context=512,
            drafting=Drafting(
                n_max=n_max,
                method=way.method,
                first=way.first,
                ngram=NgramSettings(size_n=8, size_m=16, n_min=4),
            ),
        )
    file = ModelFile(filename=f"{head}.gguf", path=Path(f"{head}.gguf"))
    pair = replace(SPEC.pair, target=file, draft=None) if head == "mtp" else replace(SPEC.pair, draft=file)
    return replace(SPEC, pair=pair, drafting=Drafting(n_max=n_max, method=way.method))


def drafts_by(way: Chain, llama: installs.Install, program: Program) -> bool:
    try:
        check_chain(llama, program, way)
    except GgufspecError:
        return False
    return True


def lookup(method: Method) -> RunSpec:
    """Return a run that drafts from its own text, which is long enough to repeat itself."""
    return replace(
        SPEC,
        pair=replace(SPEC.pair, draft=None),
        prompt=Prompt(id="packing", text=REPEATING),
        n_predict=400,
        context=512,
        drafting=Drafting(n_max=LOOKUPS[method], method=method),
    )


def cases(llama: installs.Install) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the command of every case that a build has the programs and flags for."""
    if Program.PLAIN in llama.programs:
        yield "plain", build(PLAIN, llama, Program.PLAIN)
        long = replace(PLAIN, context=64, prompt=Prompt(id="long", text=PROMPT * 100))
        yield "plain-prompt-too-long", build(long, llama, Program.PLAIN)
        yield "plain-missing-model", with_model(build(PLAIN, llama, Program.PLAIN), "absent.gguf")
        if (
            "--rpc" in llama.programs[Program.PLAIN].options
        ):  # built for it, they claim to offload, GPU or not
            claim = replace(PLAIN, offload=Offload(target=ModelRun(layers=99)))
            yield "plain-claimed-offload", build(claim, llama, Program.PLAIN)
        if llama.worker is not None:
            yield "plain-rpc", build(replace(PLAIN, offload=SPREAD), llama, Program.PLAIN)
    for program in (program for program in DRAFTERS if program in llama.programs):
        name = program.name.lower()
        argv = build(SPEC, llama, program)
        options = llama.programs[program].options
        yield name, argv
        if llama.worker is not None:
            yield f"{name}-rpc", build(replace(SPEC, offload=SPREAD), llama, program)
        yield f"{name}-nothing-drafted", build(replace(SPEC, drafting=Drafting(n_max=0)), llama, program)
        yield f"{name}-missing-model", with_model(argv, "absent.gguf")
        stranger = replace(SPEC.pair, draft=ModelFile(filename="stranger.gguf", path=Path("stranger.gguf")))
        yield f"{name}-stranger", build(replace(SPEC, pair=stranger), llama, program)
        styled = [word for word in argv if word not in UNSTYLED]
        if "--verbosity" in argv:
            at = argv.index("--verbosity")
            yield f"{name}-quiet", [word for word in [*argv[:at], *argv[at + 2 :]] if word not in UNSTYLED]
        if "--log-prefix" in options:
            yield f"{name}-prefixed", [*styled, "--log-prefix", "--log-timestamps"]
        if "--log-colors" in options:
            value = ["on"] if options.mentions("--log-colors", "auto") else []
            yield f"{name}-coloured", [*styled, "--log-prefix", "--log-colors", *value]
        if "--log-jsonl" in options:
            yield f"{name}-jsonl", [*argv, "--log-jsonl"]
        if program is Program.SIMPLE and "--spec-ngram-mod-n-max" in options:
            for method in LOOKUPS:
                yield f"{name}-{method.value}", build(lookup(method), llama, program)
            quiet = replace(lookup(Method.NGRAM_MOD), n_predict=32)  # its text has not repeated itself yet
            yield f"{name}-nothing-to-repeat", build(quiet, llama, program)
        for text, head in HEADS.items():
            if drafts_by(Chain.parse(text), llama, program):
                yield f"{name}-{text}", build(headed(Chain.parse(text), head), llama, program)
        if drafts_by(Chain(Method.DRAFT_DFLASH), llama, program):
            longer = headed(Chain(Method.DRAFT_DFLASH), "dflash", 12)
            yield f"{name}-lowered", build(longer, llama, program)
            without = replace(SPEC, pair=replace(SPEC.pair, draft=None))
            mtp = replace(without, drafting=Drafting(n_max=4, method=Method.DRAFT_MTP))
            yield f"{name}-no-mtp", build(mtp, llama, program)
            eagle3 = replace(SPEC, drafting=Drafting(n_max=4, method=Method.DRAFT_EAGLE3))
            yield f"{name}-no-head", build(eagle3, llama, program)
        if "--spec-type" in argv:
            at = argv.index("--spec-type")
            yield f"{name}-no-type", [*argv[:at], *argv[at + 2 :]]


def build(spec: RunSpec, llama: installs.Install, program: Program) -> list[str]:
    """Return the command that ggufspec itself would run."""
    return list(commands.argv(spec, llama, program=program))


def with_model(argv: list[str], name: str) -> list[str]:
    return [name if word == "target.gguf" else word for word in argv]


def shortened(argv: list[str]) -> list[str]:
    return [word if len(word) <= 80 else f"{word[:80]}..." for word in argv]


def record(argv: list[str], log: Path, folder: Path, home: Path) -> proc.Completed:
    """Run one command where the models are, with both streams in one file."""
    environment = program_environment(home) | {"GGML_NO_BACKTRACE": "1"}
    return proc.run(argv, stdout=log, cwd=folder, env=environment, timeout_s=120)


def record_whole(argv: list[str], log: Path, folder: Path, home: Path) -> proc.Completed:
    """Run one command until it does not lose the end of its log, as recent builds can."""
    for _ in range(TRIES):
        completed = record(argv, log, folder, home)
        data = log.read_bytes()
        failed = completed.returncode != 0
        is_lost = parsing.diagnose(data) is None if failed else parsing.parse(data).load_ms is None
        if not is_lost:
            break
    return completed


def record_server(
    llama: installs.Install,
    log: Path,
    folder: Path,
    home: Path,
    *,
    traced: bool,
    method: Method = Method.DRAFT_MODEL,
    head: str | None = None,
) -> list[str] | None:
    """Serve two requests, with drafting where the server can draft, and stop the server as Ctrl-C would.

    ``traced`` keeps the verbosity that ggufspec itself asks for, ``head`` is a row of HEADS; None where there
    is nothing to record.
    """
    if Program.SERVER not in llama.programs:
        return None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    key_file = folder / "key"
    key_file.write_text(KEY)
    options = llama.programs[Program.SERVER].options
    spec = SPEC if commands.can_draft(options) else PLAIN
    prompts = (PROMPT, "Q: Who is Anna?\nA:")
    if head is not None:
        if not drafts_by(Chain.parse(head), llama, Program.SERVER):
            return None
        spec = headed(Chain.parse(head), HEADS[head])
        prompts = (spec.prompt.text, *prompts[1:])
    elif not method.drafts_with_model:
        if "--spec-ngram-mod-n-max" not in options:
            return None
        spec, prompts = lookup(method), (REPEATING, REPEATING)
    argv = list(commands.server_argv(spec, llama, port=port, key_file=Path("key"), slots_dir=None))
    if traced and "--verbosity" not in argv:
        return None
    if not traced and "--verbosity" in argv:
        at = argv.index("--verbosity")
        argv = [*argv[:at], *argv[at + 2 :]]
    with (
        log.open("wb") as out,
        proc.spawn(
            argv, stdout=out, stderr=subprocess.STDOUT, cwd=folder, env=program_environment(home)
        ) as child,
    ):
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/health")
        for prompt in prompts:
            body = {"prompt": prompt, "n_predict": spec.n_predict, "temperature": 0, "cache_prompt": True}
            request = urllib.request.Request(f"{url}/completion", json.dumps(body).encode())
            request.add_header("Content-Type", "application/json")
            request.add_header("Authorization", f"Bearer {KEY}")
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()
        child.send_signal(signal.SIGINT)
        child.wait(20)
    return argv


def wait_for(url: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > deadline:
                raise
        time.sleep(0.2)


def lose_tail(llama: installs.Install, log: Path, folder: Path, home: Path) -> bool:
    """Run a drafting program until its summary gets lost, which recent builds do every tenth time or so."""
    argv = build(replace(SPEC, n_predict=4), llama, Program.TREE)
    for _ in range(TRIES):
        completed = record(argv, log, folder, home)
        if completed.returncode == 0 and parsing.parse(log.read_bytes()).status is Status.SUMMARY_LOST:
            return True
    log.unlink()
    return False


def write_stranger(folder: Path) -> None:
    """Write a drafter with one token of another vocabulary, which no program may draft with."""
    path = folder / "stranger.gguf"
    shutil.copyfile(folder / "drafter.gguf", path)
    tokens = GGUFReader(path, "r+").fields["tokenizer.ggml.tokens"]
    tokens.parts[tokens.data[600]][:] = ord("~")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--llama", type=Path, required=True, help="folder with the build's programs")
    parser.add_argument("--name", required=True, help="name of the build's folder of logs")
    parser.add_argument("--pair", type=Path, required=True, help="folder with target.gguf and drafter.gguf")
    parser.add_argument("--out", type=Path, default=Path("tests/logs"))
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose names contain this text")
    arguments = parser.parse_args()
    llama = installs.probe(arguments.llama, "--llama")
    if llama is None:
        raise NoInstallError(f"no llama.cpp in {arguments.llama}")
    out = (arguments.out / arguments.name).absolute()
    out.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder_name,
        tempfile.TemporaryDirectory() as home_name,
        ExitStack() as stack,
    ):
        for port in WORKER_PORTS if llama.worker is not None else ():
            settings = lending.WorkerSettings(port=port, threads=1, devices=("CPU",))
            stack.enter_context(lending.start_worker(llama, settings))
        folder, home = Path(folder_name), Path(home_name)
        for model in ("target.gguf", "drafter.gguf"):
            shutil.copyfile(arguments.pair / model, folder / model)
        write_stranger(folder)
        for kind in KINDS:
            write_head(folder / f"{kind}.gguf", Target(folder / "target.gguf"), kind, block=8, seed=0)
        for name, argv in cases(llama):
            if arguments.only not in name:
                continue
            log = out / f"{name}.log"
            completed = record_whole(argv, log, folder, home)
            if b".cpp:" in log.read_bytes():
                log.unlink()  # it names the folder that the build was compiled in
            print(f"{name}: exit {completed.returncode}: {shortened(argv)}", file=sys.stderr)
        for name, traced in (("server", False), ("server-traced", True)):
            if arguments.only not in name:
                continue
            served = record_server(llama, out / f"{name}.log", folder, home, traced=traced)
            print(f"{name}: {served}", file=sys.stderr)
        for method in LOOKUPS:
            name = f"server-{method.value}"
            if arguments.only not in name:
                continue
            served = record_server(llama, out / f"{name}.log", folder, home, traced=True, method=method)
            print(f"{name}: {served}", file=sys.stderr)
        for head in HEADS:
            name = f"server-{head}"
            if arguments.only not in name:
                continue
            served = record_server(llama, out / f"{name}.log", folder, home, traced=True, head=head)
            print(f"{name}: {served}", file=sys.stderr)
        if arguments.only not in "tree-lost-tail":
            return
        if Program.TREE in llama.programs and "--spec-draft-n-max" in llama.programs[Program.TREE].options:
            print(
                f"tree-lost-tail: {lose_tail(llama, out / 'tree-lost-tail.log', folder, home)}",
                file=sys.stderr,
            )


if __name__ == "__main__":
    main()
