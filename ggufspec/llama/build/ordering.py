"""``ggufspec build``: from options to one build, or to the builds that are listed and removed."""

from __future__ import annotations

from collections.abc import Sequence

from ggufspec.choices import Backend
from ggufspec.llama.build import building, prebuilt, recipes, toolchain
from ggufspec.llama.build.building import BuildRequest, MakeRequest
from ggufspec.llama.install import Install, installs, store
from ggufspec.llama.install.store import Built, Skipped
from ggufspec.llama.source import LEGACY, choose_source
from ggufspec.options import BuildOptions, takes
from ggufspec.steps import SILENT, BuildProgress, Sink, relay

_AUTO = "auto"
_COMPILING = ("source", "cmake", "cuda_arch", "jobs")  # options that mean nothing to an archive


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
        sink.say(f"note: {difference}")
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
        return prebuilt.PrebuiltRequest(backend=backend, wanted=asked.version), reason
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

    built = sink.finish(relay(building.build(request), note))
    sink.say(f"built: {built.summary}")
    if built.note and built.note not in notices:
        sink.say(f"note: {built.note}")
    return built


def list_builds() -> tuple[tuple[Install, ...], tuple[Skipped, ...]]:
    """Return the usable llama.cpps of this machine, and those that cannot be used, with the reasons."""
    return installs.survey_installs()


@takes(BuildOptions)
def remove_builds(asked: BuildOptions) -> Sequence[Built]:
    """Remove the builds of a version, of a backend, or of both, as ``ggufspec build --remove`` does.

    Raises:
        ValueError: the options name neither, or something that only a new build has.
    """
    if asked.cmake:
        raise ValueError("--cmake chooses what is built; --list and --remove take no --cmake")
    backend = None if asked.backend == _AUTO else asked.backend
    if asked.version is None and backend is None:
        raise ValueError("--remove needs --version, --backend or both")
    return store.remove(LEGACY if asked.version == "legacy" else asked.version, backend)
