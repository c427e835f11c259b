"""A fake of llama.cpp's converter, of uv that installs it, and checkpoints to convert."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from ggufspec.llama.convert.checkpoints import (
    ARCHITECTURE,
    Piece,
    write_config,
    write_specimen,
    write_tokenizer,
    write_weights,
)
from tests.support import fakes, models

ROOT = Path(__file__).parents[2]
NO_TORCH = """\
  × No solution found when resolving dependencies:
  ╰─▶ Because torch was not found in the package registry and you require
      torch==2.11.0, we can conclude that your requirements are unsatisfiable.
"""
REQUIREMENTS = (
    "-r ./requirements-convert_legacy_llama.txt\n--extra-index-url https://example.org/whl\n\n# newer\n"
)


def write_tree(folder: Path) -> Path:
    """Write a source tree of llama.cpp that has nothing but a fake converter of one architecture."""
    for name in ("include", "conversion", "gguf-py", "requirements"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").touch()
    (folder / "CMakeLists.txt").write_text("project(fake)\n")
    (folder / "include" / "llama.h").touch()
    (folder / "conversion" / "llama.py").write_text(f'NAMES = ["{ARCHITECTURE}"]\n')
    (folder / "convert_hf_to_gguf.py").write_text(
        "import sys\nfrom tests.support.fake_converter import convert\nconvert(sys.argv[1:])\n"
    )
    requirements = folder / "requirements"
    (requirements / "requirements-convert_hf_to_gguf.txt").write_text(REQUIREMENTS + "torch==2.11.0\n")
    (requirements / "requirements-convert_legacy_llama.txt").write_text("numpy~=2.2.6\ngguf>=0.1.0\n")
    return folder


def write_uv(folder: Path) -> Path:
    """Write a program uv that makes environments with a fake Python; ``calls`` beside it has its arguments.

    A file ``fail`` beside it holds what it prints before it fails; with a file ``slow`` it never ends.
    """
    folder.mkdir(parents=True)
    python = (
        "#!/bin/sh\nshift\n"  # -sE
        'case "$1" in -c) echo 2.99.0+cpu; exit 0;; esac\n'
        f'PYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} "$@"\n'
    )
    (folder / "python").write_text(python)
    return fakes.script(
        folder / "uv",
        f"""here={shlex.quote(str(folder))}
echo "$@" >> "$here/calls"
[ -e "$here/slow" ] && {{ echo waiting; exec sleep 600; }}
[ -e "$here/fail" ] && {{ cat "$here/fail" >&2; exit 1; }}
[ "$1" = venv ] || exit 0
for place; do :; done
mkdir -p "$place/bin" && cp "$here/python" "$place/bin/python" && chmod +x "$place/bin/python"
""",
    )


def calls(uv: Path) -> list[str]:
    """Return the arguments of each call of a fake uv."""
    file = uv.parent / "calls"
    return file.read_text().splitlines() if file.exists() else []


def write_head(folder: Path) -> Path:
    """Write a head in Hugging Face's format."""
    folder.mkdir(parents=True)
    config = {"architectures": [ARCHITECTURE], "num_hidden_layers": 1, "draft_vocab_size": 64}
    write_config(folder, config)
    write_weights(folder / "model.safetensors", {"fc.weight": np.zeros((4, 12), np.float32)})
    return folder


def write_target(folder: Path) -> Path:
    """Write what a conversion reads of a target."""
    folder.mkdir(parents=True)
    write_config(folder, {"architectures": ["LlamaForCausalLM"]})
    write_tokenizer(folder, [Piece(text="a")])
    return folder


def convert(argv: list[str], *, wrong: bool = False) -> None:
    """Act as the converter: convert the specimen, if ``wrong`` with another value, or do what the mood says.

    The mood is a key of the head's configuration.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    for name in ("--target-model-dir", "--outtype", "--model-name"):
        parser.add_argument(name, required=True)
    parser.add_argument("--outfile", type=Path, required=True)
    options = parser.parse_args(argv)
    text = (options.model / "config.json").read_text()
    sys.stderr.write("INFO:hf-to-gguf:fc.weight, torch.float32 --> F32, shape = {12, 4}\n")
    sys.stderr.write("Writing:   0%|  | 0.00/1.0\rWriting:  50%|  |\rWriting: 100%|##|\n")
    if options.model_name == "test":
        with tempfile.TemporaryDirectory() as folder:
            tensors = write_specimen(Path(folder)).tensors
        values = b"".join(tensors.values())
        options.outfile.write_bytes(values[:-1] + b"?" if wrong else values)
    elif '"refuse"' in text:
        sys.exit("ERROR:hf-to-gguf:Model Eagle9 is not supported")
    elif '"raise"' in text:
        raise ValueError("EAGLE-3 d2t contains duplicate target ids")
    elif '"kill"' in text:
        os.kill(os.getpid(), signal.SIGKILL)
    elif '"hang"' in text:
        options.outfile.write_bytes(b"half")
        time.sleep(600)
    elif '"full"' in text:
        raise OSError(28, "No space left on device")
    elif '"plain"' in text:
        models.write_model(options.outfile, *models.llama())
    elif '"nothing"' not in text:
        models.write_model(options.outfile, *models.eagle3())
