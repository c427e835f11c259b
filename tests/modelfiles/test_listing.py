"""Models that are on this machine: in folders, in caches of other programs, and what can draft for what."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import ggufspec
from ggufspec import results
from ggufspec.domain import Method, ModelFile, Pair, Role
from ggufspec.errors import ModelFileError
from ggufspec.modelfiles import hub
from ggufspec.modelfiles.api import LocalModel
from ggufspec.modelfiles.gguf import read_card
from tests.support import models, shell, values
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


def test_variables_move_other_folders(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    done = shell.done("models")
    assert "me/demo/target.gguf" in done.stdout
    target, drafter = home / ".lmstudio/models/me/demo/target.gguf", home / ".cache/llama.cpp/drafter.gguf"
    assert f"ggufspec tune -m {target} -md {drafter}\n" in done.stderr
    listed = json.loads(shell.here("models", "-o", "json").stdout)
    assert [pair["method"] for pair in listed["pairs"]].count("draft-mtp") == 1
    assert {model["path"] for model in listed["models"]} >= {str(target), str(drafter)}


def test_set_folders_are_searched(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGUFSPEC_CONFIG", str(tmp_path / "config"))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        shutil.copy(DEMO / "drafter.gguf", tmp_path / name)
    assert shell.here("config", "set", "folders", f"{tmp_path}/a:~/none").returncode == 0
    assert [model.place for model in found(tmp_path / "b")][:3] == [
        str(tmp_path / "b"),
        str(tmp_path / "a"),
        "llama.cpp",
    ]


def test_pairs_say_which_bench_measured_them(home: Path) -> None:
    target, drafter = home / ".lmstudio/models/me/demo/target.gguf", home / ".cache/llama.cpp/drafter.gguf"
    pair = Pair(
        name="a",
        target=ModelFile(filename=target.name, path=target),
        draft=ModelFile(filename=drafter.name, path=drafter),
    )
    runs = [
        replace(run, spec=replace(run.spec, pair=pair if run.spec.drafting else replace(pair, draft=None)))
        for repeat in range(3)
        for run in (
            values.run(repeat=repeat, tps=50 + repeat / 10),
            values.run(Role.DRAFTING, repeat=repeat, tps=75 + repeat / 10, draft=3),
        )
    ]
    results.close(values.bench(*runs, name="measured"))
    by_files = {(pair.target.path, pair.drafter.path): pair for pair in ggufspec.models().pairs}
    known = by_files.pop((target, drafter))
    assert (known.bench, round(known.speedup or 0, 2)) == ("measured", 1.5)
    assert {(pair.bench, pair.speedup) for pair in by_files.values()} == {(None, None)}
    done = shell.here("models")
    assert "6 pairs here, 1 of them measured. Find out what pays:" in done.stderr
    assert f"-m {target} -md {drafter}" not in done.stderr


def test_a_folder_with_several_models_takes_a_quant(tmp_path: Path) -> None:
    for name in ("big-Q4_K_M.gguf", "big-Q5_K_M.gguf", "plain.gguf"):
        shutil.copy(DEMO / "target.gguf", tmp_path / name)
    quant = read_card(tmp_path / "plain.gguf").quant
    for asked, expected in {"q5_k_m": "big-Q5_K_M.gguf", quant: "plain.gguf"}.items():
        reference = hub.parse_reference(f"{tmp_path}:{asked}", {})
        assert hub.locate(reference, hub.Access(offline=True)).path == tmp_path / expected
    with pytest.raises(ModelFileError, match="is a folder with 0 models of quant Q2_K") as caught:
        hub.locate(hub.parse_reference(f"{tmp_path}:Q2_K", {}), hub.Access(offline=True))
    assert "name one of them, or FOLDER:QUANT: big-Q4_K_M.gguf" in (caught.value.hint or "")


def test_without_models_the_way_to_some_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    done = shell.here("models")
    assert (done.returncode, done.stdout) == (0, "")
    assert "`ggufspec fetch` downloads a pair" in done.stderr


@pytest.mark.parametrize("text", ["{folder}", "{folder}/"])
def test_a_folder_with_one_model_stands_for_it(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    shutil.copy(DEMO / "target.gguf", folder)
    (folder / "mmproj-target.gguf").touch()
    done = shell.here("check", text.format(folder=folder), str(DEMO / "drafter.gguf"))
    assert (done.returncode, done.stdout.split()[0]) == (0, "accepted")
