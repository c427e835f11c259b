"""Models that are on this machine: in folders, in caches of other programs, and what can draft for what."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import ggufspec
from ggufspec.domain import Method
from ggufspec.modelfiles.api import LocalModel
from tests.support import models, shell
from tests.support.hub_client import DEMO

MODEL_LAYER = "application/vnd.ollama.image.model"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose programs keep targets, one with layers for MTP, a drafter, and other files."""
    folder = tmp_path / "somebody"
    for name in ("LLAMA_CACHE", "OLLAMA_MODELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    studio = folder / ".lmstudio/models/me/demo"
    studio.mkdir(parents=True)
    shutil.copy(DEMO / "target.gguf", studio)
    (studio / "broken.gguf").write_bytes(b"GGUF")
    (studio / "mmproj-demo.gguf").write_bytes(b"no model")
    (folder / ".cache/llama.cpp").mkdir(parents=True)
    shutil.copy(DEMO / "drafter.gguf", folder / ".cache/llama.cpp")
    add_to_ollama(folder / ".ollama/models", "registry.ollama.ai/library/village/1b", "mtp.gguf")
    add_to_ollama(folder / ".ollama/models", "hf.co/me/village/Q8_0", "target.gguf")
    (folder / ".ollama/models/manifests/notes").write_text("no manifest")
    return folder


def add_to_ollama(folder: Path, name: str, model: str) -> None:
    """Store a model of the embedded ones as Ollama does."""
    digest = f"sha256:{model.encode().hex()}"
    layers = [
        {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:0"},
        {"mediaType": MODEL_LAYER, "digest": digest},
    ]
    manifest = folder / "manifests" / name
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"layers": layers}))
    (folder / "blobs").mkdir(exist_ok=True)
    shutil.copy(DEMO / model, folder / "blobs" / digest.replace(":", "-"))


def found(*folders: Path) -> tuple[LocalModel, ...]:
    return ggufspec.models(folders=folders).models


def test_models_are_found_where_programs_keep_them(home: Path) -> None:
    assert [(model.place, model.name, model.head) for model in found()] == [
        ("llama.cpp", "drafter.gguf", None),
        ("LM Studio", "me/demo/target.gguf", None),
        ("Ollama", "hf.co/me/village:Q8_0", None),
        ("Ollama", "village:1b", Method.DRAFT_MTP),
    ]


def test_variables_of_other_programs_move_their_folders(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".ollama/models").rename(tmp_path / "ollama")
    (home / ".cache/llama.cpp").rename(tmp_path / "llama")
    assert [model.place for model in found()] == ["LM Studio"]
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "llama"))
    assert [model.place for model in found()] == ["llama.cpp", "LM Studio", "Ollama", "Ollama"]


def test_a_named_folder_comes_first_and_each_file_once(home: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links/a.gguf").symlink_to(home / ".cache/llama.cpp/drafter.gguf")
    first, *others = found(tmp_path / "links")
    assert (first.place, first.name) == (str(tmp_path / "links"), "a.gguf")
    assert len(others) == 3


def test_pairs_are_what_llama_cpp_accepts_the_smallest_drafter_first(home: Path, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    models.write_model(tmp_path / "more" / "stranger.gguf", *models.llama())  # of another vocabulary
    pairs = ggufspec.models(folders=tmp_path / "more").pairs
    assert [(pair.target.name, pair.drafter.name, pair.method) for pair in pairs] == [
        ("me/demo/target.gguf", "drafter.gguf", Method.DRAFT_MODEL),
        ("me/demo/target.gguf", "village:1b", Method.DRAFT_MODEL),
        ("hf.co/me/village:Q8_0", "drafter.gguf", Method.DRAFT_MODEL),
        ("hf.co/me/village:Q8_0", "village:1b", Method.DRAFT_MODEL),
        ("village:1b", "village:1b", Method.DRAFT_MTP),
        ("village:1b", "drafter.gguf", Method.DRAFT_MODEL),
    ]


def test_the_command_lists_models_and_pairs_and_says_how_to_go_on(home: Path) -> None:
    done = shell.ggufspec("models")
    assert done.returncode == 0, done.stderr
    assert "me/demo/target.gguf" in done.stdout
    target, drafter = home / ".lmstudio/models/me/demo/target.gguf", home / ".cache/llama.cpp/drafter.gguf"
    assert f"ggufspec tune -m {target} -md {drafter}\n" in done.stderr
    listed = json.loads(shell.ggufspec("models", "-o", "json").stdout)
    assert [pair["method"] for pair in listed["pairs"]].count("draft-mtp") == 1
    assert {model["path"] for model in listed["models"]} >= {str(target), str(drafter)}


def test_a_machine_without_models_is_told_how_to_get_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    done = shell.ggufspec("models")
    assert (done.returncode, done.stdout) == (0, "")
    assert "`ggufspec fetch` downloads a pair" in done.stderr


@pytest.mark.parametrize("text", ["{folder}", "{folder}/"])
def test_a_folder_with_one_model_stands_for_it(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    shutil.copy(DEMO / "target.gguf", folder)
    (folder / "mmproj-target.gguf").touch()
    done = shell.ggufspec("check", text.format(folder=folder), str(DEMO / "drafter.gguf"))
    assert (done.returncode, done.stdout.split()[0]) == (0, "accepted")
