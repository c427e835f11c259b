"""llama.cpp as a library: models stay loaded, and every draft size, p_min and sampler is one run away.

The library runs in a child process of ours, so that a crash in it is a row and nothing more. One worker
holds one target and every drafter that was asked for beside it.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ggufspec.domain import Layers, ModelFile, Offload, Program, RunSpec, Sample, Status
from ggufspec.engines.engine import Engine, Measurement
from ggufspec.engines.failures import Failure
from ggufspec.engines.library import reading
from ggufspec.engines.library.belonging import check_library
from ggufspec.engines.library.commandline import WORKER, words
from ggufspec.engines.library.messages import (
    Curve,
    CurveRun,
    ModelLoad,
    Record,
    RecordedTrace,
    Reply,
    Request,
    Run,
    TraceRun,
)
from ggufspec.engines.library.worker_process import start
from ggufspec.engines.library.workers import Hosted
from ggufspec.engines.placement import as_drafter, placed
from ggufspec.engines.pool import Pool
from ggufspec.errors import GgufspecError, NoInstallError
from ggufspec.llama.install import Install

_EVERYTHING = 999  # more layers than any model has
_BATCHES = tuple(range(1, 18))  # tokens: every γ up to 16


@dataclass(kw_only=True)
class InprocessEngine(Engine):
    """Keeps up to ``capacity`` workers, one for each target as it is loaded."""

    install: Install
    name: str = "inprocess"
    capacity: int | None = None
    timeout_s: float | None = None  # for a load, and for a run
    command: tuple[str, ...] = WORKER
    _workers: Pool[ModelLoad, Hosted] = field(init=False)

    def __post_init__(self) -> None:
        self._workers = Pool(capacity=self.capacity)

    def argv(self, spec: RunSpec) -> tuple[str, ...]:
        """Return a command that makes the same run in a worker of its own, and prints its record."""
        return (*self.command, *words(self._run(spec), _folder(self.install)))

    def load_key(self, spec: RunSpec) -> Hashable:
        """Return what a worker is started for: the pair's target, whatever drafts for it."""
        return self._target(spec)

    def close(self) -> None:
        """End all workers."""
        self._workers.clear()

    def measure(self, spec: RunSpec, log: Path) -> Measurement:
        """Run once, in a worker that is started first where there is none."""
        out, err = log.with_suffix(".out"), log.with_suffix(".err")
        run = self._run(spec)
        drafters = (run.drafter,) if run.drafter is not None else ()
        asked = self._ask(spec, run, run.target, drafters)
        record = asked.reply.to_json() if isinstance(asked.reply, Record) else ""
        out.write_text(record, encoding="utf-8", newline="\n")
        err.write_bytes(asked.log)
        sample = Sample(
            status=Status.SUMMARY_LOST,
            program=Program.PLAIN if spec.drafting is None else Program.SIMPLE,
            n_draft=spec.drafting.n_max if spec.drafting else None,
        )
        error: str | None = None
        if asked.failure is not None:
            sample, error = replace(sample, status=asked.failure.status), asked.failure.reason
        else:
            sample = reading.sample(Record.from_json(out.read_text(encoding="utf-8")))
            error = None if sample.status is Status.OK else "the drafter proposed nothing"
        return Measurement(
            sample=replace(
                placed(sample, asked.head, asked.beside),
                build=self.install.describe().version,
                text=sample.text if sample.status is Status.OK else None,
            ),
            argv=self.argv(spec),
            wall_s=asked.wall_s,
            error=error,
        )

    def trace(
        self, spec: RunSpec, drafters: Sequence[ModelFile], *, writing: tuple[int, int] | None = None
    ) -> RecordedTrace:
        """Let the target write one text, and every drafter look at it; see Trace.

        Args:
            spec: the target's run; what it says of drafting is not asked.
            drafters: their layers are those of ``spec.offload``.
            writing: place and draft size of the one that helps to write a greedy text; None for nobody.

        Raises:
            Failure: a model does not load, a drafter is refused, or the library fails.
        """
        run = TraceRun(
            target=self._target(spec),
            drafters=self._drafters(spec, drafters),
            prompt=spec.prompt.text,
            n_predict=spec.n_predict,
            threads=spec.threads,
            sampling=spec.sampling,
            writing=writing,
        )
        reply = self._asked(spec, run)
        assert isinstance(reply, RecordedTrace)
        return reply

    def curve(
        self,
        spec: RunSpec,
        drafters: Sequence[ModelFile],
        *,
        batches: Sequence[int] = _BATCHES,
        depths: Sequence[int],
        repeats: int = 3,
    ) -> Curve:
        """Time evaluations of every size at every depth; see CurveRun.

        Args:
            spec: the target's run; its prompt gives the tokens that are evaluated, its sampling the choices.
            drafters: each is timed in rounds with the target; without any, the target is timed alone.
            batches: sizes of target batches in tokens.
            depths: tokens in the caches before.
            repeats: how often to go through all sizes; each time gives two samples.

        Raises:
            Failure: as ``trace``, or the deepest round does not fit into the context.
        """
        run = CurveRun(
            target=self._target(spec),
            drafters=self._drafters(spec, drafters),
            text=spec.prompt.text,
            threads=spec.threads,
            batches=tuple(batches),
            depths=tuple(depths),
            repeats=repeats,
            sampling=spec.sampling,
        )
        reply = self._asked(spec, run)
        assert isinstance(reply, Curve)
        return reply

    def _asked(self, spec: RunSpec, run: TraceRun | CurveRun) -> Reply | None:
        asked = self._ask(spec, run, run.target, run.drafters)
        if asked.failure is not None:
            asked.failure.log = asked.log
            raise asked.failure
        return asked.reply

    def _ask(
        self, spec: RunSpec, request: Request, target: ModelLoad, drafters: Sequence[ModelLoad]
    ) -> _Asked:
        """Ask the worker of a target, once everything is loaded; a failure leaves what can still be used."""
        host = self._target(spec)
        asked = _Asked(started_s=time.perf_counter())
        hosted: Hosted | None = None
        try:
            try:
                hosted = self._worker(host)
                load_s = hosted.prepare(target, drafters, spec.threads, self.timeout_s)
                asked.started_s = time.perf_counter()
                asked.reply = hosted.link.ask(request, timeout_s=self.timeout_s)
                if isinstance(asked.reply, Record):
                    asked.reply = replace(asked.reply, load_s=load_s)
            except Failure as failure:
                asked.failure = failure
            asked.wall_s = time.perf_counter() - asked.started_s
            if hosted is not None:
                asked.head = hosted.heads.get((target, False), asked.head)
                heads = (hosted.heads.get((drafter, drafter == target)) for drafter in drafters)
                asked.beside = next((as_drafter(head) for head in heads if head is not None), None)
                asked.log = hosted.link.read_log()
        finally:  # also when Ctrl-C ends the wait
            self._workers.drop_unusable(host)
        return asked

    def _worker(self, host: ModelLoad) -> Hosted:
        """Return the worker of a target; a new one without one that is usable."""
        command = (*self.command, "--library", str(self._library()))
        hosted = self._workers.get(host)
        if hosted is None:
            self._workers.make_room()
            hosted = Hosted(link=start(command))
            self._workers.put(host, hosted)
        return hosted

    def _library(self) -> Path:
        """Return the folder of the library for a worker.

        Raises:
            Failure: there is none, or it cannot be used through the installed binding.
        """
        if self.command != WORKER:
            return _folder(self.install)  # another worker brings its own binding
        try:
            return check_library(self.install)
        except NoInstallError as error:
            raise Failure(Status.LOAD_FAILED, f"{error.message}; {error.hint}") from error

    def _run(self, spec: RunSpec) -> Run:
        """Return what a worker is asked.

        Raises:
            GgufspecError: something else than a model shall draft, or layers shall be fitted to memory.
        """
        drafter = spec.drafter
        if spec.offload.fit:
            raise GgufspecError(
                f"the engine {self.name} cannot fit layers to memory: llama.cpp's library does not",
                "leave --fit out, or use another --engine",
            )
        method = spec.drafting.method if spec.drafting is not None else None
        if method is not None and not method.needs_drafter:
            raise GgufspecError(
                f"the engine {self.name} drafts with a second model only, not by {method.value}",
                "use `--engine server` or `--engine binary-simple`",
            )
        return Run(
            target=self._load(spec.model, spec.own_offload, spec),
            drafter=None if drafter is None else self._drafters(spec, (drafter,))[0],
            prompt=spec.prompt.text,
            n_predict=spec.n_predict,
            threads=spec.threads,
            sampling=spec.sampling,
            drafting=spec.drafting,
        )

    def _drafters(self, spec: RunSpec, drafters: Sequence[ModelFile]) -> tuple[ModelLoad, ...]:
        return tuple(self._load(drafter, spec.offload.drafter_as_target, spec) for drafter in drafters)

    def _target(self, spec: RunSpec) -> ModelLoad:
        return self._load(spec.pair.target, spec.offload, spec)

    def _load(self, model: ModelFile, own: Offload, spec: RunSpec) -> ModelLoad:
        return ModelLoad(
            path=str(model.path),
            context_tokens=spec.context,
            gpu_layers=_layers(own.target_layers, self.install),
            kv_type=spec.kv_type,
            ubatch_tokens=spec.ubatch,
            devices=own.devices,
            tensor_split=own.tensor_split,
            split_mode=own.split_mode and own.split_mode.value,
            main_gpu=own.main_gpu,
            cpu_moe=own.cpu_moe,
        )


@dataclass(kw_only=True)
class _Asked:
    """What came of a request, and what was logged meanwhile."""

    started_s: float
    wall_s: float = 0.0
    reply: Reply | None = None
    failure: Failure | None = None
    head: Sample = field(default_factory=lambda: Sample(status=Status.SUMMARY_LOST))
    beside: Sample | None = None  # of the first drafter
    log: bytes = b""


def _layers(layers: Layers, install: Install) -> int | None:
    """Return a number of GPU layers for the library; None leaves its default, which is all of them."""
    if layers == "auto":
        return 0 if install.gpu is False else None
    return _EVERYTHING if layers == "all" else layers


def _folder(install: Install) -> Path:
    """Return where an install's library is looked for."""
    return install.library or install.root
