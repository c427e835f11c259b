"""An installed llama.cpp: which programs it has, which version it is and which flags it understands."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path

from ggufspec import machine, paths
from ggufspec.domain import Build, Program
from ggufspec.errors import GgufspecError, NoInstallError
from ggufspec.llama.install import options, packages, releases, store
from ggufspec.llama.install.environment import capture_program, is_of_llama, loaded_libraries
from ggufspec.llama.install.library import find_library
from ggufspec.llama.install.options import ListedFlags, parse_help
from ggufspec.llama.install.packages import Package
from ggufspec.llama.install.store import Built, Skipped
from ggufspec.machine import Gpu
from ggufspec.options import settings

NAMES: Mapping[Program, tuple[str, ...]] = {
    Program.PLAIN: ("llama-completion", "llama-cli", "main", "llama completion"),
    Program.TREE: ("llama-speculative", "speculative"),
    Program.SIMPLE: ("llama-speculative-simple",),
    Program.SERVER: ("llama-server", "server", "llama serve"),
}
"""The names of each program, newest first. Stubs and chat clients of the same name are refused.

The official installer has one program ``llama`` for all; it drafts in its server alone (app/llama.cpp).
"""

_FIRST_BUILD = 1000  # older than any that has a program for drafting
_TOKENIZERS = ("llama-tokenize", "tokenize")
_QUANTIZERS = ("llama-quantize", "quantize", "llama quantize")
_WORKERS = ("ggml-rpc-server", "rpc-server")
_FILES = tuple(
    dict.fromkeys(
        name.split()[0] for names in (*NAMES.values(), _TOKENIZERS, _QUANTIZERS, _WORKERS) for name in names
    )
)
_INSTALLED = "~/.local/bin"
"""Where the official installer puts ``llama``; many shells have it on PATH only after a new login."""
_VERSION = re.compile(r"^version: (?:(\d+) \((\w+)\)|(\S+) \(build (\d+), commit (\w+)\))", re.MULTILINE)
WITHOUT_RPC_HINT = "`ggufspec build` makes one with it; `ggufspec build --list` shows where others are"
"""What to do about a llama.cpp that was built without RPC."""

_PROGRAMS_HINT = "name the folder with llama-completion and llama-speculative (or main and speculative)"
_SUBFOLDERS = (".", "bin", "build/bin")
_COMPILER = re.compile(r"^built with (.+)$", re.MULTILINE)
_CHAT_CLIENT = "--show-timings"  # only the llama-cli that became a chat client (b7348) has it
_LIBRARY = re.compile(r".+\.(?:so|dylib)(?:\.[\d.]+)?")
_PLUGINS = "ggml/*/libggml-*.so"  # as Debian has them
IK = "ik_llama.cpp"
"""The fork of that name. It counts its own commits, so its build numbers say nothing of llama.cpp's rules."""
_FLAG_OF_IK = "--mla-use"  # of every program with the fork's parser, from February 2025 on


@dataclass(frozen=True, kw_only=True)
class Executable:
    """One program of an install and its flags; ``command`` is what the program ``llama`` is told to be."""

    path: Path
    options: ListedFlags
    command: str | None = None

    @property
    def name(self) -> str:
        """Its name for people."""
        return " ".join(filter(None, (self.path.name, self.command)))

    @property
    def argv(self) -> tuple[str, ...]:
        """The words that start it."""
        return (str(self.path), *filter(None, (self.command,)))


@dataclass(frozen=True, kw_only=True)
class Install:
    """A llama.cpp that can be used for measurements. Missing programs are missing keys.

    An installed llama-cpp-python has none, only a library.
    """

    root: Path
    origin: str
    programs: Mapping[Program, Executable]
    version: str | None  # what the programs report, or the release that was built
    build_number: int | None  # llama.cpp's own count of commits; None if unknown
    commit: str | None
    backend: str | None  # None if neither the manifest nor the programs show it
    devices: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()  # GPUs that it can use, and their free memory when it was found
    tokenizer: Executable | None = None
    quantizer: tuple[str, ...] | None = None  # the words that start it
    worker: Path | None = None  # the program that lends this machine's devices to a llama.cpp elsewhere
    has_rpc: bool | None = None  # whether it uses workers elsewhere; None where nothing shows it
    library: Path | None = None  # the folder of the shared libraries beside the programs
    release: str | None = None  # of the package that a build of our own was made of: 0.3.36, or b11434
    fork: str | None = None  # the project whose llama.cpp it is, where it is not llama.cpp's own
    note: str | None = None  # a note for the user about an own build
    compiler: str | None = None  # what the programs report
    flags: tuple[str, ...] = ()  # options and variables of a build of our own
    added: tuple[str, ...] = ()  # those options of CMake that the user added, as NAME=VALUE
    passed_over: tuple[str, ...] = ()  # newer builds that cannot be used, and why

    @property
    def gpu(self) -> bool | None:
        """Whether layers can go to a GPU; None if that is unknown."""
        return None if self.backend is None else bool(self.devices) or self.backend not in {"cpu", ""}

    def executable(self, program: Program) -> Executable:
        """Return a program.

        Raises:
            NoInstallError: this install lacks it.
        """
        executable = self.programs.get(program)
        if executable is None:
            source = "official installations leave it out" if self.programs else "it is a library alone"
            drafts = Program.SERVER in self.programs and program in {Program.TREE, Program.SIMPLE}
            raise NoInstallError(
                f"the llama.cpp in {self.root} has no {NAMES[program][0]}",
                f"{source}; {'`--engine server` drafts without it, and ' * drafts}"
                "`ggufspec build` makes a complete one",
            )
        return executable

    def describe(self) -> Build:
        """Return what is stored with every result."""
        return Build(
            version=self.version,
            commit=self.commit,
            backend=self.backend,
            path=str(self.root),
            compiler=self.compiler,
            flags=self.flags,
        )

    def program_files(self, wanted: Iterable[Program]) -> tuple[Path, ...]:
        """Return the files of those wanted programs that are here, and of the tokenizer program."""
        executables = [*(self.programs.get(program) for program in wanted), self.tokenizer]
        return tuple(dict.fromkeys(program.path.resolve() for program in executables if program is not None))

    def library_files(self, programs: Iterable[Path]) -> tuple[Path, ...]:
        """Return the libraries of llama.cpp that programs load, and those beside them.

        Those beside them include backends, which a program chooses by the processor when it runs.
        """
        folders = {program.parent for program in programs} | {self.root.resolve()}
        loaded = frozenset[Path]().union(*map(loaded_libraries, programs))
        found = [path for folder in folders for path in _libraries_in(folder)]
        elsewhere = {library.parent for library in loaded} | {folder.parent / "lib" for folder in folders}
        if self.library is not None:
            elsewhere.add(self.library.resolve())
        found += [path for folder in elsewhere for path in _libraries_in(folder) if is_of_llama(path)]
        found += [path for folder in elsewhere for path in folder.glob(_PLUGINS)]
        return tuple(sorted({path.resolve() for path in found}))


@dataclass(frozen=True, kw_only=True)
class _ProgramVersion:
    """The output of ``--version``; builds from an archive report neither number nor commit."""

    text: str | None = None
    number: int | None = None
    commit: str | None = None
    compiler: str | None = None

    @classmethod
    def read(cls, match: re.Match[str]) -> _ProgramVersion:
        old, old_commit, release, new, new_commit = match.groups()
        counted = int(old or new)
        number = counted if counted >= _FIRST_BUILD else None  # archives and shallow clones have 0 or 1
        commit = old_commit or new_commit
        compiler = _COMPILER.search(match.string)
        return cls(
            compiler=compiler[1].strip() if compiler else None,
            text=" ".join(filter(None, (release, f"b{number}" if number else None))) or None,
            number=number,
            commit=commit if commit != "unknown" else None,
        )


def find_install(explicit: Path | None = None) -> Install:
    """Return the install to measure with.

    That is the given one, the configured one (GGUFSPEC_LLAMA, otherwise ``llama`` of the settings file), our
    newest build, that on PATH, or the library of an installed llama-cpp-python.

    Args:
        explicit: a folder that was named for it.

    Raises:
        NoInstallError: the named folder contains no llama.cpp, or none was found.
        GgufspecError: the settings file is wrong.
    """
    named, origin = (explicit, "--llama") if explicit else _set()
    if named is not None:
        found = _look_into(paths.expanded(str(named), origin), origin)
        if isinstance(found, Install):
            return found
        if isinstance(found, Skipped):
            message = f"{origin} names {named}, which cannot be used: {found.reason}"
            raise NoInstallError(message, found.remedy)
        hint = _PROGRAMS_HINT if explicit else settings.remedy("llama", origin)
        raise NoInstallError(f"{origin} names {named}, which contains no working llama.cpp program", hint)
    passed_over: list[Skipped] = []
    for candidate in _search():
        if isinstance(candidate, Install):
            damaged = (skipped for skipped in passed_over if skipped.is_damaged)
            return replace(candidate, passed_over=tuple(map(str, damaged)))
        passed_over.append(candidate)
    for skipped in passed_over:
        if skipped.is_damaged:
            raise NoInstallError(
                f"the build of llama.cpp in {skipped.path} cannot be used: {skipped.reason}", skipped.remedy
            )
    unused = (f"{entry.path} is not used: {entry.reason}" for entry in passed_over)
    raise NoInstallError(
        "; ".join(("no llama.cpp was found", *unused)),
        "run `ggufspec build`, or `ggufspec demo` to build it and measure the embedded pair, or name an "
        "installed one with --llama",
    )


def is_any_found() -> bool:
    """Return whether a llama.cpp is named by the settings, or one that can be used is found."""
    return _set()[0] is not None or any(isinstance(candidate, Install) for candidate in _search())


def survey_installs() -> tuple[tuple[Install, ...], tuple[Skipped, ...]]:
    """Return every install, that of ``find_install`` first, and the builds that cannot be used."""
    first = None
    with suppress(GgufspecError):  # wrong settings are reported by the command that needs an install
        named, origin = _set()
        first = probe(paths.expanded(str(named), origin), origin) if named else None
    candidates = tuple(_search())
    usable = (candidate for candidate in candidates if isinstance(candidate, Install))
    skipped = tuple(candidate for candidate in candidates if isinstance(candidate, Skipped))
    return (*((first,) if first else ()), *usable), skipped


def detect_gpus() -> tuple[Gpu, ...]:
    """Return this machine's GPUs: those that the llama.cpp in use lists, else those of NVIDIA's driver."""
    with suppress(NoInstallError):
        listed = find_install().gpus
        if listed:
            return listed
    return machine.nvidia_gpus()


def probe(path: Path, origin: str, built: Built | None = None) -> Install | None:
    """Look for programs in a folder, its bin or build/bin, or beside a program; None without any.

    A folder of llama-cpp-python needs only its library. A damaged build of our own is ignored.
    """
    found = _look_into(path, origin, built)
    return found if isinstance(found, Install) else None


def _look_into(path: Path, origin: str, built: Built | None = None) -> Install | Skipped | None:
    """Return what ``probe`` finds, or else what is there and why it cannot be used."""
    skipped: Skipped | None = None
    folder = path.parent if path.is_file() else path
    for candidate in (folder / sub for sub in _SUBFOLDERS):
        build = built or _own_build(candidate)
        if isinstance(build, Skipped) and build.is_damaged:
            skipped = skipped or build
            continue
        executables = {name: candidate / name for name in _FILES if shutil.which(candidate / name)}
        built_here = build if isinstance(build, Built) else None
        install = _assemble(candidate.resolve(), origin, executables, built_here)
        if install is not None:
            return install
    package = packages.find_package_in(path)
    return _of_package(package, origin) if isinstance(package, Package) else skipped or package


def _own_build(folder: Path) -> Built | Skipped | None:
    """Return the build that a manifest beside a folder of programs describes; None for other programs."""
    home = folder.resolve().parent
    return store.examine(home) if (home / store.MANIFEST).is_file() else None


def _set() -> tuple[Path | None, str]:
    """Return the folder that the environment or the settings file names, and the place of that setting."""
    setting = settings.one("llama")
    return (None, "") if setting.value is None else (Path(str(setting.value)), setting.where or setting.key)


def _search() -> Iterator[Install | Skipped]:
    """Yield our builds, the preferred one first, the install on PATH, then llama-cpp-python's library."""
    manifests = store.read_manifests()
    for folder in sorted(manifests, key=lambda folder: _age(manifests[folder])):
        build = store.examine(folder)
        if isinstance(build, Skipped):
            yield build
        elif build is not None:  # None if it was removed meanwhile
            install = probe(build.bin, store.OWN_BUILD, build)
            reason = "its programs do not start"
            yield install or Skipped(path=build.path, reason=reason, command=build.command, built=build)
    on_path = {name: where for name in _FILES if (where := _find_on_path(name))}
    if on_path:
        root = next(iter(on_path.values())).resolve().parent
        own_build = _own_build(root)
        if isinstance(own_build, Skipped) and own_build.is_damaged:
            yield own_build
        else:
            install = _assemble(root, "PATH", on_path, own_build if isinstance(own_build, Built) else None)
            if install is not None:
                yield install
    package = packages.find_package()
    if package is not None:
        yield _of_package(package, packages.NAME) if isinstance(package, Package) else package


def _of_package(package: Package, origin: str) -> Install:
    backend = options.backend(package.devices)
    return Install(
        root=package.folder,
        origin=origin,
        programs={},
        version=package.release,
        build_number=releases.build_number(package.release),
        commit=releases.COMMITS.get(package.version),
        backend=backend,
        devices=tuple(device.name for device in package.devices),
        gpus=options.gpus(package.devices, backend),
        library=package.library,
    )


def _assemble(
    root: Path, origin: str, paths_by_name: Mapping[str, Path], built: Built | None
) -> Install | None:
    programs: dict[Program, Executable] = {}
    versions: list[_ProgramVersion] = []
    for program, names in NAMES.items():
        for file, *command in map(str.split, names):
            if file not in paths_by_name:
                continue
            executable, version = _inspect(paths_by_name[file], program, *command)
            if executable is not None:
                programs[program] = executable
                versions.append(version)
                break
    if Program.PLAIN not in programs and Program.SERVER not in programs:
        return None
    reported = versions[0]
    name = built.version if built else reported.text
    number = reported.number or (releases.build_number(built.version) if built else _guess(programs))
    fork = IK if any(_FLAG_OF_IK in executable.options for executable in programs.values()) else None
    if fork is not None:
        name, number = " ".join(filter(None, (fork, reported.text))), None
    first = next(iter(programs.values()))
    listed = None  # where the build is too old to list devices
    if options.DEVICES_FLAG in first.options:
        listed = options.parse_devices(capture_program([*first.argv, options.DEVICES_FLAG])[1])
    tokenizer: Executable | None = None
    if path := next((paths_by_name[name] for name in _TOKENIZERS if name in paths_by_name), None):
        _, text, _ = capture_program([str(path), "--help"])
        tokenizer = Executable(path=path, options=parse_help(text, plain=False))
    variables = (built.environment if built else None) or {}
    backend = built.backend if built else options.backend(listed)
    return Install(
        root=root,
        origin=origin,
        programs=programs,
        version=name,
        build_number=number,
        commit=(built.commit if built else None) or reported.commit,
        backend=backend,
        devices=tuple(device.name for device in listed or ()),
        gpus=options.gpus(listed, backend),
        tokenizer=tokenizer,
        quantizer=_quantizer(paths_by_name, programs),
        worker=(worker := next((paths_by_name[name] for name in _WORKERS if name in paths_by_name), None)),
        has_rpc=built.has_rpc if built else True if worker else None,
        library=_library_folder(root, first.path),
        release=built.version if built and built.source.startswith("sdist ") else None,
        fork=fork,
        note=built.note if built else None,
        compiler=reported.compiler,
        flags=(*(built.options if built else ()), *(f"{name}={value}" for name, value in variables.items())),
        added=built.added if built else (),
    )


def _library_folder(root: Path, program: Path) -> Path | None:
    """Return the folder of the library beside programs, or of the one that a program loads."""
    file = find_library(root)
    if file is None:  # a system's packages have programs and libraries in different places
        loaded = loaded_libraries(program)
        file = next((path for path in loaded if path.name.startswith("libllama.")), None)
    return file.parent if file else None


@cache
def _inspect(
    path: Path, program: Program, command: str | None = None
) -> tuple[Executable | None, _ProgramVersion]:
    """Ask a program for its version and help; stubs and chat clients come back as None."""
    unusable = (None, _ProgramVersion())
    words = [str(path), *filter(None, (command,))]
    completed, out, err = capture_program([*words, "--version"])
    match = _VERSION.search(err) or _VERSION.search(out)
    if completed.returncode != 0 or match is None:
        return unusable
    _, text, _ = capture_program([*words, "--help"])
    options = parse_help(text, plain=program is Program.PLAIN)
    if program is Program.PLAIN and _CHAT_CLIENT in options:
        return unusable
    return Executable(path=path, options=options, command=command), _ProgramVersion.read(match)


def _age(built: Built | None) -> tuple[float, float]:
    """Sort the newest llama.cpp first, then the latest build; one without a number counts as current."""
    if built is None:
        return -math.inf, 0.0
    number = releases.build_number(built.version)
    built_at = datetime.fromisoformat(built.built_at).timestamp()
    return -(math.inf if number is None else number), -built_at


def _guess(programs: Mapping[Program, Executable]) -> int | None:
    """Guess a build number from the names of programs and flags; None for current builds."""
    plain, simple = programs.get(Program.PLAIN), programs.get(Program.SIMPLE)
    if plain is None:
        return None
    if plain.path.name == "main":
        return 2697
    if plain.options.generic:
        return 3181
    if simple is None:
        return 3683 if plain.path.name == "llama-cli" else None
    if "--draft-max" in simple.options:
        if plain.path.name != "llama-cli":
            return 7348
        return 6045 if "--spec-replace" in simple.options else 4159
    return None


def _quantizer(
    paths_by_name: Mapping[str, Path], programs: Mapping[Program, Executable]
) -> tuple[str, ...] | None:
    """Return the words that start it; a ``llama`` that does nothing else here is another program."""
    unified = {executable.path for executable in programs.values() if executable.command}
    for file, *command in map(str.split, _QUANTIZERS):
        path = paths_by_name.get(file)
        if path is not None and (not command or path in unified):
            return (str(path), *command)
    return None


def _find_on_path(name: str) -> Path | None:
    where, installed = shutil.which(name), paths.at_home(_INSTALLED)
    if where is None and installed is not None:
        where = shutil.which(name, path=str(installed))
    return None if where is None else Path(where)


def _libraries_in(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (path for path in folder.iterdir() if _LIBRARY.fullmatch(path.name) and path.is_file())
