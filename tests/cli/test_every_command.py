"""How every command behaves: streams, how much it says, help, suggestions, and a start-up that is light."""

from __future__ import annotations

import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ggufspec import results
from ggufspec.choices import SUITES, Backend
from ggufspec.cli import COMMANDS, cli
from ggufspec.cli.entry.parameters import FieldOption
from tests.support import fakes, shell

QUICK = ("bench", "--pair", "demo", "-p", "Once upon a time", "-n", "32", "-r", "1", "-t", "1")
HEAVY = {
    *("pandas", "numpy", "rich", "huggingface_hub", "gguf", "httpx2", "jinja2", "llama_cpp", "unearth"),
    *("psutil", "msgspec", "tomlkit", "tomllib", "logging", "prompt_toolkit", "filelock"),
}


@pytest.fixture(autouse=True)
def config(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGUFSPEC_CONFIG", str(home / "config"))


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom ggufspec.cli import COMMANDS, cli\n"
        "for words in ([], *([name] for name in COMMANDS)):\n"
        "    cli.main([*words, '--help'], standalone_mode=False)\n"
        f"    for module in {HEAVY} & set(sys.modules):\n"
        "        sys.exit(f'{words} imports {module}')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.count("Usage: ") == 1 + len(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_takes_the_same_flags(name: str) -> None:
    found = command(name)
    flags = {flag for param in found.params for flag in param.opts}
    assert isinstance(found, click.Group) or flags >= {"-q", "--quiet", "-v", "--verbose", "--debug"}
    assert all(param.help for param in found.params if isinstance(param, click.Option)), (
        "an option has no help"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_many_options_stand_in_sections_and_each_of_them_once(name: str) -> None:
    found = command(name)
    options = [param for param in found.params if isinstance(param, click.Option) and not param.hidden]
    if isinstance(found, click.Group):
        assert len(options) < 9  # its commands have the others
        return
    text = CliRunner().invoke(cli, [name, "--help-all"], terminal_width=200).output
    sections = [part for part in text.split("\n\n") if part.split("\n")[0].endswith(":")]
    lines = [line.strip() for part in sections for line in part.splitlines() if line.startswith("  -")]
    listed = [word.rstrip(",") for line in lines for word in line.split("  ")[0].split()]
    for option in options:
        understood = option.option.hidden if isinstance(option, FieldOption) else ()
        shown = [name for name in option.opts if name not in understood]
        assert listed.count(shown[-1]) == 1
        assert not {*listed} & {*understood}
    assert ("\nGeneral:\n" in text) == (len(options) >= 9)
    if len(options) >= 9:
        assert "\nOptions:\n" not in text, "an option has no section"


def _imported(*words: str) -> int:
    """Return how many modules a start of Python imports."""
    done = subprocess.run([sys.executable, "-X", "importtime", *words], capture_output=True, check=True)
    return done.stderr.count(b"import time:")


@pytest.mark.parametrize("words", [(), ("bench",), ("doctor",)])
def test_help_imports_at_most_twice_what_click_does(words: tuple[str, ...]) -> None:
    assert _imported("-m", "ggufspec", *words, "--help") < 2 * _imported("-c", "import click")


def test_help_names_all_words_and_version_the_version() -> None:
    for words, names in ((("bench", "--help-all"), SUITES), (("build", "--help"), Backend)):
        text = CliRunner().invoke(cli, words).output
        assert all(str(name) in text for name in names)
    assert re.fullmatch(r"ggufspec, version \d+\.\d+\.\d+\S*\n", shell.here("--version").stdout)


@pytest.mark.parametrize("words", [("-q", *QUICK), (*QUICK, "-q"), (*QUICK, "--quiet")])
def test_quiet_leaves_nothing_but_the_result(llama: Path, words: tuple[str, ...]) -> None:
    done = shell.here(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(r"Engine: binary \(.*\)\.\n\n\|          \| model", done.stdout)


def test_quiet_still_says_what_went_wrong(tmp_path: Path) -> None:
    done = shell.here("-q", "show", "nope")
    assert done.returncode == 13
    assert done.stderr.startswith("error: no bench is stored yet\nhint: ")
    assert "No such option" in shell.here("-q", "show", "--nope").stderr
    assert "Did you mean" in shell.here("-q", "shw").stderr


@pytest.mark.parametrize("words", ["-q --debug pairs", "-v -q pairs", "-q pairs -v", "pairs --debug -q"])
def test_quiet_and_verbose_contradict_each_other_aloud(words: str) -> None:
    done = shell.here(*words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("Error: --quiet contradicts --verbose and --debug\n")


def test_verbose_says_more_and_the_data_stays_the_same(llama: Path) -> None:
    plain, verbose = shell.here(*QUICK, "--dry-run"), shell.here(*QUICK, "--dry-run", "-v")
    assert plain.stdout == verbose.stdout
    assert "ggufspec: pair: demo (command line)" in verbose.stderr
    assert "ggufspec: " not in plain.stderr


@pytest.mark.parametrize("words", [("--debug", "show", "nope"), ("show", "nope", "--debug")])
def test_debug_shows_tracebacks_wherever_it_stands(words: tuple[str, ...]) -> None:
    done = shell.ggufspec(*words)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("words", shell.PRINTING, ids=" ".join)
def test_a_reader_that_has_seen_enough_ends_a_command_quietly(words: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as ``| head`` does once it has its lines
    done = shell.redirected(*words, stdout=writing)
    os.close(writing)
    assert done.returncode == 128 + signal.SIGPIPE
    assert "error" not in done.stderr.lower()
    assert "Traceback" not in done.stderr


def test_a_bench_whose_reader_is_gone_is_stored(llama: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = shell.redirected(*QUICK, "--name", "n", stdout=writing)
    os.close(writing)
    assert done.returncode == 128 + signal.SIGPIPE
    assert "Traceback" not in done.stderr
    assert results.load("n").is_complete


def test_closed_standard_output_is_said(llama: Path) -> None:
    words = shlex.join([sys.executable, "-m", "ggufspec", "-q", *QUICK])
    done = subprocess.run(["sh", "-c", f"{words} >&-"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: cannot write to standard output: it is closed\nhint: ")


DEMO_TPS = ("--target-tps", "2", "--drafter-tps", "80", "--accept", "0.7")


@pytest.mark.parametrize(
    ("words", "notes"),
    [
        ((*QUICK, "--dry-run"), True),
        (("check", "demo"), False),
        (("plan", "--pair", "demo", "--vram", "1G"), False),
        (("pairs",), True),
        (("pairs", "demo"), False),
        (("build", "--list"), False),
        (("fetch", "demo", "--dry-run", "--offline"), False),
        (("whatif", *DEMO_TPS), True),
        (("config",), True),
        (("completion", "bash"), False),
        (("doctor", "--offline"), True),
        (("parse", "tests/logs/0.2.63/plain.log"), False),
    ],
    ids=lambda words: words[0] if isinstance(words, tuple) else None,
)
def test_data_goes_to_standard_output_and_everything_else_to_standard_error(
    llama: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], notes: bool
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    done = shell.done(*words)
    assert done.stdout
    assert bool(done.stderr) == notes
    assert shell.here("-q", *words).stderr == ""


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("bnech",), "bench"),
        (("compar", "a"), "compare"),
        (("bench", "--enigne", "server"), "--engine"),
        (("plan", "--pair", "lama-3-70b"), "llama-3-70b"),
        (("parse", "tests/logs/0.2.63/plan.log"), "plain.log"),
        (("config", "get", "thread"), "threads"),
        (("bench", "--engine", "sever"), "'server'"),
    ],
)
def test_typos_get_suggestions(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], meant: str) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    done = shell.here(*words)
    assert done.returncode != 0
    assert done.stdout == ""
    assert meant in done.stderr


def test_an_unknown_command_like_no_other_gets_no_suggestion() -> None:
    assert "mean" not in shell.here("xyzzy").stderr


@pytest.mark.parametrize("colour", [False, True])
def test_no_color_is_obeyed_in_a_terminal(tmp_path: Path, colour: bool) -> None:
    slow = fakes.AT_ONCE | {"drafting": "sleep 0.3\n" + fakes.AT_ONCE["drafting"]}  # a bar is seen meanwhile
    llama = fakes.install(tmp_path / "llama", **slow)
    env = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    env |= {"GGUFSPEC_LLAMA": str(llama), "TERM": "xterm-256color"} | ({} if colour else {"NO_COLOR": "1"})
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "ggufspec", *QUICK, "--warmup", "0"]
    with subprocess.Popen(words, env=env, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs) as bench:
        os.close(theirs)
        said = b""
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:  # the terminal's other end is closed
                break
            said += part
        table = bench.stdout.read()
    os.close(ours)
    assert re.search(rb"\d of \d+ runs", said), "no growing table was shown"
    assert bool(re.search(rb"\x1b\[[0-9;]*3[0-9]", said)) == colour
    assert b"\x1b" not in table


def test_a_download_is_not_asked_about_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    from ggufspec.cli.entry import verbosity
    from ggufspec.cli.entry.terminal import Terminal
    from ggufspec.domain import ModelFile, Pair
    from ggufspec.errors import ConsentNeededError
    from ggufspec.modelfiles import hub
    from ggufspec.modelfiles.hub import FetchItem, Survey
    from ggufspec.modelfiles.hub.choice import RepoFile

    nowhere = Path("/nonexistent")
    file = RepoFile(path="big.gguf", size_bytes=hub.ASK_ABOVE_BYTES + 1, digest="0" * 64)
    item = FetchItem(
        repo="me/Big", commit="c", revision="main", file=file, path=nowhere, blob=nowhere, here_bytes=0
    )
    pair = Pair(name="big", target=ModelFile(filename="big.gguf"), draft=None)
    found = Survey(pair=pair, items=(item,), folder=nowhere, free_bytes=1 << 60)
    with click.Context(cli, obj=verbosity.Verbosity(quiet=True)):
        terminal = Terminal()
    with pytest.raises(ConsentNeededError, match="--quiet does not ask"):
        hub.ask_to_download(found.missing_bytes, terminal, yes=False)
    hub.ask_to_download(found.missing_bytes, terminal, yes=True)


def test_a_traceback_shows_no_credentials() -> None:
    code = (
        "from ggufspec import cli\n"
        "from ggufspec.errors import GgufspecError\n"
        "def fail(*, obj, **others):\n"
        "    obj.debug = True\n"
        "    try:\n"
        "        raise ValueError('https://me:s3cr3t@index.example/simple is gone')\n"
        "    except ValueError as error:\n"
        "        raise GgufspecError('in short') from error\n"
        "cli.cli.main = fail\n"
        "cli.main()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "ValueError: https://***@index.example/simple is gone" in result.stderr
    assert "GgufspecError: in short" in result.stderr
    assert "s3cr3t" not in result.stderr


def test_an_interrupt_while_the_command_is_imported_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    )
    done = shell.ggufspec("show", "--list", env={"PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_deleted_working_folder_is_said(tmp_path: Path) -> None:
    code = (
        "import os, sys; from ggufspec.__main__ import main\n"
        "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')\n"
        "sys.argv[1:] = ['show', '--list']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: the working folder was deleted\nhint: ")


@pytest.mark.parametrize(
    ("words", "target"),
    [("show --list", "nowhere"), ("show --list", "link"), ("config set threads 2", "link")],
)
def test_a_link_that_leads_nowhere_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, target: str
) -> None:
    link, variable = tmp_path / "link", "GGUFSPEC_CONFIG" if "config" in words else "GGUFSPEC_DATA"
    monkeypatch.setenv(variable, str(link))
    link.symlink_to(tmp_path / target)
    done = shell.here(*words.split())
    assert f"the symbolic link {link} leads to no folder: {tmp_path / target}" in done.stderr
    assert variable in done.stderr.splitlines()[-1]


def test_a_limit_of_file_sizes_is_said(llama: Path) -> None:
    words = shlex.join(
        [sys.executable, "-m", "ggufspec", "bench", "--pair", "demo", "-p", "A cat", "-r", "1"]
    )
    env = {**os.environ, "GGUFSPEC_LLAMA": str(llama)}
    done = subprocess.run(["sh", "-c", f"ulimit -f 4; exec {words}"], env=env, capture_output=True, text=True)
    assert done.returncode == 13, done.stderr
    assert "this shell limits the size of files" in done.stderr
    assert "ulimit -f unlimited" in done.stderr


# Commands as strangers type them: each mistake gets one line that says what to do


TARGET = Path(__file__).parents[2] / "models" / "demo" / "target.gguf"


def test_a_folder_is_not_a_model_and_its_models_are_named(tmp_path: Path) -> None:
    done = shell.here("suggest", str(tmp_path))
    assert (done.returncode, done.stderr) == (
        6,
        f"error: {tmp_path} is a folder with 0 models\nhint: name a .gguf file\n",
    )
    os.mkfifo(tmp_path / "pipe.gguf")
    for words in (
        ("suggest", "pipe.gguf"),
        ("plan", "-m", "pipe.gguf"),
        ("check", "demo:target", "pipe.gguf"),
    ):
        done = shell.here(*words[:-1], str(tmp_path / words[-1]))
        assert done.stderr.startswith(f"error: {tmp_path / 'pipe.gguf'} is not a regular file\n")
    (tmp_path / "pipe.gguf").unlink()
    parts = ("one-00001-of-00002.gguf", "one-00002-of-00002.gguf", "part-00001-of-00000.gguf")
    for name in (*parts, "two.gguf", "mmproj-two.gguf"):
        (tmp_path / name).touch()
    done = shell.here("suggest", str(tmp_path))
    assert done.stderr.endswith(
        "is a folder with 3 models\n"
        f"hint: name one of them, or FOLDER:QUANT: {parts[0]}, {parts[2]}, two.gguf; "
        f"`ggufspec models {shlex.quote(str(tmp_path))}` lists what can draft for what\n"
    )


def test_a_target_without_anything_that_drafts_is_told_what_to_name() -> None:
    done = shell.here("check", str(TARGET))
    assert done.returncode == 2
    assert "target.gguf has no layers that draft: name a draft model or a head behind it" in done.stderr
