"""What `ggufspec serve --export` writes is read as the command that it was made of, whatever its paths."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ggufspec.choices import ServerFormat
from ggufspec.domain import Build
from ggufspec.options import BenchOptions
from ggufspec.pasting import find_commands, read_command
from ggufspec.report.text import exports
from ggufspec.tuning import ServerCommand, ServerOption

HOSTILE = "a  b %h $HOME ${X} 'q' \"d\" `c` \\ n é * ~ & ; # x"
FOLDERS = {
    ServerFormat.SYSTEMD: HOSTILE,
    ServerFormat.COMPOSE: HOSTILE,
    ServerFormat.LLAMA_SWAP: HOSTILE.replace("${", "{"),
    ServerFormat.PRESET: re.sub("[;#]", "", HOSTILE),
    ServerFormat.ENV: HOSTILE,
}


def _option(flag: str, value: str, variable: str) -> ServerOption:
    names_file = flag.startswith("--model")
    return ServerOption(
        flag=flag, value=value, spellings=frozenset({flag}), variable=variable, names_file=names_file
    )


@pytest.mark.parametrize("program", [("/opt/llama/llama-server",), ("/opt/llama/llama", "serve")])
@pytest.mark.parametrize("form", ServerFormat)
def test_exported_commands_can_be_read(form: ServerFormat, program: tuple[str, ...], tmp_path: Path) -> None:
    target, drafter = (tmp_path / FOLDERS[form] / name for name in ("big.gguf", "small.gguf"))
    command = ServerCommand(
        name="mine",
        program=program,
        options=(
            _option("--model", str(target), "LLAMA_ARG_MODEL"),
            _option("--port", "8080", "LLAMA_ARG_PORT"),
            _option("--ctx-size", "4096", "LLAMA_ARG_CTX_SIZE"),
            _option("--spec-draft-n-max", "5", "LLAMA_ARG_SPEC_DRAFT_N_MAX"),
            _option("--model-draft", str(drafter), "LLAMA_ARG_MODEL_DRAFT"),
            _option("--spec-type", "draft-simple", "LLAMA_ARG_SPEC_TYPE"),
            _option("--flash-attn", "on", "LLAMA_ARG_FLASH_ATTN"),
        ),
        environment={"CUDA_VISIBLE_DEVICES": "1"},
        build=Build(version="0.5.0 b11312", commit=None, backend="cpu", path="/opt/llama"),
    )
    (found,) = find_commands(exports.export(command, form))
    pasted = read_command(found)
    expected = BenchOptions(
        target=str(target), draft_model=str(drafter), draft=5, ctx=4096, method="draft-model", flash_attn="on"
    )
    assert BenchOptions(**pasted.values) == expected
    if form is not ServerFormat.PRESET:  # whose variables are comments
        assert pasted.variables == {"CUDA_VISIBLE_DEVICES": "1"}
