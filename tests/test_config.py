"""Settings: what is set for every command, by whom, and which of them wins."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest

from ggufspec import paths
from ggufspec.cli import cli
from ggufspec.cli.entry import defaults as command_defaults
from ggufspec.options import settings
from ggufspec.options.settings import SettingSource
from tests.support import fakes, shell

DEMO = ("--pair", "demo", "-p", "Once upon a time", "-n", "32", "-r", "1")


@pytest.fixture(autouse=True)
def config(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the settings file goes; the environment sets nothing."""
    monkeypatch.setenv("GGUFSPEC_CONFIG", str(home / "config"))
    for key in settings.KEYS:
        monkeypatch.delenv(settings.PREFIX + key.upper(), raising=False)
    (home / "config").mkdir()
    return paths.config_file()


def defaults(name: str) -> dict[str, object]:
    """Return the names and raw values that a command's options are given."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    with click.Context(command):
        return {key: value() for key, value in command_defaults.read_defaults(command).items()}


def test_every_key_is_an_option_of_a_command() -> None:
    options = set()
    for name in ("bench", "plan", "show", "models"):
        command = cli.get_command(click.Context(cli), name)
        options |= {param.name for param in command.params}
    assert options >= settings.KEYS.keys()


def test_the_reference_lists_every_variable_of_ours() -> None:
    page = Path(__file__).parent.parent / "docs" / "reference" / "environment.md"
    reference = page.read_text(encoding="utf-8")
    names = (*settings.KEYS, *paths.PLACES)
    assert not [name for name in names if f"`{settings.PREFIX}{name.upper()}`" not in reference]


def test_nothing_set_gives_nothing(config: Path) -> None:
    assert defaults("bench") == {}
    assert {each.source for each in settings.read_settings().values()} == {SettingSource.DEFAULT}
    assert not config.exists()


def test_the_environment_wins_over_the_file(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text('# mine\npair = "demo"\n\nthreads = 2\n')
    monkeypatch.setenv("GGUFSPEC_THREADS", "1")
    rows = json.loads(shell.here("config", "-o", "json").stdout)
    assert rows["pair"] == {"value": "demo", "source": "file", "where": f"{config}:2"}
    assert rows["threads"] == {"value": 1, "source": "environment", "where": "GGUFSPEC_THREADS"}
    assert rows["engine"] == {"value": None, "source": "default", "where": None}
    assert defaults("bench") == {"pair": "demo", "threads": "1"}


def test_the_command_line_wins(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llama = fakes.install(tmp_path / "llama", **fakes.AT_ONCE)
    config.write_text(f'llama = "{llama}"\nthreads = 1\noutput = "json"\n')
    lines = shell.here("bench", *DEMO, "--dry-run").stdout.splitlines()
    assert all(f"{llama}" in line and " --threads 1 " in line for line in lines)
    assert all(
        " --threads 2 " in line
        for line in shell.here("bench", *DEMO, "-t", "2", "--dry-run").stdout.splitlines()
    )
    monkeypatch.setenv("GGUFSPEC_LLAMA", "/nonexistent")
    error, hint = shell.here("bench", *DEMO, "--dry-run").stderr.splitlines()[-2:]
    assert error.startswith("error: GGUFSPEC_LLAMA names /nonexistent")
    assert hint.endswith("unset GGUFSPEC_LLAMA removes it")
    assert shell.here("bench", *DEMO, "--llama", str(llama), "--dry-run").returncode == 0


def test_a_pair_that_is_set_stands_back_for_a_target(config: Path) -> None:
    config.write_text('pair = "no-such-pair"\n')
    demo = paths.models_dir() / "demo"
    given = ("-m", str(demo / "target.gguf"), "-md", str(demo / "drafter.gguf"))
    assert shell.here("plan", "--vram", "1G").returncode == 31
    assert shell.here("plan", "--vram", "1G", *given).returncode == 0
    assert shell.here("whatif", "--target-tps", "2", "--drafter-tps", "80", "--accept", "0.7").returncode == 0


def test_a_set_pair_and_suite_hold_for_a_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(fakes.install(tmp_path / "llama", **fakes.AT_ONCE)))
    monkeypatch.setenv("GGUFSPEC_PAIR", "demo")
    monkeypatch.setenv("GGUFSPEC_SUITE", "seven")
    done = shell.here("bench", "-n", "32", "--raw", "--dry-run")
    assert done.stderr.startswith("pair: demo (as named)\n")
    assert done.stdout == shell.here("bench", "-n", "32", "--raw", "--suite", "seven", "--dry-run").stdout
    assert done.stdout != shell.here("bench", "-n", "32", "--raw", "--suite", "demo", "--dry-run").stdout


def test_a_set_pair_stands_back_for_models_that_check_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGUFSPEC_PAIR", "llama-3-70b")
    for words in (("demo",), ("demo:target", "demo:drafter"), ("--pair", "demo")):
        assert shell.done("check", *words).stdout.startswith("accepted")


def test_a_suite_that_is_set_stands_back_for_a_prompt(config: Path, tmp_path: Path) -> None:
    llama = fakes.install(tmp_path / "llama", **fakes.AT_ONCE)
    config.write_text(f'suite = "general"\nllama = "{llama}"\n')
    many = shell.here("bench", "--pair", "demo", "-n", "32", "--dry-run").stdout.splitlines()
    few = shell.here("bench", *DEMO, "--dry-run").stdout.splitlines()
    assert len(few) == 3 < len(many)


def test_a_format_that_a_command_does_not_know_is_none_of_its_business(config: Path) -> None:
    config.write_text('output = "csv"\n')
    rates = ("--target-tps", "2", "--drafter-tps", "80", "--accept", "0.7")
    assert shell.here("whatif", *rates).stdout == shell.here("whatif", *rates, "-o", "csv").stdout
    assert defaults("whatif") == {"output": "csv"}
    assert defaults("check") == {}


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("threads = 2\nengin = 'server'\n", 2, "there is no key 'engin'; did you mean engine?"),
        ("\n\nsuite = 'nope'\n", 3, "suite: 'nope' is not one of 'agent'"),
        ("threads = true\n", 1, "threads must be a whole number, not True"),
        ("threads = '4'\n", 1, "threads must be a whole number, not '4'"),
        ("pair = 3\n", 1, "pair must be text, not 3"),
        ("pair = 'demo'\n[bench]\nx = 1\n", 2, "there is no key 'bench'"),
        ("pair = 'demo'\nthreads = \n", 2, "Invalid value"),
        ("pair = 'demo\n", 1, ""),  # what is said differs between Pythons
    ],
)
def test_a_mistake_is_one_line_with_file_and_line(config: Path, text: str, line: int, message: str) -> None:
    config.write_text(text)
    done = shell.here("bench", *DEMO, "--dry-run")
    assert done.returncode == 1
    error, hint = done.stderr.splitlines()
    assert error.startswith(f"error: {config}:{line}: {message}")
    assert hint.startswith("hint: ")
    assert shell.here("bench", "--help").returncode == 0
    assert shell.here("config", "path").returncode == 0


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("threads", "many", "threads must be a whole number, not 'many'"),
        ("threads", "0", "threads: '0' is out of range: threads are from 1 to"),
        ("engine", "sever", "engine: 'sever' is not one of 'binary', 'binary-simple'"),
        ("suite", "nope", "suite: 'nope' is not one of"),
        ("offline", "perhaps", "offline must be true or false, not 'perhaps'"),
        ("output", "xml", "output: 'xml' is not one of"),
        ("pair", "no-such-pair", "no pair is called 'no-such-pair'"),
    ],
)
def test_a_wrong_value_is_named_where_it_stands_with_the_commands_that_change_it(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, text: str, message: str
) -> None:
    words = ("plan",) if key == "offline" else ("bench", "-p", "Hi", "--dry-run")
    config.write_text(f'llama = "{fakes.install(tmp_path / "llama")}"\n')
    error, hint = shell.here("config", "set", key, text).stderr.splitlines()
    assert message in error
    if key != "pair":
        assert error.startswith("error: config set: ")
        example = hint.removeprefix("hint: for example `ggufspec ").removesuffix("`").split()
        assert shell.here(*example).returncode == 0
        assert shell.here("config", "unset", key).returncode == 0
    variable = f"GGUFSPEC_{key.upper()}"
    with monkeypatch.context() as environment:
        environment.setenv(variable, text)
        error, hint = shell.here(*words).stderr.splitlines()[-2:]
    assert error.startswith(f"error: {variable}: {message}")
    assert re.search(rf"export ({variable}=\S+) sets another value, unset {variable} removes it$", hint)
    assert "ggufspec config set" not in hint
    with config.open("a") as file:
        file.write(f"{key} = {text if text.isdecimal() else repr(text)}\n")
    error, hint = shell.here(*words).stderr.splitlines()[-2:]
    assert error.startswith(f"error: {config}:2: {message}")
    assign = re.search(
        r"`ggufspec (config set \w+ \S+)` sets another value, `ggufspec (config unset \w+)` removes it$", hint
    )
    if key != "pair":
        assert shell.here(*assign[1].split()).returncode == 0
        assert f"{config}:2" not in shell.here(*words).stderr
    assert shell.here(*assign[2].split()).returncode == 0
    assert key not in config.read_text()


def test_wrong_keys_and_files_come_with_commands(config: Path) -> None:
    config.write_text("engin = 'server'\n")
    hint = shell.here("plan").stderr.splitlines()[-1]
    assert hint.startswith("hint: `ggufspec config unset engin` removes it; the keys are pair, ")
    assert shell.here("config", "unset", "engin").returncode == 0
    config.write_text("pair = \n")
    assert f"hint: edit it (${{EDITOR:-vi}} {config}), or remove it" in shell.here("plan").stderr


@pytest.mark.parametrize("variable", ["GGUFSPEC_DATA", "GGUFSPEC_CONFIG", "GGUFSPEC_LLAMA"])
def test_a_home_of_nobody_is_one_line(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "~nobody-of-this-name/x")
    done = (
        shell.here("bench", "--pair", "demo", "-p", "Hi")
        if variable.endswith("LLAMA")
        else shell.here("show")
    )
    assert done.returncode == 1
    assert (
        f"error: {variable}: ~nobody-of-this-name/x is in the home folder of a user who does not exist"
        in done.stderr
    )


def test_an_unknown_variable_is_named_with_what_may_be_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGUFSPEC_THREAD", "4")
    said = shell.here("config").stderr
    assert "note: the variable GGUFSPEC_THREAD is not a setting; did you mean GGUFSPEC_THREADS?" in said


def test_files_that_cannot_be_read_are_one_line(config: Path) -> None:
    config.write_bytes(b"pair = '\xff'\n")
    assert shell.here("show").stderr.startswith(f"error: {config} cannot be read: it is not UTF-8 text")
    config.unlink()
    config.mkdir()
    assert f"{config} cannot be read: Is a directory" in shell.here("show").stderr


def test_set_get_and_unset_keep_what_else_is_in_the_file(config: Path) -> None:
    config.write_text("# threads of the laptop\nthreads = 2  # not more\n")
    assert shell.here("config", "set", "engine", "server").returncode == 0
    assert shell.here("config", "set", "offline", "yes").returncode == 0
    assert shell.here("config", "get", "engine").stdout == "server\n"
    assert shell.here("config", "get", "offline").stdout == "true\n"
    assert shell.here("config", "get", "pair").stdout == ""
    assert config.read_text().startswith("# threads of the laptop\nthreads = 2  # not more\n")
    assert shell.here("config", "unset", "engine").returncode == 0
    assert settings.read_settings()["engine"].value is None
    assert settings.read_settings()["offline"].value is True
    assert list(config.parent.iterdir()) == [config]


def test_a_linked_file_stays_a_link_and_keeps_its_mode(config: Path, tmp_path: Path) -> None:
    kept = tmp_path / "dotfiles" / "ggufspec.toml"
    kept.parent.mkdir()
    kept.write_text("threads = 2\n")
    kept.chmod(0o600)
    relay = tmp_path / "relay.toml"
    relay.symlink_to(kept)
    config.symlink_to(relay)
    assert shell.here("config", "set", "engine", "server").returncode == 0
    assert (config.is_symlink(), relay.is_symlink()) == (True, True)
    assert kept.read_text() == 'threads = 2\nengine = "server"\n'
    assert kept.stat().st_mode & 0o777 == 0o600
    assert shell.here("config", "unset", "threads").returncode == 0
    assert kept.read_text() == 'engine = "server"\n'
    assert list(kept.parent.iterdir()) == [kept]
    kept.unlink()
    assert shell.here("config", "set", "threads", "1").returncode == 0  # a link to what is not there yet
    assert kept.read_text() == "threads = 1\n"
    assert config.is_symlink()


def test_set_makes_files_and_paths(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.parent.rmdir()
    monkeypatch.chdir(tmp_path)
    assert shell.here("config", "set", "llama", "build").returncode == 0
    assert settings.read_settings()["llama"].value == str(tmp_path / "build")
    assert shell.here("config", "path").stdout == f"{config}\n"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("set", "engin", "server"), 1, "there is no key 'engin'; did you mean engine?"),
        (("set", "pair", "llama-3-70"), 31, "close names: llama-3-70b"),
        (("get", "colour"), 1, "there is no key 'colour'"),
        (("unset", "colour"), 1, "there is no key 'colour'"),
        (("sett",), 2, "Did you mean"),
    ],
)
def test_wrong_changes_change_nothing(config: Path, words: tuple[str, ...], code: int, message: str) -> None:
    done = shell.here("config", *words)
    assert done.returncode == code
    assert message in done.stderr
    assert not config.exists()


def test_a_variable_that_hides_a_change_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGUFSPEC_ENGINE", "server")
    assert (
        "GGUFSPEC_ENGINE is set and has precedence" in shell.here("config", "set", "engine", "binary").stderr
    )


def test_verbose_says_who_set_what(config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    llama = fakes.install(tmp_path / "llama", **fakes.AT_ONCE)
    config.write_text(f'llama = "{llama}"\n')
    monkeypatch.setenv("GGUFSPEC_THREADS", "1")
    said = shell.here("-v", "bench", *DEMO, "--dry-run").stderr
    assert f"llama: {llama} ({config}:1)" in said
    assert "threads: (1,) (GGUFSPEC_THREADS)" in said
    assert "pair: demo (command line)" in said
    assert "offline: False (default)" in said


def test_closest_file_beside_one_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "Llama-3-8B.Q4_K_M.gguf").touch()
    (tmp_path / "readme.md").touch()
    assert paths.beside(tmp_path / "llama-3-8b.Q4_K_S.gguf") == tmp_path / "Llama-3-8B.Q4_K_M.gguf"
    assert paths.beside(tmp_path / "qwen.bin") is None
    assert paths.beside(tmp_path / "nowhere" / "x.gguf") is None
