"""``ggufspec build``: from options to one build in its place, or to builds that are listed and removed."""

from __future__ import annotations

import time
from collections.abc import Generator
from datetime import UTC, datetime

from ggufspec import userfiles
from ggufspec.choices import Backend
from ggufspec.llama.build import prebuilt, recipes, toolchain
from ggufspec.llama.build.building import BuildRequest
from ggufspec.llama.build.prebuilt import PrebuiltRequest
from ggufspec.llama.install import Install, installs, store
from ggufspec.llama.install.store import Built, Skipped
from ggufspec.llama.source import choose_source
from ggufspec.options import BuildOptions, takes
from ggufspec.steps import SILENT, BuildProgress, BuildStep, Sink, relay

_AUTO = "auto"
_POLL_S = 0.5
_COMPILING = ("source", "cmake", "cuda_arch", "jobs")  # options that mean nothing to an archive

MakeRequest = BuildRequest | PrebuiltRequest
"""A llama.cpp to compile, or to fetch."""


@takes(BuildOptions)
def build(asked: BuildOptions, sink: Sink = SILENT) -> Built:
    """Build llama.cpp for this machine, as ``ggufspec build`` does; an existing build is reused.

    Raises:
        ValueError: the options contradict each other.
        GgufspecError: the source is not available, or does not compile here.
    """
    request, reason = request_build(asked)
    if reason is not None:
        sink.say(f"backend: {reason}")
    built = store.find_build(request.key())
    if built is None:
        built = run_build(request, sink)
    else:
        sink.say(f"already built: {built.summary}")
    for difference in toolchain.differences(built.environment):
        again = f"`ggufspec cache prune builds/{built.path.name}` and `ggufspec build` use what is set now"
        sink.say(f"note: {difference}; {again}")
    return built


def request_build(asked: BuildOptions) -> tuple[MakeRequest, str | None]:
    """Return which build options ask for, and why it is for this backend, where they do not say.

    Raises:
        ValueError: the options contradict each other.
    """
    try:
        added = recipes.parse_definitions(asked.cmake)
    except ValueError as error:
        raise ValueError(f"--cmake: {error}") from error
    reason = None
    if asked.backend == _AUTO:
        backend, reason = (prebuilt if asked.prebuilt else toolchain).choose_backend()
    else:
        backend = Backend(asked.backend)
    if asked.cuda_arch is not None and backend is not Backend.CUDA:
        raise ValueError("--cuda-arch needs --backend cuda")
    if asked.prebuilt:
        for name in _COMPILING:
            if getattr(asked, name):
                option = asked.options[name].name
                raise ValueError(f"{option} is for compiling, and --prebuilt compiles nothing")
        return PrebuiltRequest(backend=backend, wanted=asked.version), reason
    request = BuildRequest(
        source=choose_source(asked.source, asked.version),
        backend=backend,
        jobs=asked.jobs or toolchain.default_jobs(),
        architectures=toolchain.cuda_architectures(asked.cuda_arch) if backend is Backend.CUDA else (),
        added=added,
    )
    return request, reason


def run_build(request: MakeRequest, sink: Sink) -> Built:
    """Make a build, and say what was built."""
    notices: set[str] = set()

    def note(event: BuildProgress) -> BuildProgress:
        if event.notice:
            notices.add(event.line)
        return event

    built = sink.finish(relay(provide_build(request), note))
    sink.say(f"built: {built.summary}")
    if built.note and built.note not in notices:
        sink.say(f"note: {built.note}")
    return built


def provide_build(request: MakeRequest) -> Generator[BuildProgress, None, Built]:
    """Return the requested build; make it if it does not exist.

    A damaged build is made again. Close the generator to stop: no process and no incomplete build is left.

    Raises:
        SourceError: the source is not available.
        BuildError: it does not compile, or what was compiled or fetched does not work.
        DiskFullError: the disk is full.
    """
    name = request.key()
    store.sweep()
    waiting = False
    while True:
        with store.try_lock(name) as is_locked:
            existing = store.examine(store.place(name))
            if isinstance(existing, Built):
                return existing
            if is_locked:
                if existing is not None:
                    line = f"built again, because {existing.reason}"
                    yield BuildProgress(step=BuildStep.WAIT, line=line, notice=True)
                return (yield from _make(request, name))
        if not waiting:
            yield BuildProgress(
                step=BuildStep.WAIT, line=f"{name} is being built by another process: waiting", notice=True
            )
            waiting = True
        time.sleep(_POLL_S)


def _make(request: MakeRequest, name: str) -> Generator[BuildProgress, None, Built]:
    work, log, environment = store.workplace(name), store.log_path(name), toolchain.shaping()
    log.write_bytes(b"")
    try:
        with userfiles.making(f"build {name}"):
            for folder in ("source", "scratch"):
                (work / folder).mkdir(exist_ok=True)
            made = yield from request.make(work, log)
            built = Built(
                path=store.place(name),
                backend=request.backend.value,
                source=request.origin,
                built_at=datetime.now(UTC).isoformat(timespec="seconds"),
                added=request.added,
                environment=environment,
                **vars(made),
            )
            return store.publish(name, work / "final", built, log)
    finally:
        if log.exists() and not log.stat().st_size:
            log.unlink()  # no tool ran, so the log is empty


def list_builds() -> tuple[tuple[Install, ...], tuple[Skipped, ...]]:
    """Return the usable llama.cpps of this machine, and those that cannot be used, with the reasons."""
    return installs.survey_installs()
