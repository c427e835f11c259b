"""The catalogue: every entry of ours is of the documented form, and a user's own is read beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ggufspec.errors import CatalogError
from ggufspec.modelfiles import catalog
from ggufspec.modelfiles.hub.choice import quant_of
from tests.support import shell


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GGUFSPEC_CONFIG", str(tmp_path))
    return tmp_path / "pairs.toml"


@pytest.mark.parametrize("name", sorted(catalog.entries()))
def test_every_entry_is_complete(name: str) -> None:
    entry = catalog.entries()[name]
    models = [model for model in (entry.pair.target, entry.pair.draft) if model is not None]
    assert entry.source
    assert entry.licence != "not stated"
    if entry.pair.draft is None:
        assert not entry.chain.method.needs_drafter
    else:
        assert entry.chain.method.drafts_with_model
    for model in models:
        if model.repo is None:
            assert model.path.is_file()
        else:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+", model.repo)
            assert model.filename.endswith(".gguf")
            assert quant_of(model.filename) == model.quant
            assert model.sha256 is None or re.fullmatch(r"[0-9a-f]{64}", model.sha256)
            assert model.revision is None or re.fullmatch(r"[0-9a-f]{40}", model.revision)
            assert model.revision is None or model.sha256 is not None


def test_the_seeds_pairs_are_there() -> None:
    pairs = catalog.load_catalogue()
    default = pairs[catalog.DEFAULT]
    assert f"{default.target.repo}/{default.target.filename}" == (
        "NousResearch/Meta-Llama-3-70B-Instruct-GGUF/Meta-Llama-3-70B-Instruct-Q3_K_S.gguf"
    )
    assert f"{default.draft.repo}/{default.draft.filename}" == (
        "QuantFactory/Meta-Llama-3-8B-Instruct-GGUF/Meta-Llama-3-8B-Instruct.Q3_K_L.gguf"
    )
    assert pairs.keys() >= {"demo", "llama-2-13b", "llama-2-13b-chat", "gemma-7b"}


def test_the_embedded_pairs_are_those_whose_models_travel_with_the_package(config: Path) -> None:
    embedded = {name for name in catalog.load_catalogue() if catalog.is_embedded(name)}
    assert embedded == {"demo", "demo-eagle3", "demo-mtp", "demo-dflash"}
    config.write_text('[pairs.demo]\ntarget = { path = "other.gguf" }\n')
    assert not catalog.is_embedded("demo")
    assert not catalog.is_embedded("nothing")


def test_an_unknown_name_brings_close_ones() -> None:
    with pytest.raises(CatalogError) as caught:
        catalog.find_pair("llama-3-70")
    assert caught.value.message == "no pair is called 'llama-3-70'"
    assert caught.value.hint.startswith("close names: llama-3-70b, ")


def test_the_users_own_pairs_join_ours(config: Path) -> None:
    config.write_text(
        '[pairs.mine]\ntarget = { repo = "me/T", file = "t.gguf" }\ndrafter = { path = "d.gguf" }\n'
        '[pairs.demo]\ntarget = { path = "other.gguf" }\n'
    )
    mine = catalog.entries()["mine"]
    assert mine.pair.draft.path == config.parent / "d.gguf"
    assert not mine.verified
    assert catalog.find_pair("demo").target.filename == "other.gguf"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[pairs.x]\n", "[pairs.x] needs a target"),
        ('[pairs.x]\ntarget = { repo = "a/b" }\n', "[pairs.x]: a model needs repo and file, or path"),
        ('[pairs.x]\ntarget = "a/b"\n', "[pairs.x]: a model is a table such as"),
        ('[pairs."x:y"]\ntarget = { path = "t" }\n', "[pairs.x:y]: a pair's name has no '/' and no ':'"),
        (
            '[pairs.x]\ntarget = { path = "t" }\ndraft = 1\n',
            "[pairs.x]: unknown key 'draft'; known are drafter,",
        ),
        ('[pairs.x]\ntarget = { path = "t" }\ngamma = 3\n', "[pairs.x] has gamma or p_min, but nothing"),
        (
            '[pairs.x]\ntarget = { path = "t" }\ndrafter = { path = "d" }\ngamma = 0\n',
            "[pairs.x]: gamma is a draft size from 1 to 64, not 0",
        ),
        (
            '[pairs.x]\ntarget = { path = "t" }\ndrafter = { path = "d" }\np_min = "high"\n',
            "[pairs.x]: p_min is a probability from 0 to 1, not 'high'",
        ),
        (
            '[pairs.x]\ntarget = { path = "~nosuchuser/a.gguf" }\n',
            "[pairs.x]: ~nosuchuser/a.gguf is in the home folder of a user who does not exist here",
        ),
        ("[pairs.x]\ntarget = { path = 5 }\n", "[pairs.x]: path must be text in quotation marks, not 5"),
        ('[pairs.x]\ntarget = { path = "a\\u0000" }\n', "[pairs.x]: path must be text"),
        ('[pairs.x]\ntarget = { repo = 5, file = "a.gguf" }\n', "[pairs.x]: repo must be text"),
        (
            '[pairs.x]\ntarget = { repo = "../../etc", file = "a.gguf" }\n',
            "repo is like user/repo, not '../../etc'",
        ),
        (
            '[pairs.x]\ntarget = { repo = "a/b", file = "../a.gguf" }\n',
            "[pairs.x]: file is the name of a file in a/b",
        ),
        (
            '[pairs.x]\ntarget = { repo = "a/b", file = "a.gguf", revision = 5 }\n',
            "[pairs.x]: revision must be text",
        ),
        ('[pairs.x]\ntarget = { path = "t" }\nmethod = 5\n', "[pairs.x]: method must be text"),
        ('[pairs.x]\ntarget = { path = "t" }\nnote = 5\n', "[pairs.x]: note must be text"),
        ("pairs.x = 5\n", "[pairs.x] needs a target"),
    ],
)
def test_a_wrong_entry_is_one_line_and_the_others_work(
    config: Path, caplog: pytest.LogCaptureFixture, text: str, problem: str
) -> None:
    config.write_text(f'[pairs.good]\ntarget = {{ path = "t" }}\n{text}' if "[" in text else text)
    pairs = catalog.load_catalogue()
    catalog.load_catalogue()
    assert ("good" in pairs) == ("[" in text)
    assert pairs.keys() >= {"demo", "llama-3-70b"}
    assert not pairs.keys() & {"x", "x:y"}
    (warning,) = [record.getMessage() for record in caplog.records]
    assert problem in warning
    assert str(config) in warning
    assert "\n" not in warning
    with pytest.raises(CatalogError, match=re.escape(problem)):
        catalog.find_pair("x:y" if "x:y" in text else "x")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[pairs\n", "Expected ']'"),
        ("pairs = 3\n", "pairs is not a table of pairs"),
        (f"pairs = {'[' * 3000}{']' * 3000}\n", "brackets are nested too deeply"),
        (f"pairs = {'9' * 5000}\n", "4300 digits"),
    ],
)
def test_a_file_that_is_no_catalogue_is_named_and_left_out(
    config: Path, caplog: pytest.LogCaptureFixture, text: str, problem: str
) -> None:
    config.write_text(text)
    assert catalog.find_pair("demo").target.filename
    (warning,) = [record.getMessage() for record in caplog.records]
    assert problem in warning
    assert str(config) in warning
    with pytest.raises(CatalogError, match="no pair is called 'mine'") as caught:
        catalog.find_pair("mine")
    assert str(config) in (caught.value.hint or "")


def test_a_wrong_entry_replaces_ours_of_the_same_name(config: Path) -> None:
    config.write_text("[pairs.demo]\ntarget = 5\n")
    with pytest.raises(CatalogError, match=re.escape("[pairs.demo]: a model is a table such as")):
        catalog.find_pair("demo")
    assert catalog.find_pair("demo-mtp").target.path


@pytest.mark.parametrize("words", [("fetch",), ("check",), ("bench", "--target")])
def test_the_home_of_nobody_is_one_line(words: tuple[str, ...]) -> None:
    done = shell.here(*words, "~nosuchuser/a.gguf")
    assert done.returncode == 1
    assert "~nosuchuser/a.gguf is in the home folder of a user who does not exist here" in done.stderr
