"""Build a command line, with one table of the spellings of its flags in every era of llama.cpp."""

from __future__ import annotations

from collections.abc import Mapping

from ggufspec.domain import ModelRun, Program
from ggufspec.errors import GgufspecError
from ggufspec.llama.install.installs import Executable, Install
from ggufspec.llama.install.options import ListedFlags

_NAMED_ALIKE = """
    model prompt file cache cache-ram threads threads-batch top-k top-p min-p seed grammar json-schema fit rpc
    tensor-split split-mode main-gpu cpu-moe n-cpu-moe flash-attn override-tensor mlock no-mmap load-mode numa
    cpu-mask prio poll mmproj chat-template-file host port
"""
"""Flags that are named after what they mean, in every era."""

SPELLINGS: Mapping[str, tuple[str, ...]] = {
    **{name.replace("-", "_"): (f"--{name}",) for name in _NAMED_ALIKE.split()},
    "n_predict": ("--n-predict", "--predict"),
    "context": ("--ctx-size",),
    "temperature": ("--temp",),
    "batch": ("--batch-size",),
    "ubatch": ("--ubatch-size",),
    "layers": ("-ngl",),
    "devices": ("--device",),
    "cache_k": ("--cache-type-k",),
    "cache_v": ("--cache-type-v",),
    "draft_model": ("--model-draft", "-md"),
    "draft_layers": ("-ngld",),
    "draft_devices": ("--spec-draft-device", "--device-draft"),
    "draft_cpu_moe": ("--spec-draft-cpu-moe", "--cpu-moe-draft"),
    "draft_n_cpu_moe": ("--spec-draft-n-cpu-moe", "--n-cpu-moe-draft"),
    "draft_threads": ("--threads-draft", "-td"),
    "draft_threads_batch": ("--threads-batch-draft", "-tbd"),
    "draft_context": ("--ctx-size-draft",),
    "draft_cache_k": ("--spec-draft-type-k", "--cache-type-k-draft"),
    "draft_cache_v": ("--spec-draft-type-v", "--cache-type-v-draft"),
    "draft_backend_sampling_on": ("--spec-draft-backend-sampling",),
    "draft_backend_sampling_off": ("--no-spec-draft-backend-sampling",),
    "draft_sampling": ("--spec-draft-sampling",),
    "draft_max": ("--spec-draft-n-max", "--draft-max", "--draft"),
    "draft_min": ("--spec-draft-n-min", "--draft-min"),
    "draft_p_min": ("--draft-p-min", "--spec-draft-p-min"),
    "key_file": ("--api-key-file",),
    "slots": ("--parallel",),
    "slots_dir": ("--slot-save-path",),
}
"""Meaning -> spellings of its flag, the preferred one first."""

_OPTIONAL = {
    *("threads_batch", "top_k", "top_p", "min_p", "layers", "draft_layers", "draft_threads"),
    *("draft_threads_batch", "draft_context", "draft_cache_k", "draft_cache_v", "draft_min", "draft_p_min"),
    *("cache_ram", "slots_dir"),
}
_HIDDEN = {"layers", "draft_layers"}  # accepted but not listed by CPU builds with the old common parser
_ALL_LAYERS = 999  # more than any model has: "all" in every era


class Arguments:
    """A command line under construction; flags are spelled as in the program's ``--help``."""

    def __init__(self, executable: Executable, install: Install) -> None:
        """Start with the program; ``install`` shows whether it has the old common parser."""
        plain = install.programs.get(Program.PLAIN)
        self.name = executable.name
        self.options = executable.options
        self._fork = install.fork
        self._generic = plain is not None and plain.options.generic
        self._argv = [*executable.argv]

    def add_flags(self, **values: object) -> None:
        """Add flags with their values, by what they mean; an optional one that the program lacks is left out.

        So is one whose value is None.

        Raises:
            GgufspecError: the measurement needs a flag.
        """
        for meaning, value in values.items():
            flag = None if value is None else self.spelling(meaning)
            if flag is not None:
                self.add(flag, _format(value))

    def require_flags(self, **values: object) -> None:
        """Add flags that the user requested, as far as they were; True is that of a flag without a value.

        Raises:
            GgufspecError: the program does not list one.
        """
        for meaning, value in values.items():
            if value is None or value is False or value == ():
                continue
            flag = self.options.first(*SPELLINGS[meaning])
            if flag is None:
                name = SPELLINGS[meaning][-1]
                raise GgufspecError(
                    f"this {self.name} has no {name}: its --help does not list it",
                    f"leave {name} out, or use a llama.cpp that has it: `ggufspec build` makes one",
                )
            self.add(flag, *(() if value is True else (_format(value),)))

    def spelling(self, meaning: str) -> str | None:
        """Return the program's spelling of a flag; None for an optional flag that it lacks.

        Raises:
            GgufspecError: the measurement needs the flag.
        """
        spellings = SPELLINGS[meaning]
        flag = self.find_flag(*spellings, is_optional=meaning in _OPTIONAL)
        return spellings[0] if flag is None and self._generic and meaning in _HIDDEN else flag

    def find_flag(self, *spellings: str, is_optional: bool) -> str | None:
        """Return the first spelling that the program lists; None for an optional flag that it lacks.

        Raises:
            GgufspecError: the measurement needs the flag.
        """
        flag = self.options.first(*spellings)
        if flag is None and not is_optional:
            reason = "is newer than ggufspec" if self._fork is None else f"is {self._fork}"
            raise GgufspecError(
                f"{self.name} has none of the flags {', '.join(spellings)}",
                f"this llama.cpp {reason}; `ggufspec build` makes one that works",
            )
        return flag

    def add(self, *arguments: str) -> None:
        """Add arguments as they are."""
        self._argv.extend(arguments)

    def add_switches(self, *flags: str) -> None:
        """Add flags without a value, as far as the program lists them."""
        self.add(*(flag for flag in flags if flag in self.options))

    def to_argv(self) -> tuple[str, ...]:
        """Return the command line."""
        return tuple(self._argv)


def _format(value: object) -> str:
    """Return a value as llama.cpp reads it: several with commas, numbers with their digits that count."""
    if isinstance(value, tuple):
        return ",".join(map(_format, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def count_layers(run: ModelRun, install: Install, *, remote: bool = False) -> int | None:
    """Return how many layers go to GPUs, 0 for "auto" without one; None leaves it to llama.cpp.

    Args:
        run: the model.
        install: what runs it.
        remote: whether a worker has devices.
    """
    if run.layers == "auto":
        return 0 if install.gpu is False and not remote else None
    return _ALL_LAYERS if run.layers == "all" else run.layers


def format_layers(run: ModelRun, options: ListedFlags, install: Install, *, remote: bool = False) -> str:
    """Return the value of ``-ngl``; see ``count_layers``."""
    count = count_layers(run, install, remote=remote)
    if count is None and options.mentions("-ngl", "'auto'"):
        return "auto"
    return str(_ALL_LAYERS if count is None else count)
