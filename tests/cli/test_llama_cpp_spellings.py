"""llama.cpp's own names of options: every spelling is understood where an option means the same."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from click.testing import CliRunner

from ggufspec.cli import cli
from ggufspec.cli.entry.parameters import FieldOption
from ggufspec.domain import NgramSettings
from ggufspec.llama.install.options import parse_help
from ggufspec.options import BenchOptions
from tests.support import command_lines, shell

HELPS = sorted((Path(__file__).parents[1] / "help").glob("[!i]*/*.txt"))  # without those of ik_llama.cpp
COMMANDS = command_lines.commands()


@functools.cache  # not at once: each worker of pytest-xdist imports this file
def _groups() -> frozenset[frozenset[str]]:
    """Return the names that each recorded program of llama.cpp lists for one option."""
    listed = [parse_help(path.read_text(), plain=False) for path in HELPS]
    return frozenset(options.spellings(flag) for options in listed for flag in options.help)


@pytest.mark.parametrize("path", COMMANDS)
def test_an_option_has_every_name_of_llama_cpp_or_says_that_it_means_something_else(path: str) -> None:
    fields = {
        name: param.option
        for param in COMMANDS[path].params
        if isinstance(param, FieldOption)
        for name in (*param.opts, *param.secondary_opts)
    }
    for group in _groups():
        for name in group & fields.keys():
            if not fields[name].elsewhere:
                missing = {other for other in group if fields.get(other) is not fields[name]}
                assert not missing, f"{path} {name}"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("-hf u/r:Q4_0 -hfd u/d", {"target": "u/r:Q4_0", "draft_model": "u/d"}),
        ("--draft-n-min 4 --spec-draft-sampling greedy", {"draft_min": 4, "draft_sampling": "greedy"}),
        ("--spec-type draft-simple", {"method": "draft-model"}),
        ("--spec-type draft", {"method": "draft-model"}),
        ("--spec-type ngram-mod,draft-mtp", {"method": "ngram-mod+draft-mtp"}),
        ("--spec-default", {"method": "ngram-mod"}),
        (
            "--spec-ngram-mod-n-match 24 --spec-ngram-mod-n-min 8",
            {"ngram": NgramSettings(size_n=24, n_min=8)},
        ),
        ("--spec-ngram-size-n 12 --spec-ngram-size-m 24", {"ngram": NgramSettings(size_n=12, size_m=24)}),
        ("-fa --mlock", {"flash_attn": "on", "mlock": True}),
        ("-fa 1", {"flash_attn": "on"}),
        ("--flash-attn disabled --ubatch-size 256", {"flash_attn": "off", "ubatch": 256}),
        ("--mmap --predict 64 --temperature 0.5", {"n_predict": 64, "temp": 0.5}),
        ("--no-spec-draft-backend-sampling", {"draft_backend_sampling": "off"}),
        ("--file a.txt --system-prompt Hi", {"prompt_file": Path("a.txt"), "system": "Hi"}),
        ("--spec-synth-rates 0.9,0.8", {"synthetic_accept": (0.9, 0.8)}),
    ],
)
def test_llama_cpps_words_are_read(words: str, expected: dict[str, object]) -> None:
    assert command_lines.read("bench", *words.split()) == BenchOptions(**expected)


@pytest.mark.parametrize(
    ("path", "words", "expected"),
    [
        ("auto", "-hf u/r:Q4_0", {"target": "u/r:Q4_0"}),
        ("suggest", "--model a.gguf", {"target": "a.gguf"}),
        ("check", "-md b.gguf -m a.gguf", {"target": ("a.gguf",), "draft_model": ("b.gguf",)}),
    ],
)
def test_a_model_that_stands_without_a_name_may_have_one(
    path: str, words: str, expected: dict[str, object]
) -> None:
    assert command_lines.read(path, *words.split()) == COMMANDS[path].options(**expected)


def test_a_system_prompt_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "system.txt"
    file.write_text("You are brief.\n")
    assert command_lines.read("chat", "-sysf", str(file)).system == "You are brief."
    done = shell.here("chat", "--system-prompt-file", str(tmp_path / "none.txt"))
    assert (done.returncode, "cannot read" in done.stderr) == (2, True)


def test_a_name_of_llama_cpp_is_neither_shown_nor_printed() -> None:
    text = CliRunner().invoke(cli, ["bench", "--help-all"]).output
    assert "--gpu-layers" not in text
    assert "--spec-type" not in text
    asked = command_lines.read("bench", "--n-gpu-layers", "7", "--spec-type", "draft-mtp")
    assert asked.to_argv() == ("--method", "draft-mtp", "--ngl", "7")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("bench", "-r", "User:"), "In llama.cpp, -r is --reverse-prompt"),
        (("build", "-j", "{}"), "In llama.cpp, -j is --json-schema"),
        (
            ("show", "-o", "out.txt"),
            "In llama.cpp, -o is a file to write, except in llama-bench; here that is",
        ),
        (("bench", "-hff", "x.gguf"), "say -m user/repo/FILE.gguf"),
        (("tune", "--draft-min", "4"), "drafts of every length are verified"),
        (("bench", "--load-mode", "none"), "say --no-mmap for none, or --mlock"),
        (("bench", "--spec-type", "none"), "leave the drafter and the method out"),
        (("auto", "--draft-max", "8"), "'--draft-max'. `ggufspec bench` has it, as --draft."),
        (("bench", "--timeout", "0"), "between 1 second and 480 hours. In llama.cpp, --timeout is how long"),
        (("bench", "--depth", "99999999"), "tokens are from 0 to 16777216, and"),
        (("bench", "--suite", "mine.toml"), "not a built-in suite; --prompt-file reads one from a file"),
        (("suggest", "--pair", "demo"), "'--pair'. `ggufspec bench` has it."),
        (("auto", "-m", "a.gguf", "b.gguf"), "two models are named, a.gguf and b.gguf"),
        (("auto",), "Missing argument 'TARGET'"),
        (("tune", "--json-schema", "{}"), "say grammar or json_schema of a prompt, in a --prompt-file"),
        (("chat", "--chat-template", "llama3"), "say --chat-template-file FILE"),
        (("bench", "--no-kv-offload"), "add it after --: -- --no-kv-offload"),
        (("bench", "--gpu-layer", "9"), "Did you mean --ngl?"),
        (("tune", "--n-gpu-layer", "9"), "Did you mean --ngl?"),
        (("bench", "--model-drft", "x"), "Did you mean --draft-model"),
        (("plan", "--ctx-sise", "9"), "Did you mean --ctx?"),
        (("bench", "--spec-draft-nmax", "9"), "Did you mean --draft"),
    ],
)
def test_a_refused_name_says_what_it_means_or_which_is_near(words: tuple[str, ...], message: str) -> None:
    done = shell.here(*words)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
