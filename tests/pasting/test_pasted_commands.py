"""Commands of llama.cpp as people paste them: what each is read as, and what is said of the rest."""

from __future__ import annotations

import contextlib
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import ggufspec
from ggufspec.domain import Program
from ggufspec.errors import GgufspecError
from ggufspec.options import BenchOptions, TuneOptions
from ggufspec.pasting import PastedCommand, command_of_words, find_commands, flags, read_command
from tests.support import command_lines, fakes

COMMANDS = tomllib.loads(Path(__file__).with_name("commands.toml").read_text())["command"]
TODAY = fakes.recorded_install("0.3.36").programs[Program.SERVER].options
SEEDED = "SECRET"


def _read(case: dict[str, Any]) -> PastedCommand:
    found = find_commands(case["text"])
    if "choose" in case:
        found = tuple(command for command in found if command.name == case["choose"])
    (command,) = found
    return read_command(command)


@pytest.mark.parametrize("case", COMMANDS, ids=[case["name"] for case in COMMANDS])
def test_a_command_becomes_options_of_a_bench(case: dict[str, Any]) -> None:
    pasted = _read(case)
    words = case["options"].replace("{home}", str(Path.home()))
    assert BenchOptions(**pasted.values) == command_lines.read("bench", *shlex.split(words))
    said = "\n".join((*pasted.notes, *pasted.to_change))
    for text in case.get("says", ()):
        assert text in said
    assert SEEDED not in repr(pasted)
    assert "seeded" not in repr(pasted)


def test_the_words_of_a_command_line_are_a_command_of_a_program() -> None:
    found = command_of_words(["env", "CUDA_VISIBLE_DEVICES=1", "/opt/bin/llama-server", "-m", "a b.gguf"])
    assert found is not None
    pasted = read_command(found)
    assert (pasted.program, pasted.folder, pasted.engine) == ("llama-server", "/opt/bin", "server")
    assert pasted.values == {"target": "a b.gguf"}
    assert pasted.variables == {"CUDA_VISIBLE_DEVICES": "1"}
    assert command_of_words(["lama-server", "-m", "x"]) is None
    (process,) = find_commands("/usr/bin/llama-server\0-m\0/m/a b.gguf\0-c\x004096\0")  # /proc/PID/cmdline
    assert read_command(process).values == {"target": "/m/a b.gguf", "ctx": 4096}


def test_a_notebook_gets_options_of_a_bench_and_of_a_tuning(tmp_path: Path) -> None:
    text = "llama-server -m big.gguf -md small.gguf --draft-max 8 --draft-min 2 -c 8192 --api-key SECRET"
    pasted = ggufspec.paste(text)
    models = {"target": "big.gguf", "draft_model": "small.gguf", "engine": "server"}
    assert pasted.options == BenchOptions(**models, draft=8, draft_min=2, ctx=8192)
    assert pasted.tuning == TuneOptions(**models, serve_ctx=8192)
    assert SEEDED not in repr(pasted)
    script = tmp_path / "serve.sh"
    script.write_text(f"{text}\nllama-cli -m small.gguf\n")
    with pytest.raises(GgufspecError, match=r"has 2 commands of llama\.cpp: 1, 2"):
        ggufspec.paste(script)
    assert ggufspec.paste(script, name="2").options.target == ("small.gguf",)
    with pytest.raises(GgufspecError, match="the text has no command"):
        ggufspec.paste("ls -l")


def test_the_command_is_written_for_todays_llama_cpp() -> None:
    text = (
        "./server -m a.gguf -md b.gguf -fa --draft-max 8 --draft-min 2 -cd 512 -td 4 -ngld 9 -ps 0.2 "
        "--api-key secret-seeded --port $PORT --no-mmap --mine x"
    )
    (command,) = find_commands(text)
    pasted = read_command(command)
    assert shlex.join(pasted.today) == (
        "llama-server -m a.gguf -md b.gguf -fa on --spec-draft-n-max 8 --spec-draft-n-min 2 -td 4 -ngld 9 "
        "--spec-draft-p-split 0.2 --api-key '***' --port '$PORT' --load-mode none --mine '***' "
        "--spec-type draft-simple"
    )
    assert shlex.join(pasted.without_drafting) == (
        "llama-server -m a.gguf -fa on --api-key '***' --port '$PORT' --load-mode none --mine '***'"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("llama-server --port 8080", "names no model"),
        ('llama-server -m "$DIR/a.gguf"', r"names no model: not read: -m, whose value needs \$DIR"),
        ("docker run -v $DIR:/m ghcr.io/ggml-org/llama.cpp:server -m /m/a.gguf", r"needs \$DIR"),
    ],
)
def test_a_command_without_a_model_is_refused(text: str, why: str) -> None:
    (command,) = find_commands(text)
    with pytest.raises(GgufspecError, match=why):
        read_command(command)


@pytest.mark.parametrize(
    "text",
    [
        "$(touch {made}) llama-server -m a.gguf -p `touch {made}`",
        'X=$(touch {made}); llama-server -m "$X" -c 16',
        "models:\n  a:\n    cmd: llama-server -m a.gguf $(touch {made})\n",
        "!!python/object/apply:os.system ['touch {made}']\n",
        "[Service]\nExecStart=/bin/sh -c 'touch {made}; llama-server -m a.gguf'\n",
    ],
)
def test_nothing_of_a_text_is_executed(text: str, tmp_path: Path) -> None:
    made = tmp_path / "made"
    for command in find_commands(text.replace("{made}", str(made))):
        try:
            read_command(command)
        except GgufspecError as error:
            assert "no model" in error.message  # noqa: PT017
    assert not made.exists()


@pytest.mark.parametrize("name", ["LD_PRELOAD", "GGML_BACKEND_PATH", "PATH", "PYTHONPATH", "LLAMA_CACHE"])
def test_variables_that_name_programs_or_libraries_are_never_set(name: str) -> None:
    (command,) = find_commands(f"{name}=/tmp/evil.so llama-server -m a.gguf")
    assert read_command(command).variables == {}


_WORDS = (
    *("llama-server", "main", "docker run", "-m a.gguf", "--api-key", "-fa", "-ngl", "-1", "--", "=", "-v"),
)
_SHELL = (
    *("$X", "${A[@]}", "${", "A=(", "&&", "\\\n", "cd ~\n", "sh -c '", "~nobody", "a:b"),
    *"'\"`$(){}#;|>&%\0\t\n ",
)
_FILES = (
    *("cmd: ", "command:\n  - ", "image: x/llama.cpp:server\n", "- ", "&a [*a]", "*a", "]", "volumes: 3\n"),
    *("ExecStart=", "Environment=", "[Service]\n", "[*]\n", "%h", "env: x\n", "macros: 1\n"),
    *("LLAMA_ARG_CTX_SIZE=8\n", "\u2028"),
)
_PIECES = st.sampled_from((*_WORDS, *_SHELL, *_FILES))


@settings(deadline=None, max_examples=500)
@given(st.lists(_PIECES, max_size=24).map("".join) | st.lists(_PIECES, max_size=24).map(" ".join))
def test_no_text_breaks_the_reader(text: str) -> None:
    for command in find_commands(text, Path("/srv")):
        with contextlib.suppress(GgufspecError):
            pasted = read_command(command)
            BenchOptions(**pasted.values)


def test_aliases_of_yaml_do_not_grow() -> None:
    nested = "".join(f"  k{n}: &k{n} [{', '.join([f'*k{n - 1}'] * 9)}]\n" for n in range(1, 30))
    text = f"x:\n  k0: &k0 [lol]\n{nested}models:\n  a:\n    cmd: llama-server -m a.gguf\n"
    (command,) = find_commands(text)
    assert read_command(command).values == {"target": "a.gguf"}


def test_every_flag_and_variable_of_todays_server_is_known() -> None:
    models = re.compile(r"--(?:fim|gpt-oss|embd|vision)-.+|-dr|--docker-repo")  # that llama.cpp chooses
    unknown = {flag for flag in TODAY.help if not flags.is_known(flag) and not models.fullmatch(flag)}
    assert unknown == {"--spec-synth-len"}
    variables = {variable for flag in TODAY.help if (variable := TODAY.variable(flag))}
    listed = {name for name in variables if name.startswith("LLAMA_ARG_")}
    assert len(listed) > 100
    unknown = {name for name in listed if not flags.is_known(flags.flag_of_variable(name) or "")}
    assert unknown == {"LLAMA_ARG_DOCKER_REPO", "LLAMA_ARG_SPEC_SYNTH_LEN"}


@pytest.mark.parametrize("flag", flags.GONE)
def test_a_translated_flag_is_gone_and_its_translation_is_there(flag: str) -> None:
    assert flag not in TODAY.help
    today = flags.GONE[flag].today
    assert today is None or today.split()[0] in TODAY.help


ERAS = {"0.2.63": Program.TREE, "0.3.2": Program.TREE, "0.3.16": Program.SERVER, "0.3.24": Program.SERVER}


@pytest.mark.parametrize(("build", "program"), ERAS.items())
def test_what_an_era_called_its_drafting_is_read(build: str, program: Program) -> None:
    listed = fakes.recorded_install(build).programs[program].options
    named = {flag for flag in listed.help if "draft" in flag}
    assert named
    assert all(flags.is_known(flag) for flag in named)
