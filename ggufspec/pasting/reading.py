"""A command of llama.cpp -> options of a bench, and sentences on what was translated or could not be read."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ggufspec import notebooks, paths, units, userfiles
from ggufspec.choices import Program
from ggufspec.errors import GgufspecError
from ggufspec.options import BenchOptions, TuneOptions, kinds
from ggufspec.pasting import flags, shell
from ggufspec.pasting.texts import PROGRAMS, FoundCommand, find_commands
from ggufspec.redaction import HIDDEN, SECRET_OPTIONS, is_secret, redact

_NUMBER = re.compile(r"-\d+(?:\.\d+)?")
_MOST_DRAFT = 64  # tokens that an option takes
_SWITCH_WITH_VALUE = 6325  # the first build whose -fa takes a value
_NEEDS_TYPE = 9464  # the first build that does not draft with -md alone
_ENGINES = {Program.SERVER: "server", Program.TREE: "binary", Program.SIMPLE: "binary-simple"}
_OF_PROGRAMS = {
    "reasoning": ({Program.SERVER}, "a text to continue does not think"),
    "parallel": ({Program.SERVER}, "one text at a time is measured"),
    "draft_min": ({*Program} - {Program.TREE}, "the program verifies drafts of every length"),
}
"""Option -> the programs in which it means something, and why it is left out of others."""

_OF_TEXTS = ("prompt", "prompt_file", "n_predict")  # a server gets these with each request
_DRAFTING = ("draft_model", "method", "draft", "draft_min", "p_min", "draft_sampling", "ngram")
_TRIED = frozenset(_DRAFTING) - {"draft_model"}  # what a tuning chooses
_LEAST_SERVED = 256  # tokens that --serve-ctx takes
_SETTABLE = re.compile(
    r"(?:CUDA|HIP|ROCR|GPU|GGML_VK|ASCEND_RT)_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|HSA_OVERRIDE_GFX_VERSION"
    r"|GGML_(?:CUDA|HIP|VK|METAL|SYCL|CPU|OPENCL|SCHED)_\w+|OMP_\w+|GOMP_\w+"
)
"""Variables that may change a speed and name neither a program nor a library."""

_DEFAULT_UP_TO = {
    **dict.fromkeys(("ctx", "n_predict", "threads", "parallel"), 0),
    **dict.fromkeys(("top_k", "seed", "reasoning"), -1),
}
"""Option -> the largest number by which llama.cpp means its own default."""

_ESCAPE = re.compile(r"\\([nrt'\"\\])")  # in prompts of programs: string_process_escapes, common/common.cpp
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_PLAIN_VALUE = re.compile(r"[\w.,:-]{0,64}")


@dataclass(frozen=True, kw_only=True)
class PastedCommand:
    """What a command asks for, as options of a bench.

    Attributes:
        program: its name, as it was written, without a path.
        values: the options that it gives, by their names in Python.
        engine: that runs what the program runs; None where any does.
        folder: of the program; None where only its name is given.
        variables: that are set for it and may change the speed.
        notes: sentences on what was translated, left out and not read.
        to_change: what today's llama.cpp needs instead, as sentences.
        today: the words of the command as today's llama.cpp takes them, with ``***`` for secrets.
        without_drafting: the same without a drafter and its options.
    """

    program: str
    values: Mapping[str, Any]
    engine: str | None = None
    folder: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    to_change: tuple[str, ...] = ()
    today: tuple[str, ...] = ()
    without_drafting: tuple[str, ...] = ()

    @property
    def options(self) -> BenchOptions:
        """The command as a bench of it: ``ggufspec.bench(pasted.options)``."""
        return BenchOptions().replace(**self.values_for(BenchOptions))

    @property
    def tuning(self) -> TuneOptions:
        """The command as a tuning, which looks for other ways to draft: ``ggufspec.tune(pasted.tuning)``."""
        return TuneOptions().replace(**self.values_for(TuneOptions))

    def values_for(self, kind: type[BenchOptions | TuneOptions]) -> dict[str, Any]:
        """Return the options that the command gives to a bench or to a tuning."""
        values = dict(self.values) if self.engine is None else {**self.values, "engine": self.engine}
        if kind is TuneOptions:
            values = {name: value for name, value in values.items() if name not in _TRIED}
            context = values.pop("ctx", None)
            if context is not None and context >= _LEAST_SERVED:
                values["serve_ctx"] = context
        return {name: value for name, value in values.items() if name in kind.options}

    @property
    def drafts(self) -> bool:
        """Whether something drafts."""
        return any(self.values.get(name) for name in ("draft_model", "method"))


def read_command(command: FoundCommand) -> PastedCommand:
    """Return what a command asks for. Secrets in it are dropped: nothing here can print or store them.

    Raises:
        GgufspecError: it names no model.
    """
    reader = _WordReader(command)
    set_by_variables = [
        word
        for name, value in command.variables.items()
        if (flag := flags.flag_of_variable(name)) is not None
        for word in flags.words_of_setting(flag, value)
    ]
    reader.read((*set_by_variables, *command.words))  # the command line follows, and wins
    return reader.finish()


class _WordReader:
    """Reads the words of a command from left to right; of a flag that repeats, the last value counts."""

    def __init__(self, command: FoundCommand) -> None:
        self.command = command
        self.program = command.program.program
        self.values: dict[str, Any] = {}
        self.args: list[str] = []
        self.draft_args: list[str] = []
        self.notes: list[str] = []
        self.to_change: list[str] = []
        self.left_out: dict[str, list[str]] = {}
        self.unread: list[str] = []
        self.files: dict[str, str] = {}  # of -hff, by the flag
        self.on_hub: dict[str, str] = {}
        self.stages: list[flags.DraftingStage] = []
        self.without_method = False  # --spec-type none
        self.today: list[
            tuple[tuple[str, ...], bool]
        ] = []  # words of each flag, and whether it is of drafting

    def read(self, words: Sequence[str]) -> None:
        """Read every flag with its value."""
        place, n_stray = 0, 0
        while place < len(words):
            word = words[place]
            place += 1
            if not word.startswith("-") or _NUMBER.fullmatch(word):
                n_stray += 1
                continue
            flag, separator, value = word.partition("=")
            if flag.startswith("--"):
                flag = flag.replace("_", "-")  # as llama.cpp reads long flags
            given: str | None = value if separator else None
            if flag in flags.DRAFT_PARAMS and place < len(words):
                words = (*words[: place + 1], *_of_drafter(words[place]), *words[place + 1 :])
                place += 1
                continue
            if given is None and flag not in flags.NO_VALUE and place < len(words):
                following = words[place]
                is_value = not following.startswith("-") or _NUMBER.fullmatch(following)
                if is_value or flag in {"-p", "--prompt"}:
                    given = following
                    place += 1
            self.today.append((tuple(self._spell_today(flag, given)), flag in _OF_DRAFTING))
            self._take(flag, given)
        if self.stages:  # the order of a chain is known now
            options, unread = flags.options_of(self.stages)
            for flag, text in options:
                self._take_field(flag, text)
            self.unread += unread
        if n_stray:
            belongs = "belongs" if n_stray == 1 else "belong"
            self.notes.append(
                f"not read: {units.counted(n_stray, 'word')} of the command that {belongs} to no option"
            )

    def finish(self) -> PastedCommand:
        """Return the options, after all flags are known."""
        for name, repository in self.on_hub.items():
            file = self.files.get(name)
            self.values[name] = f"{repository.partition(':')[0]}/{file}" if file else repository
        if "target" not in self.values:
            unread = next((f": {note}" for note in self.notes if note.startswith("not read: -")), "")
            raise GgufspecError(
                f"the command of {self._name} names no model{unread}",
                "name one with -m, before the command: `ggufspec bench -m big.gguf -- …`",
            )
        self._adapt()
        if self.args:
            self.values["args"] = (tuple(self.args),)
        if self.draft_args and self._drafts:
            self.values["draft_args"] = (tuple(self.draft_args),)
        for why, names in self.left_out.items():
            self.notes.append(f"left out: {', '.join(names)} ({why})")
        if self.unread:
            self.notes.append(f"not read, so measured without: {', '.join(dict.fromkeys(self.unread))}")
        variables = self._variables()
        path = self.command.program.path
        return PastedCommand(
            program=self._name,
            values=self.values,
            engine=_ENGINES.get(self.program) if self._drafts or self.program is Program.SERVER else None,
            folder=None if path is None or shell.UNKNOWN in str(path.parent) else str(path.parent),
            variables=variables,
            notes=tuple(self.notes),
            to_change=tuple(self.to_change),
            today=(self._program_today, *(word for words, _ in self.today for word in words)),
            without_drafting=(
                self._program_today,
                *(word for words, is_of_drafting in self.today if not is_of_drafting for word in words),
            ),
        )

    @property
    def _program_today(self) -> str:
        """The program as it is started today; of an image, what that runs."""
        name = self.command.program.name.replace(shell.UNKNOWN, "")
        return name if self._name.removesuffix(".exe") in PROGRAMS else _PROGRAMS_TODAY[self.program]

    def _spell_today(self, flag: str, value: str | None) -> Iterator[str]:
        """Yield the words of a flag as today's llama.cpp takes them."""
        translation = flags.GONE.get(flag)
        if translation is None:
            yield flag
        elif translation.today is None:
            return
        else:
            yield from translation.today.split()
        if value is None:
            alone = flags.FIELDS[flag].alone if flag in flags.FIELDS else None
            yield from () if alone is None else (alone,)
        elif flag in SECRET_OPTIONS or is_secret("", value) or not flags.is_known(flag):
            yield HIDDEN
        else:
            yield value.replace(shell.UNKNOWN, "")

    @property
    def _name(self) -> str:
        return re.split(r"[/\\]", self.command.program.name)[-1]

    @property
    def _drafts(self) -> bool:
        return any(self.values.get(name) for name in ("draft_model", "method"))

    def _take(self, flag: str, value: str | None) -> None:
        """Decide what becomes of one flag."""
        if flag in SECRET_OPTIONS or (value is not None and is_secret("", value)):
            self._leave_out(flag, "a secret, which is neither kept nor printed")
            return
        if value is not None and flag in _OF_FILES:
            value = self._locate(value)
        if value is not None and shell.UNKNOWN in value:
            names = [part for part in value.split(shell.UNKNOWN)[1::2] if re.fullmatch(r"[$%]\w+", part)]
            why = f"needs {names[0]}, which the text does not set" if names else "only a shell can compute"
            self.notes.append(f"not read: {flag}, whose value {why}")
            return
        if flag in flags.HF_FILE and value is not None:
            self.files["target"] = value
        elif flag in flags.DRAFT_THREADS:
            self._leave_out(flag, "every part runs with the threads of -t")
        elif flag in flags.LOAD_MODE and value is not None:
            self._take_load_mode(flag, value)
        elif (
            flag in flags.SPEC_TYPE
            and value is not None
            and (stage := flags.DraftingStage.read(value)) is not None
        ):
            self.stages.append(stage)
        elif flag in flags.TEMPLATE_WORDS and (thinks := flags.read_thinking(value or "")) is not None:
            self.notes.append(f"translated: {flag} {value} is --reasoning {thinks}")
            self._take("--reasoning", thinks)
        elif flag in flags.FIELDS:
            self._note_translation(flag, value)
            name = flags.FIELDS[flag].python_name
            programs, why = _OF_PROGRAMS.get(name, (set(), ""))
            if why and self.program not in programs:
                self._leave_out(flag, why)
            else:
                self._take_field(flag, value)
        elif flag in flags.PASSED_ON | flags.PASSED_ON_DRAFTING:
            passed_on = self.args if flag in flags.PASSED_ON else self.draft_args
            passed_on.extend([flag] if value is None else [flag, value])
        elif flag in flags.GONE:
            self._note_translation(flag, value)
        elif (reason := flags.why_left_out(flag)) is not None:
            self._leave_out(flag, reason)
        else:
            self.unread.append(redact(flag))

    def _leave_out(self, flag: str, why: str) -> None:
        names = self.left_out.setdefault(why, [])
        if flag not in names:
            names.append(flag)

    def _note_translation(self, flag: str, value: str | None) -> None:
        """Say how a flag of earlier builds is spelled today."""
        translation = flags.GONE.get(flag)
        if translation is None:
            return
        said = f"{flag} {value}" if value is not None and _PLAIN_VALUE.fullmatch(value) else flag
        if translation.today is None:
            text = f"{said} is gone since llama.cpp b{translation.since}: {translation.why}"
        else:
            today = f"{translation.today} {value}" if said != flag else translation.today
            text = f"{said} is {today} since llama.cpp b{translation.since}"
        self._translate(text)

    def _translate(self, text: str) -> None:
        self.notes.append(f"translated: {text}")
        self.to_change.append(text)

    def _take_load_mode(self, flag: str, value: str) -> None:
        modes = set(value.split("+"))
        if not modes <= {"none", "mmap", "mlock", "dio"}:
            self.unread.append(flag)
            return
        self.values["mlock"] = "mlock" in modes
        self.values["no_mmap"] = modes <= {"none", "dio"}

    def _take_field(self, flag: str, value: str | None) -> None:
        """Read the value of an option."""
        option = flags.FIELDS[flag]
        name = option.python_name
        if name in _OF_TEXTS and self.program is Program.SERVER:
            self._leave_out(flag, "the texts of a measurement are its own")
            return
        for spellings, (constant, _) in option.constant.items():
            if flag in spellings.split():
                self.values[name] = constant
                return
        if isinstance(option.kind, kinds.Flag):
            self.values[name] = True
            return
        if value is None and option.alone is not None:
            text = f"{flag} is {flag} {option.alone} since llama.cpp b{_SWITCH_WITH_VALUE}"
            self._translate(text)
        given = option.alone if value is None else value
        if given is None:
            self.notes.append(f"not read: {flag}, which has no value")
            return
        meant = self._mean(flag, name, given)
        if meant is None:
            return
        kind = next((kind for names, kind in option.written.items() if flag in names.split()), option.kind)
        try:
            parsed = kind.parse(meant)
        except (ValueError, GgufspecError) as error:
            shown = error.message if isinstance(error, GgufspecError) else str(error)
            self.notes.append(f"not read: {flag}: {redact(shown)}")
            return
        if name == "ngram":
            before = self.values.get(name)
            parsed = kind.join([*([before] if before else []), parsed])
        if name in {"target", "draft_model"}:
            parsed = meant
            if flag in flags.ON_HUB:
                self.on_hub[name] = meant
        if name == "prompt_file":
            parsed = Path(meant)
        if name == "override_tensor" and name in self.values:
            parsed = f"{self.values[name]},{parsed}"
        self.values[name] = (
            parsed[-1] if option.axis and isinstance(parsed, tuple) and name not in _TUPLES else parsed
        )

    def _mean(self, flag: str, name: str, value: str) -> str | None:
        """Return a value as the option takes it; None where llama.cpp's value means its own default."""
        number = int(value) if re.fullmatch(r"-?\d{1,9}", value) else None
        if name in {"ngl", "ngld"} and number is not None:
            if number < 0:
                meant = "auto" if number == -1 else "all"
                self.notes.append(f"translated: {flag} {value} is {meant}")
                return meant
            return "all" if number > kinds.MOST_LAYERS else value
        if number is not None and number <= _DEFAULT_UP_TO.get(name, -math.inf):
            self._leave_out(flag, "the default of llama.cpp")
            return None
        if name == "draft" and number is not None:
            if number == 0:
                self._leave_out(flag, "nothing drafts at 0")
                self.values.pop("draft", None)
                return None
            if number > _MOST_DRAFT:
                self.notes.append(f"translated: {flag} {value} is {_MOST_DRAFT}, the most that is measured")
                return str(_MOST_DRAFT)
        if name == "method":
            self.without_method = value == "none"
            if self.without_method:
                self.values.pop("method", None)
                return None
        if name == "tensor_split":
            return value.replace("/", ",")
        if name == "prompt" and "--no-escape" not in self.command.words:
            return _ESCAPE.sub(lambda match: _ESCAPES.get(match[1], match[1]), value)
        return value

    def _locate(self, text: str) -> str:
        """Return the path of a file on this machine: out of a container, and below the command's folder."""
        for inside, outside in sorted(self.command.mounts.items(), key=lambda item: -len(item[0])):
            mounted = inside.rstrip("/")
            if text == mounted or text.startswith(f"{mounted}/"):
                return outside.rstrip("/") + text.removeprefix(mounted)
        folder = self.command.folder
        is_relative = not text.startswith(("/", "~", "http://", "https://")) and text[1:3] != ":\\"
        if folder is None or shell.UNKNOWN in folder or not is_relative:
            return text
        return str(Path(folder) / text)

    def _adapt(self) -> None:
        """Change what means something else to a bench: the context of a server is that of all slots."""
        slots = self.values.get("parallel")
        if slots == 1:
            del self.values["parallel"]
        elif slots and self.program is Program.SERVER:
            context = self.values.get("ctx")
            if context is not None:
                self.values["ctx"] = max(16, context // slots)
            self.notes.append(
                f"translated: -np {slots} is {slots} users at once, who share the context; --parallel 1 "
                "measures one"
            )
        if self.without_method:
            self.values.pop("draft_model", None)
        if "draft_model" in self.values and "method" not in self.values:
            if self.program in {Program.SERVER, Program.SIMPLE}:
                text = (
                    f"a draft model drafts only with --spec-type draft-simple since llama.cpp b{_NEEDS_TYPE}"
                )
                self.notes.append(f"translated: {text}, so it is added; a head has its own type")
                self.to_change.append(text)
                self.today.append((("--spec-type", "draft-simple"), True))
        elif not self._drafts:
            for name in _DRAFTING:
                self.values.pop(name, None)
            self.notes.append("drafting: nothing drafts in this command")

    def _variables(self) -> dict[str, str]:
        """Return the variables that may be set here, and name the others."""
        kept = {
            name: value
            for name, value in self.command.variables.items()
            if _SETTABLE.fullmatch(name) and _PLAIN_VALUE.fullmatch(value) and not is_secret(name, value)
        }
        own = {name for name in self.command.variables if flags.flag_of_variable(name) is not None}
        others = [name for name in self.command.variables if name not in kept and name not in own]
        if kept:
            self.notes.append(f"variables: {', '.join(f'{name}={value}' for name, value in kept.items())}")
        if others and len(others) <= _MOST_NAMED:
            noun, values = ("variable", "value is") if len(others) == 1 else ("variables", "values are")
            self.notes.append(f"left out: the {noun} {', '.join(others)}, whose {values} not kept")
        elif others:
            self.notes.append(f"left out: {len(others)} variables, whose values are not kept")
        return kept


def _of_drafter(text: str) -> Iterator[str]:
    """Yield the words for the drafter that ik_llama.cpp takes as one text."""
    words = shell.split_words(text)
    for place, word in enumerate(words):
        if word in flags.FIELDS:
            name = flags.DRAFTERS.get(flags.FIELDS[word].python_name)
            yield from () if name is None else (name, *words[place + 1 : place + 2])


def _spellings(*names: str) -> frozenset[str]:
    """Return all flags of some options."""
    return frozenset(flag for flag, option in flags.FIELDS.items() if option.python_name in names)


_OF_FILES = flags.FILES | _spellings("mmproj", "prompt_file", "chat_template_file")
_OF_FILES |= _spellings("target", "draft_model") - flags.ON_HUB
"""Flags that name a file that a measurement reads."""


_OF_DRAFTING = (
    flags.DRAFT_THREADS_ALONE
    | flags.PASSED_ON_DRAFTING
    | (flags.GONE.keys() - {"--mmap", "--no-mmap", "--mlock"})  # these are of loading
    | _spellings(*_DRAFTING, "ngld", "draft_devices", "draft_cpu_moe", "cache_type_k_draft")
    | _spellings("cache_type_v_draft", "draft_backend_sampling", "synthetic_accept")
)
"""Flags that mean nothing without a drafter."""
# of two names, the later one: llama-cli became a chat client
_PROGRAMS_TODAY = {program: name for name, program in PROGRAMS.items()}
_TUPLES = frozenset({"devices", "draft_devices", "tensor_split"})
_MOST_NAMED = 8


@notebooks.named_options
def paste(text: str | Path, name: str | None = None) -> PastedCommand:
    """Read the command of llama.cpp that you run today, as ``ggufspec bench --from`` does; nothing is run.

    Its ``options`` are a bench of it, ``tuning`` a tuning, and ``notes`` say what was translated, left out
    and not read. Variables that may change its speed are in ``variables``.

    Args:
        text: a command, script, systemd unit, Compose or llama-swap file, or a line of ps; a Path is a file.
        name: which of its commands, where there are several.

    Raises:
        GgufspecError: it cannot be read, or holds no such command, or several.
    """
    if isinstance(text, Path):
        return read_command(choose_command(read_text(text), text.absolute().parent, name, source=str(text)))
    return read_command(choose_command(text, None, name, source="the text"))


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        GgufspecError: it cannot be read.
    """
    try:
        return userfiles.read_text(path, streams=True)
    except OSError as error:
        raise GgufspecError(
            f"{paths.shown(path)} cannot be read: {error.strerror}", "check the path"
        ) from error


def choose_command(
    text: str, folder: Path | None, name: str | None, *, source: str, asked: str | None = None
) -> FoundCommand:
    """Return the command of a text; of several the one with a name.

    Args:
        text: with commands of llama.cpp.
        folder: of its file.
        name: of the command; None where the text has one.
        source: what the text is called in messages.
        asked: what --from names the text by; None in Python.

    Raises:
        GgufspecError: there is none, or more than one.
    """
    found = find_commands(text, folder)
    commands = found if name is None else tuple(command for command in found if command.name == name)
    if found and not commands:
        raise GgufspecError(
            f"{source} has no command of llama.cpp named {name}",
            f"it has {', '.join(command.name for command in found)}",
        )
    if not commands:
        raise GgufspecError(
            f"{source} has no command of llama.cpp",
            "commands of llama-server, llama-cli, llama-completion and llama-speculative are read",
        )
    if len(commands) > 1:
        names = ", ".join(command.name for command in commands)
        first = commands[0].name
        raise GgufspecError(
            f"{source} has {len(commands)} commands of llama.cpp: {names}",
            "choose one: "
            + (f"name={first!r}" if asked is None else f"--from {shlex.quote(f'{asked}#{first}')}"),
        )
    return commands[0]
