"""Options are fields: from each follow its words, its value, its help and its place in a call."""

from __future__ import annotations

import functools
import inspect
import itertools
import pickle
import string
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, reject, settings, strategies as st

from ggufspec import api, options as declared
from ggufspec.choices import Method
from ggufspec.cli import COMMANDS, GROUPS, cli
from ggufspec.cli.entry.command import command_of
from ggufspec.domain import ModelRun, NgramSettings, Offload, Runtime, ServiceLevel, SplitMode
from ggufspec.errors import GgufspecError
from ggufspec.measure import options_of, prepare_session
from ggufspec.options import BenchOptions, Option, Options, SweepOptions, TuneOptions, kinds, option, takes
from ggufspec.options.kinds import Count, Flag
from tests.support import command_lines, fakes, shell

ALL = command_lines.commands()
MOST_LINES = 60  # of --help

_words = st.text(string.ascii_letters, min_size=1, max_size=6)
_texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
_counts = st.integers(1, 64)


def _numbers(least: float, most: float) -> st.SearchStrategy[float]:
    return st.floats(least, most, allow_subnormal=False).filter(lambda number: number == 0 or number >= 1e-9)


def _limits() -> st.SearchStrategy[ServiceLevel]:
    limits = _numbers(1e-3, 1e3)
    return st.builds(ServiceLevel, ttft_s=limits, token_s=st.none() | limits)


def _of_kind(kind: kinds.Kind) -> st.SearchStrategy[Any]:
    """Return single values of a kind."""
    if kind.words:
        return st.sampled_from(kind.words)
    if isinstance(kind, kinds.Count):
        return st.integers(int(kind.least or 0), int(kind.most or 2**31 - 1))
    strategies: dict[type, st.SearchStrategy[Any]] = {
        kinds.Kind: _texts,
        kinds.Number: _numbers(1, 1),
        kinds.Fraction: st.floats(0.0001, 0.999),
        kinds.Duration: st.floats(1, 20 * 86400),
        kinds.Latency: _numbers(0, 1e6),
        kinds.Size: st.integers(0, 1 << 50),
        kinds.Sizes: st.lists(st.integers(0, 1 << 50), min_size=1).map(tuple),
        kinds.PerSecond: st.floats(1e3, 1e21),
        kinds.AcceptanceText: _texts,
        kinds.Numbers: st.lists(st.floats(1e-6, 1e6), min_size=1).map(tuple),
        kinds.Splits: st.lists(
            st.lists(st.floats(0, 1e8), min_size=2).filter(any).map(tuple), min_size=1, unique=True
        ).map(tuple),
        kinds.FilePath: st.just(Path(__file__))
        if isinstance(kind, kinds.FilePath) and kind.exists
        else _words.map(lambda word: Path(f"{word}.gguf")),
        kinds.DeviceList: st.lists(_words, min_size=1, unique=True).map(tuple),
        kinds.WorkerList: st.lists(_words.map("{}:50052".format), min_size=1, unique=True).map(",".join),
        kinds.Quants: st.lists(st.sampled_from(("Q8_0", "Q4_0")), min_size=1, unique=True).map(tuple),
        kinds.NgramList: st.builds(NgramSettings, size_n=_counts, min_hits=st.none() | _counts),
        kinds.Shares: _numbers(0, 1).map(lambda share: (share, share)),
        kinds.LatencyLimits: _limits(),
        kinds.PassedOn: st.lists(_texts.filter(lambda text: text != "|"), max_size=3).map(tuple),
        kinds.Depths: st.integers(0, 1 << 24),
        kinds.Methods: st.sampled_from([*Method, "ngram-mod+draft-mtp"]).map(str),
    }
    if type(kind) in {kinds.Axis, kinds.Switches}:
        examples = [
            number
            for text in ("1", "0.5", "f16", "on", "all", "-1", "isolate", "greedy", "row")
            if _reads(kind, text)
            for number in kind.parse(text)
        ]
        return st.sampled_from(examples)
    return strategies[type(kind)]


def _reads(kind: kinds.Kind, text: str) -> bool:
    try:
        kind.parse(text)
    except ValueError:
        return False
    return True


@functools.cache  # made once, and not for each example
def _values(field: Option, *, several: bool) -> st.SearchStrategy[Any]:
    """Return values of a field."""
    if isinstance(field.kind, Flag):
        return st.booleans()
    single = _of_kind(field.kind)
    constants = [value for value, _ in field.constant.values() if value is not None]
    if constants and not field.axis:  # those of an axis are values of its kind, too
        single |= st.sampled_from(constants)
    if field.is_argument:
        single = single.filter(lambda value: str(value)[:1] not in {"", "-"})
    if field.passed_on:
        single = st.sampled_from(("--port", "-v"))
    if field.axis:
        return st.lists(single, min_size=1, max_size=3 if several else 1, unique=True).map(tuple)
    return st.lists(single, min_size=1, max_size=3).map(tuple) if field.repeated else single


@st.composite
def _options(draw: st.DrawFn, cls: type[Options]) -> Options:
    """Return options of a class, of which a few have another value than by default."""
    fields = [field for field in cls.options.values() if not field.secret]
    required = [field for field in fields if field.required]
    others = draw(st.lists(st.sampled_from(fields), max_size=5, unique=True)) if fields else []
    chosen = {field.python_name: field for field in (*required, *others)}
    values = {
        name: draw(_values(field, several=cls.several is None or name in cls.several))
        for name, field in chosen.items()
    }
    try:
        return cls(**values)
    except GgufspecError:  # two of them contradict each other
        reject()


@pytest.mark.parametrize("path", ALL)
@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_words_are_read_as_the_options_that_they_were_made_of(path: str, data: st.DataObject) -> None:
    asked = data.draw(_options(ALL[path].options))
    assert command_lines.read(path, *asked.to_argv()) == asked


@pytest.mark.parametrize("path", ALL)
def test_the_short_help_has_what_most_people_need(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    short, complete = (
        CliRunner().invoke(cli, [*path.split(), flag]).output for flag in ("--help", "--help-all")
    )
    assert short.count("\n") <= MOST_LINES
    for field in ALL[path].options.options.values():
        for name in field.names if not field.is_argument else ():
            assert name.partition("/")[0] in complete
            assert name.partition("/")[0] in short or not field.common


def test_a_bench_without_options_is_the_default_of_benches() -> None:
    assert command_lines.read("bench") == BenchOptions()
    assert command_lines.read("sweep") == SweepOptions()
    assert command_lines.read("tune") == TuneOptions()
    assert BenchOptions().to_argv() == ()


def test_words_become_options() -> None:
    words = "-m t.gguf --draft 1-3 --draft 8 --temp 0.5 --raw --precision 2% --max-time 10m"
    placement = "-dev A,B -sm row -ncmoe 2 --fit off"
    asked = command_lines.read("bench", *words.split(), *placement.split(), "--", "--no-repack")
    assert asked.target == ("t.gguf",)
    assert asked.draft == (1, 2, 3, 8)
    assert (asked.temp, asked.chat, asked.precision, asked.max_time) == (0.5, False, 0.02, 600)
    assert asked.offload == Offload(
        target=ModelRun(devices=("A", "B"), cpu_moe=2), split_mode=SplitMode.ROW, fit=False
    )
    assert asked.runtimes == (Runtime(args=("--no-repack",)),)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("bench --threads 1,2", "`ggufspec sweep` accepts several"),
        ("bench --url http://x --ngl 3", "decides --ngl"),
        ("bench --name a --resume b", "use one of them"),
        ("tune --parallel 1,2", "`ggufspec crossover` compares several"),
        ("serve hello", "options for llama-server follow --"),
    ],
)
def test_what_contradicts_itself_is_refused_before_anything_runs(words: str, message: str) -> None:
    done = CliRunner().invoke(cli, words.split())
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


class Fruit(Options, section="Fruit"):
    """What tests declare: a hidden spelling, a value that is no text, and a section."""

    ngram: tuple[NgramSettings, ...] | None = option(
        "--ngram", kind=kinds.NgramList(), axis=True, hidden="--spec-ngram", help="A value."
    )
    count: int = option("--count -c", 3, kind=Count(1, 9), help="How many.", common=True)
    token: str | None = option("--token", secret=True, help="A secret.")


class Basket(Fruit, several=None):
    """The same with another default, which only says what differs."""

    count: int = option(default=4)


def _run(*words: str) -> Basket:
    found: list[Basket] = []
    command = command_of(Basket)(found.append)("run")
    CliRunner().invoke(command, words, obj=None, catch_exceptions=False)
    return found[0]


def test_a_field_is_all_that_an_option_takes() -> None:
    assert _run("--spec-ngram", "size-n=3", "-c", "5", "--token", "x") == Basket(
        ngram=NgramSettings(size_n=3), count=5, token="x"
    )
    shown = CliRunner().invoke(command_of(Basket)(lambda asked: None)("run"), ["--help"]).output
    assert "--spec-ngram" not in shown
    assert "-c, --count N How many. [default: 4; 1<=x<=9]" in " ".join(shown.split())
    assert (Fruit().count, Basket().count, Basket.options["count"].help) == (3, 4, "How many.")


def test_a_secret_is_neither_shown_nor_in_words() -> None:
    asked = Fruit(token="hf_secret", count=2)
    assert repr(asked) == "Fruit(count=2)"
    assert asked.to_argv() == ("--count", "2")


def test_options_are_values() -> None:
    asked = Fruit(count=2)
    assert {asked, Fruit(count=2)} == {asked}
    assert asked != Basket(count=2)
    assert asked.replace(count=5).to(Basket) == Basket(count=5)
    assert pickle.loads(pickle.dumps(asked)) == asked
    with pytest.raises(FrozenInstanceError):
        asked.count = 3
    with pytest.raises(TypeError, match=r"Fruit\(\) has no option 'cout'; did you mean 'count'\?"):
        Fruit(cout=3)
    with pytest.raises(GgufspecError, match="ngram is 3, a int"):
        Fruit(ngram=3)


def test_a_function_takes_options_and_documents_them() -> None:
    @takes(Fruit)
    def count(asked: Fruit) -> int:
        """Count.

        Returns:
            The number.
        """
        return asked.count

    assert count() == 3
    assert count(count=5) == count(Fruit(count=5)) == 5
    assert inspect.getdoc(count) == (
        "Count.\n\nArgs:\n    ngram: A value.\n    count: How many.\n    token: A secret.\n\n"
        "Returns:\n    The number."
    )
    assert [*inspect.signature(count).parameters] == ["ngram", "count", "token"]
    with pytest.raises(TypeError, match="did you mean 'count'"):
        count(cuont=1)
    with pytest.raises(TypeError, match="has no option 'count'"):
        count(Fruit(), count=1)


NAMED_OTHERWISE = {
    "examine": "check",
    "bench": "sweep",
    "plan_bench": "sweep",
    "prune": "cache prune",
    "forecast_tuning": "tune",
    "serving_command": "serve",
    "whatif_served": "whatif",
}
"""Functions of a command that has another name, or an option in place of the function."""


@pytest.mark.parametrize("name", sorted({*dir(api)} - {"compare", "list_builds", "parse", "paste", "why"}))
def test_the_functions_of_notebooks_have_the_options_of_their_commands(name: str) -> None:
    function = getattr(api, name)
    fields = ALL[NAMED_OTHERWISE.get(name, name)].options.options
    parameters = {*inspect.signature(function).parameters} - {"sink"}
    assert parameters == {key for key, field in fields.items() if field.python}
    assert all(f"    {key}: " in function.__doc__ for key, field in fields.items() if field.python)


def test_configurations_become_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fakes.install(tmp_path / "llama")
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(folder))
    asked = BenchOptions(pair="demo", ngl=3, kv_type="q8_0", flash_attn="on", threads=2, prompt="Hi")
    for arm in prepare_session(asked).suite.blocks[0].arms[::2]:
        again = BenchOptions(**options_of(arm), prompt="Hi")
        assert arm.key in {other.key for other in prepare_session(again).suite.blocks[0].arms}


def test_classes_of_options_are_exported() -> None:
    assert {command.options.__name__ for command in ALL.values()} <= {*dir(declared)}


def test_commands_are_listed_by_group() -> None:
    text = CliRunner().invoke(cli, ["--help"]).output
    assert list(GROUPS) == ["Models", "Measure", "Serve", "Results", "Setup"]
    positions = [text.index(f"\n{title}:\n") for title in GROUPS]
    assert positions == sorted(positions)
    lines = [line.strip() for line in text.splitlines()]
    assert all(f"{name:<10}  {line}" in lines for name, line in COMMANDS.items())


@pytest.mark.parametrize(("columns", "longest"), [(80, 80), (100, 100), (110, 110), (200, 110)])
def test_help_uses_up_to_110_columns(monkeypatch: pytest.MonkeyPatch, columns: int, longest: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = shell.here("bench", "--help-all").stdout.splitlines()
    assert longest - 12 < max(map(len, lines)) <= longest


def test_pairs_of_names_are_unique_in_a_command() -> None:
    for path, command in ALL.items():
        spellings = itertools.chain.from_iterable(
            (*param.opts, *param.secondary_opts) for param in command.params
        )
        options = [name for name in spellings if name.startswith("-")]
        assert len(options) == len({*options}), path
