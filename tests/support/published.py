"""Benches with raw logs from which their figures follow, and secrets in every place where one can be."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from ggufspec import prompts, publishing, results
from ggufspec.domain import (
    Build,
    Chain,
    Conditions,
    Drafting,
    FileIdentity,
    FileUse,
    LoadedModel,
    Method,
    MethodCounts,
    ModelFile,
    Pair,
    Prompt,
    Request,
    Role,
    RunResult,
    RunSpec,
    Runtime,
    Sample,
    Status,
    TextAudit,
)
from ggufspec.engines import rereading
from ggufspec.engines.engine import with_placement
from ggufspec.measure import audit
from ggufspec.publishing import Identity, bundles as making, findings
from ggufspec.publishing.derived import Facts
from ggufspec.results import ResultSet, Runs, archive
from tests.support import fakes, values

USER, FULL_NAME, HOST = "wilhelmina", "Wilhelmina Quill", "quillbox"
TOKEN, PASSWORD = "hf_AbCdEfGhIjKlMnOpQrStUv", "correct-horse-battery"
OWNER, REPO = "secretlab", "Tigerfish-7B-GGUF"
PRIVATE = f"{OWNER}/{REPO}"
PROJECT = "client-zebra"
TEXT, SYSTEM = "Dear Mrs. Ocelot, your invoice is overdue", "You are Agent Wombat of the ministry"
ANSWER = "please pay Ocelot and Sons at once"
SECRETS = (
    *(USER, FULL_NAME, HOST, TOKEN, PASSWORD, OWNER, "Tigerfish", "tigerfish", PROJECT),
    *("Ocelot", "overdue", "Wombat", "ministry"),
)
"""What nothing in a bundle may contain."""
HOME = f"/home/{USER}"
IDENTITY = Identity(users=(USER, FULL_NAME), hosts=(HOST,), homes=(HOME,), secrets=(PASSWORD,))
BUILT_IN = prompts.suite(prompts.EMBEDDED).prompts[0]
OWN = Prompt(id=f"letter-{USER}", text=TEXT, message=TEXT, category="mail")
ASKED = Prompt(
    id="asked",
    text=TEXT,
    request=Request.of(
        {
            "messages": [{"role": "user", "content": f"{TEXT}, says {USER}"}],
            "tools": [{"type": "function", "function": {"name": "wombat_of_ministry", "parameters": {}}}],
        }
    ),
)
"""A chat, whose answer arrives in pieces of several kinds."""
MODEL = Chain(Method.DRAFT_MODEL)
CHAIN = Chain(Method.DRAFT_MODEL, (Method.NGRAM_MOD,))
BY_METHOD = (MethodCounts("ngram-mod", 1, 16, 5), MethodCounts("draft-simple", 8, 24, 20))
"""What each method drafts in a request to a server that drafts by the chain."""
HASHES = {"target": "a1" * 32, "drafter": "b2" * 32}
_RESPONSES = Path(__file__).parent.parent / "responses" / "0.3.36"


def leave_out_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let bundles have a few small files instead of tables, charts and reports, which take longest."""
    files = {
        "README.md": b'---\ntags: ["x"]\n---\n',
        "methods.md": b"# Methods\n",
        "report.html": b"<!doctype html>",
        "tables/mine-arms.parquet": b"PAR1",
        "tables/mine-runs.parquet": b"PAR1 too",
    }
    for module in (making, findings):
        monkeypatch.setattr(module, "derive_files", lambda benches, facts: files)


@dataclass(frozen=True)
class Published:
    """The bundle of a bench, and the files that follow from it, where they are not made again."""

    folder: Path
    derived: dict[str, bytes] | None = None

    @classmethod
    def of(cls, bench: ResultSet, folder: Path) -> Published:
        """Publish a bench."""
        publishing.publish([bench], folder, identity=IDENTITY, private=(PRIVATE,), with_texts=True)
        files = archive.list_files(folder).items()
        others = ("benches/", "verify.txt", "bundle.json")
        return cls(folder, {name: file.read_bytes() for name, file in files if not name.startswith(others)})

    def verify(self, **options: Any) -> publishing.Verification:
        """Verify it without drawing its charts again."""
        return publishing.verify(self.folder, derived=self.derived, **options)

    def finds(self, said: str = "") -> bool:
        """Whether a finding says something."""
        return any(said in finding for finding in self.verify().findings)

    def leaves(self, said: str) -> bool:
        """Whether a sentence on what is not recomputed says something."""
        return any(said in sentence for sentence in self.verify().unchecked)

    @property
    def bench(self) -> Path:
        """The folder of its bench."""
        return next((self.folder / "benches").iterdir())

    @property
    def runs(self) -> Runs:
        return results.load(self.bench).runs

    def rehash(self) -> None:
        """Make the hashes of all files agree with them."""
        archive.write_hashes(self.folder)

    def change_run(self, change: Callable[[RunResult], RunResult], place: int = 5) -> None:
        """Change one run, and make all checksums and hashes agree with that."""
        stored = results.load(self.bench)
        runs = [change(run) if number == place else run for number, run in enumerate(stored.runs)]
        results.write_bench(self.bench, stored.meta, runs)
        self.rehash()

    def finds_each(self, forgeries: Iterable[tuple[str, Sample]], place: int) -> Iterator[str]:
        """Give a run each of these samples in turn, of which each must be found; yield their names."""
        stored = results.load(self.bench)
        for name, forged in forgeries:
            self.change_run(lambda run, forged=forged: replace(run, sample=forged), place)  # type: ignore[misc]
            assert self.finds(), name
            yield name
        results.write_bench(self.bench, stored.meta, stored.runs)
        self.rehash()
        assert not self.finds()

    def edit(self, pattern: str, change: Callable[[str], str | None]) -> None:
        """Change the content of files, or remove them; a name that no file has is that of a new one."""
        for file in [*self.folder.glob(pattern)] or [self.folder / pattern]:
            before = file.read_text() if file.exists() else ""
            content = change(before)
            assert content != before
            file.unlink() if content is None else file.write_text(content)


def changed(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, Status):
        return Status.SUMMARY_LOST  # which a complete log rules out
    if isinstance(value, bool):
        return not value
    if isinstance(value, Enum):
        return next(other for other in type(value) if other is not value)
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, LoadedModel):
        return replace(value, offloaded_layers=(value.offloaded_layers or 0) + 1)
    return (changed(value[0]), *value[1:])


def facts(*benches: str, with_charts: bool = False) -> Facts:
    """What a bundle of these benches says of how it was made."""
    return Facts(
        benches=benches,
        made_at="2026-01-02T03:04:05+00:00",
        author=None,
        with_texts=False,
        with_parquet=False,
        with_charts=with_charts,
        versions={"ggufspec": "1.0"},
    )


def pair() -> Pair:
    """A target from a private repository, and a drafter, in a folder that names a project."""
    folder, drafter = f"/data/{PROJECT}/models", f"drafter-{TOKEN.replace('/', '_')}.gguf"
    return Pair(
        name=f"{OWNER}-pair",
        target=ModelFile(
            filename="tigerfish-7b-Q4_K_M.gguf",
            repo=PRIVATE,
            path=Path(folder, "tigerfish-7b-Q4_K_M.gguf"),
            content=HASHES["target"],
        ),
        draft=ModelFile(filename=drafter, path=Path(folder, drafter), content=HASHES["drafter"]),
    )


def spec(role: Role, prompt: Prompt, n_max: int = 3, way: Chain = MODEL) -> RunSpec:
    """What a run of such a bench measures."""
    models = pair()
    return replace(
        values.spec(role),
        pair=models if role is not Role.TARGET else replace(models, draft=None),
        prompt=prompt,
        threads=1,
        drafting=Drafting(n_max=n_max, method=way.method, first=way.first) if role is Role.DRAFTING else None,
        runtime=Runtime(args=("--log-file", f"{HOME}/x.log")),
    )


def _noise() -> str:
    return (
        f"load_backend: loaded CPU backend from {HOME}/.cache/x/libggml-cpu.so\n"
        f"llama_model_loader: - kv   1:         general.name str              = Tigerfish of {OWNER}\n"
        f"llama_model_loader: - kv   2:     general.repo_url str              = https://huggingface.co/{PRIVATE}\n"
        f"main: {FULL_NAME} at {USER}@{HOST}: https://{USER}:{PASSWORD}@example.org/{TOKEN} {PASSWORD}\n"
        f"log: {HOME}/{PROJECT}/deep/notes.txt\n"
        f"load: /home/{USER}/.cache/huggingface/hub/models--{OWNER}--{REPO}/snapshots/1/t.gguf\n"
    )


def binary_logs(run: RunSpec, repeat: int) -> tuple[str, str]:
    """What llama.cpp's programs write: the text with its prompt, and the log."""
    text = f"{run.prompt.text}{ANSWER} says {USER}\n"
    ms = 190.0 + 3 * repeat
    log = fakes.plain_log(ms) if run.drafting is None else fakes.drafting_log(0.1 + 0.001 * repeat)
    return text, _noise() + f"main: prompt: '{run.prompt.text}'\n" + log


def server_logs(run: RunSpec, repeat: int) -> tuple[str, str]:
    """What a server answers: recorded, with the secrets in several pieces."""
    name = "target" if run.drafting is None else "drafting"
    lines = (_RESPONSES / f"{name}.jsonl").read_text().splitlines()
    pieces = iter((f" says {USER[:4]}", USER[4:], ", ", "dear Ocelot"))
    record: list[str] = []
    for line in lines:
        value = json.loads(line)
        if "request" in value and run.prompt.request is not None:
            value["request"] = {"n_predict": 32, **run.prompt.request.fields}
        elif "request" in value:
            value["request"]["prompt"] = run.prompt.text
        if isinstance(value.get("chunk"), dict) and not value["chunk"].get("stop"):
            value["chunk"]["content"] = next(pieces, value["chunk"]["content"])
        if isinstance(value.get("chunk"), dict) and "prompt" in value["chunk"]:
            value["chunk"]["prompt"] = run.prompt.text
        if isinstance(value.get("chunk"), dict) and run.prompt.is_chat:
            value["chunk"] = _as_chat(value["chunk"], len(record))
        record.append(json.dumps(value))
    loaded = "load_tensors: offloaded 0/7 layers to GPU\n" if repeat == 0 else ""
    totals = _statistics(repeat // 2 + 1) if run.drafting and run.drafting.first else ""
    return "\n".join(record) + "\n", _noise() + loaded + totals + "srv  log_server_r: done request\n"


def _as_chat(event: dict[str, Any], number: int) -> dict[str, Any]:
    """The same event of a chat: the first ones are thinking, and the next ones the arguments of a call."""
    piece, ends = event["content"], event.get("stop")
    call = {
        "index": 0,
        "function": {"name": "wombat_of_ministry" if number == 8 else None, "arguments": piece},
    }
    deltas = ({"reasoning_content": piece}, {"tool_calls": [call]})
    choice = {"delta": {} if ends else deltas[number >= 8], "finish_reason": "length" if ends else None}
    return {"choices": [choice], "timings": event["timings"]}


def _statistics(requests: int) -> str:
    """What a server that drafts by a chain logs after so many requests that drafted: totals."""
    return "".join(
        f"spec common_specu: statistics {counts.method}: #calls(b,g,a) = {requests} {requests} {requests}, "
        f"#gen drafts = {requests * counts.n_drafts}, #acc drafts = {requests}, "
        f"#gen tokens = {requests * counts.n_drafted}, #acc tokens = {requests * counts.n_accepted}\n"
        for counts in BY_METHOD
    )


def library_logs(run: RunSpec, repeat: int) -> tuple[str, str]:
    """What the worker of the engine inprocess records."""
    drafts = run.drafting is not None
    one = {"drafted": [5, 6, 7], "accepted": 2, "probabilities": [0.5, 0.5, 0.5]}
    times = {"draft_s": 0.002, "absorb_s": 0.001, "verify_s": 0.01, "at_s": 0.02}
    record = {
        "n_draft": 3 if drafts else None,
        "prompt_tokens": 8,
        "prompt_s": 0.02,
        "ttft_s": 0.03,
        "gen_tokens": 24,
        "gen_s": 0.3 + 0.01 * repeat,
        "tokens": list(range(24)),
        "text": f"{ANSWER} says {USER}",
        "at_s": [0.01 * number for number in range(24)],
        "ended": False,
        "rounds": [one | times] * 8 if drafts else None,
        "load_s": 0.5 if repeat == 0 else None,
    }
    loaded = "load_tensors: offloaded 0/7 layers to GPU\n" if repeat == 0 else ""
    return json.dumps(record) + "\n", _noise() + loaded


LOGS: dict[str, Callable[[RunSpec, int], tuple[str, str]]] = {
    "binary": binary_logs,
    "server": server_logs,
    "inprocess": library_logs,
}


def bench(
    engine: str = "binary",
    *,
    name: str = f"of-{USER}",
    runs_of: Sequence[Prompt] = (BUILT_IN, OWN),
    repeats: int = 2,
    way: Chain = MODEL,
) -> ResultSet:
    """A stored bench with secrets everywhere; its figures follow from its logs."""
    stored = results.create(
        results.Meta(
            id="",
            started_at="",
            engine=engine,
            command=(
                *(f"{HOME}/bin/ggufspec", "bench", "-m", f"{PRIVATE}:Q4_K_M", "-p", TEXT, "--system", SYSTEM),
                *("--suite", f"./{PROJECT}/prompts.toml", "--note", f"for {USER} at {HOST}, {TOKEN}"),
            ),
            build=Build(
                version="0.3.36",
                commit="abc1234",
                backend="cpu",
                path=f"{HOME}/{PROJECT}/llama.cpp/bin",
                compiler=f"gcc of {HOST}",
                flags=(f"-DCMAKE_PREFIX_PATH={HOME}/{PROJECT};/opt/{PROJECT}", f"CC=/home/{USER}/bin/gcc"),
            ),
            machine=replace(values.MACHINE, hostname=f"{HOST}.example.org"),
            doubts={},
            planned_runs=6,
            files=tuple(
                FileIdentity(
                    use=FileUse.MODEL, path=str(model.path), size_bytes=1000, sha256=str(model.content)
                )
                for model in (pair().target, pair().draft)
                if model is not None
            ),
            environment={
                "LD_LIBRARY_PATH": f"{HOME}/lib:/mnt/{PROJECT}/lib",
                "HF_TOKEN": TOKEN,
                "CUDA_VISIBLE_DEVICES": "0",
                "GGML_PASSWORD": PASSWORD,
            },
        ),
        name,
    )
    for run in _runs(engine, runs_of, repeats, stored.folder / "logs", way):
        stored = results.append(stored, run)
    results.close(stored)
    return results.load(name)


def _runs(
    engine: str, texts: Sequence[Prompt], repeats: int, folder: Path, way: Chain
) -> Iterator[RunResult]:
    own: dict[str, RunResult] = {}
    number = 0
    for repeat in range(repeats):
        for prompt in texts:
            for role in (Role.TARGET, Role.DRAFTING):
                run_spec = spec(role, prompt, 8 if engine == "server" else 3, way)
                run = _run(engine, run_spec, repeat, number, folder)
                key = run.spec.baseline.key
                first = own.setdefault(key, run) if role is Role.TARGET else own[key]
                if first is not run and run.sample.text is not None:
                    install = fakes.recorded_install("0.3.36")
                    difference = audit.locate(run.sample, first.sample, install, "", n_predict=32)
                    run = replace(run, text_identical=difference is None, difference=difference)
                yield run
                number += 1


def _run(engine: str, run_spec: RunSpec, repeat: int, number: int, folder: Path) -> RunResult:
    name = f"{number:04d}-{run_spec.role.value}-{run_spec.prompt.id}-r{repeat}"
    out, err = LOGS[engine](run_spec, number)
    (folder / f"{name}.out").write_text(out)
    (folder / f"{name}.err").write_text(err)
    python = f"/opt/{PROJECT}/venv/bin/python"
    attempts = 2 if number == 1 else 1
    if attempts > 1:
        (folder / f"{name}.lost1.out").write_text(f"{run_spec.prompt.text} {USER}")
        (folder / f"{name}.lost1.err").write_text(_noise())
    run = replace(
        values.run(run_spec.role, repeat=repeat),
        spec=run_spec,
        engine=engine,
        sample=Sample(status=Status.FAILED),
        argv=(
            python if engine == "inprocess" else f"{HOME}/{PROJECT}/llama.cpp/bin/llama",
            "-m",
            str(run_spec.model.path),
            "-p",
            run_spec.prompt.text,
        ),
        log=name,
        started_at=f"2026-01-02T03:04:{number:02d}.000+00:00",
        attempts=attempts,
        audit=TextAudit(tokens=0, unjudged=f"{HOST} had no room in {HOME}"),
        error=f"killed by {USER}" if number == 2 else None,
        load=None if engine == "binary" else 0,
        conditions=Conditions(others_cores=0.0),
        text_identical=None,
    )
    sample = rereading.reread_run(run, out.encode(), err.encode())
    if engine != "binary":
        first = folder / f"{0:04d}-{Role.TARGET.value}-{BUILT_IN.id}-r0.err"
        load = next(iter(rereading.placements(engine, (first.read_bytes(),))))
        sample = replace(with_placement(sample, load, None), build=load.build)
    if run_spec.drafting and run_spec.drafting.first:
        sample = replace(sample, by_method=BY_METHOD)
    return replace(run, sample=sample)
