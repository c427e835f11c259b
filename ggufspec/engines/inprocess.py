"""The engine ``inprocess``: llama.cpp as a library, whose models stay loaded between runs.

The library runs in a child process (a worker), so that its crash is only a failed run. One worker holds one
target and the drafters requested for it.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from ggufspec.domain import (
    NO_PROMPT,
    Chain,
    Failure,
    HeadFile,
    Method,
    ModelFile,
    Offload,
    Program,
    RunSpec,
    Sample,
    Status,
)
from ggufspec.engines import rereading
from ggufspec.engines.engine import LoadingEngine, Measurement, as_drafter, with_placement
from ggufspec.engines.library import messages
from ggufspec.engines.library.commandline import WORKER, format_command, format_library
from ggufspec.engines.library.selftest import check_library
from ggufspec.engines.library.worker_process import HostedWorker, start
from ggufspec.errors import GgufspecError, NoInstallError
from ggufspec.llama.command import count_layers, drafter_devices
from ggufspec.llama.install import Install
from ggufspec.llama.rpc import workers

R = TypeVar("R")
_BATCHES = tuple(range(1, 18))  # tokens: every γ up to 16


@dataclass(kw_only=True)
class InprocessEngine(LoadingEngine[HostedWorker]):
    """Keeps workers, one for each target and way to load it.

    With ``with_mtp``, targets are loaded with their layers for MTP, so that these can be traced.
    """

    name: str = "inprocess"
    command: tuple[str, ...] = WORKER
    with_mtp: bool = False
    _checked: Path | None = field(init=False, default=None)

    def argv(self, spec: RunSpec) -> tuple[str, ...]:
        """Return a command that makes the same run in a separate worker and prints its record."""
        try:
            library = self._library()
        except Failure:
            library = _place(self.install)
        return (*self.command, *format_command(self._run(spec), library))

    def load_key(self, spec: RunSpec) -> Hashable:
        """Return how the pair's target is loaded, as one worker serves all its drafters, or else the arm."""
        return replace(spec, prompt=NO_PROMPT) if self.per_arm else self._target(spec)

    def start_worker(self, spec: RunSpec) -> None:
        """Start the worker of a run, and return before it is ready; without this, the first request does.

        Raises:
            Failure: it cannot be started.
        """
        self._worker(self.load_key(spec), spec)

    def load(self, spec: RunSpec, drafters: Sequence[ModelFile] = ()) -> float:
        """Load the target of a run and drafters into its worker; return the seconds that the models took.

        Raises:
            Failure: a model does not load or not in time, or a drafter is refused.
        """
        key = self.load_key(spec)
        try:
            worker = self._worker(key, spec)
            loads = self._target(spec), self._drafters(spec, drafters)
            return worker.prepare(*loads, spec.threads, self.timeout_s) or 0.0
        finally:
            self._pool.drop_unusable(key)

    def measure(self, spec: RunSpec, log: Path) -> Measurement:
        """Run once, in the target's worker, which is started first if necessary."""
        out, err = log.with_suffix(".out"), log.with_suffix(".err")
        exchange = self._ask(spec, self._run(spec))
        record, error = "", None
        if exchange.failure is not None:
            sample, error = self.failed(spec, exchange.failure), exchange.failure.reason
        else:
            assert isinstance(exchange.reply, messages.LibraryRecord)
            record, sample = exchange.reply.to_json(), rereading.read_record(exchange.reply)
            error = None if sample.status is Status.OK else "the drafter proposed nothing"
        out.write_text(record, encoding="utf-8", newline="\n")
        err.write_bytes(exchange.log)
        return Measurement(
            sample=replace(
                with_placement(sample, exchange.load, exchange.drafter_load),
                build=self.install.describe().version,
                text=sample.text if sample.status is Status.OK else None,
            ),
            argv=self.argv(spec),
            wall_s=exchange.wall_s,
            error=error,
            load=exchange.load_number,
        )

    def trace(
        self,
        spec: RunSpec,
        drafters: Sequence[ModelFile],
        *,
        writing: tuple[int, int] | None = None,
        limits: messages.DraftLimits = messages.DEFAULT_LIMITS,
        program: Program = Program.SIMPLE,
        twice: bool = False,
    ) -> messages.RecordedTrace:
        """Let the target generate one text, and every drafter evaluate it; see TraceRun.

        Args:
            spec: the target's run; its drafting is ignored.
            drafters: their layers are those of ``spec.offload``.
            writing: index and draft size of the drafter that drafts while a greedy text is generated, or
            None.
            limits: the draft sizes and values of p_min for which heads draft.
            program: in whose batches the prompt is evaluated.
            twice: whether to write a greedy text with near-ties in batches, too.

        Raises:
            Failure: a model does not load, a drafter is refused, or the library fails.
        """
        task = self._task(spec, drafters)
        how: dict[str, Any] = {"writing": writing, "limits": limits, "program": program, "twice": twice}
        return self._request(spec, messages.TraceRun(**task, **how), messages.RecordedTrace)

    def curve(
        self,
        spec: RunSpec,
        drafters: Sequence[ModelFile],
        *,
        batches: Sequence[int] = _BATCHES,
        depths: Sequence[int],
        repeats: int = 3,
    ) -> messages.Curve:
        """Time evaluations of every size at every depth; see CurveRun.

        Args:
            spec: the target's run; the tokens of its prompt are evaluated, its samplers choose.
            drafters: each is timed in rounds with the target; if empty, the target is timed alone.
            batches: sizes of target batches in tokens.
            depths: tokens in the caches before the round.
            repeats: passes through all sizes; each gives two samples.

        Raises:
            Failure: as for ``trace``, or the deepest round does not fit into the context.
        """
        task = self._task(spec, drafters)
        run = messages.CurveRun(**task, batches=tuple(batches), depths=tuple(depths), repeats=repeats)
        return self._request(spec, run, messages.Curve)

    def score(self, spec: RunSpec, answer: tuple[int, ...] | str, *, ended: bool) -> messages.TextScores:
        """Let the target score every token of a text; see ScoreRun.

        Args:
            spec: the target's run; its length is not used.
            answer: the text after its prompt, in tokens where they are known.
            ended: whether the text ended by itself; else it was cut.

        Raises:
            Failure: the target does not load, the library fails, or the text does not fit into the context.
        """
        return self._request(
            spec, messages.ScoreRun(**self._task(spec), answer=answer, ended=ended), messages.TextScores
        )

    def experts(self, spec: RunSpec, answer: tuple[int, ...]) -> messages.ExpertChoices:
        """Return which experts the target uses for each token of a text; nothing is timed.

        Args:
            spec: the target's run; its length is not used.
            answer: the tokens that it wrote after the prompt.

        Raises:
            Failure: the target does not load, or the library fails, such as for want of memory.
        """
        return self._request(
            spec, messages.ExpertRun(**self._task(spec), answer=answer), messages.ExpertChoices
        )

    def _task(self, spec: RunSpec, drafters: Sequence[ModelFile] = ()) -> dict[str, Any]:
        """Return what every request says: the fields of ``TextTask``."""
        return {
            "target": self._target(spec),
            "drafters": self._drafters(spec, drafters),
            "prompt": spec.prompt.text,
            "n_predict": spec.n_predict,
            "threads": spec.threads,
            "sampling": spec.sampling,
        }

    def _request(self, spec: RunSpec, task: messages.TextTask, expected: type[R]) -> R:
        exchange = self._ask(spec, task)
        if exchange.failure is not None:
            exchange.failure.log = exchange.log
            raise exchange.failure
        assert isinstance(exchange.reply, expected)
        return exchange.reply

    def _ask(self, spec: RunSpec, task: messages.TextTask) -> _Exchange:
        """Load the models in the run's worker and send it a request; a usable worker is kept."""
        target, drafters = task.target, task.drafters
        key = self.load_key(spec)
        exchange = _Exchange(started_s=time.perf_counter())
        worker: HostedWorker | None = None
        try:
            try:
                worker = self._worker(key, spec)
                exchange.load_number = worker.number
                load_s = worker.prepare(target, drafters, spec.threads, self.timeout_s)
                exchange.started_s = time.perf_counter()
                exchange.reply = worker.ask(task, timeout_s=self.timeout_s)
                if isinstance(exchange.reply, messages.LibraryRecord):
                    exchange.reply = replace(exchange.reply, load_s=load_s)
            except Failure as failure:
                exchange.failure = failure
            exchange.wall_s = time.perf_counter() - exchange.started_s
            if worker is not None:
                exchange.load = worker.loads.get((target, False), exchange.load)
                loads = (worker.loads.get((drafter, drafter == target)) for drafter in drafters)
                exchange.drafter_load = next((as_drafter(load) for load in loads if load is not None), None)
                exchange.log = worker.read_log()
        finally:  # also when Ctrl-C ends the wait
            self._pool.drop_unusable(key)
        return exchange

    def _worker(self, key: Hashable, spec: RunSpec) -> HostedWorker:
        """Return the worker for a load key; start one if there is no usable one.

        Raises:
            Failure: it cannot be started, or a worker on another machine does not answer.
        """
        command = (*self.command, *format_library(self._library()))
        worker = self._pool.get(key)
        if worker is None:
            self._pool.make_room()
            workers.require_workers(spec)
            worker = start(command, number=next(self._load_numbers))
            self._pool.put(key, worker)
        return worker

    def _library(self) -> Path:
        """Return the folder of the library for a worker.

        Raises:
            Failure: there is none, or it cannot be used.
        """
        if self.command != WORKER:
            return _place(self.install)  # another worker checks its own
        if self._checked is None:
            try:
                self._checked = check_library(self.install).folder
            except NoInstallError as error:
                raise Failure(Status.LOAD_FAILED, f"{error.message}; {error.hint}") from error
        return self._checked

    def _run(self, spec: RunSpec) -> messages.WorkerRun:
        """Return the request for a run.

        Raises:
            GgufspecError: the drafting method needs no model, layers are to be fitted to memory, or a setting
                of ``Runtime`` is requested.
        """
        drafter = spec.drafter
        if spec.offload.fit:
            raise GgufspecError(
                f"the engine {self.name} cannot fit layers to memory: llama.cpp's library lacks that",
                "leave --fit out, or use another --engine",
            )
        if others := (*spec.offload.cache_words, *spec.runtime.of_texts.words):
            raise GgufspecError(
                f"the engine {self.name} cannot apply {shlex.join(others)}",
                "leave that out, or use another --engine",
            )
        if spec.drafting is not None and spec.drafting.chain != Chain(Method.DRAFT_MODEL):
            raise GgufspecError(
                f"the engine {self.name} drafts only with a draft model, not by {spec.drafting.chain}",
                "use `--engine server` or `--engine binary-simple`",
            )
        task = self._task(spec, () if drafter is None else (drafter,))
        own = {"target": self._load(spec.model, spec.own_offload, spec)}
        return messages.WorkerRun(**task | own, drafting=spec.drafting)

    def _drafters(self, spec: RunSpec, drafters: Sequence[ModelFile]) -> tuple[messages.ModelLoad, ...]:
        offload = spec.offload.drafter_as_target
        devices = drafter_devices(spec.offload, self.install)
        rpc = spec.offload.rpc if spec.offload.lends_to_drafter else ()
        placed = replace(offload, target=replace(offload.target, devices=devices), rpc=rpc)
        return tuple(
            replace(
                self._load(drafter, placed, spec),
                head=drafter.method if isinstance(drafter, HeadFile) else None,
            )
            for drafter in drafters
        )

    def _target(self, spec: RunSpec) -> messages.ModelLoad:
        return replace(self._load(spec.pair.target, spec.offload, spec), with_mtp=self.with_mtp)

    def _load(self, model: ModelFile, offload: Offload, spec: RunSpec) -> messages.ModelLoad:
        return messages.ModelLoad(
            path=str(model.path),
            context_tokens=spec.context,
            gpu_layers=count_layers(offload.target, self.install, remote=bool(offload.rpc)),
            kv_type=None if offload.target.caches is None else offload.target.caches.type_k,
            ubatch_tokens=spec.ubatch,
            devices=offload.target.devices,
            tensor_split=offload.tensor_split,
            split_mode=offload.split_mode and offload.split_mode.value,
            main_gpu=offload.main_gpu,
            cpu_moe=offload.target.cpu_moe,
            rpc=offload.rpc,
        )


@dataclass(kw_only=True)
class _Exchange:
    """A request's reply or failure, and the log of the time between."""

    started_s: float
    wall_s: float = 0.0
    reply: messages.WorkerReply | None = None
    failure: Failure | None = None
    load: Sample = field(default_factory=lambda: Sample(status=Status.SUMMARY_LOST))
    drafter_load: Sample | None = None  # of the first drafter
    log: bytes = b""
    load_number: int | None = None


def _place(install: Install) -> Path:
    """Return where to look for an install's library."""
    return install.library or install.root
