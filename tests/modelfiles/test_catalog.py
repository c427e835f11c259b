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


def test_the_users_own_pairs_join_ours(config: Path) -> None:
    config.write_text(
        '[pairs.mine]\ntarget = { repo = "me/T", file = "t.gguf" }\ndrafter = { path = "d.gguf" }\n'
        '[pairs.demo]\ntarget = { path = "other.gguf" }\n'
    )
    mine = catalog.entries()["mine"]
    assert mine.pair.draft.path == config.parent / "d.gguf"
    assert not mine.verified
    assert catalog.find_pair("demo").target.filename == "other.gguf"


PATH = 'target = { path = "t" }\n'
PAIR = f'{PATH}drafter = {{ path = "d" }}\n'


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("", "Object missing required field `target`"),
        ('target = { repo = "a/b" }', "a model needs repo and file, or path"),
        ('target = "a/b"', "Expected `object`, got `str` - at `$.target`"),
        (f"{PATH}draft = 1", "Object contains unknown field `draft`"),
        (f"{PATH}gamma = 3", "it has gamma or p_min, but nothing that drafts"),
        (f"{PAIR}gamma = 0", "Expected `int` >= 1 - at `$.gamma`"),
        (f"{PAIR}gamma = 65", "Expected `int` <= 64 - at `$.gamma`"),
        (f"{PAIR}p_min = 'high'", "Expected `float | null`, got `str` - at `$.p_min`"),
        ('target = { path = "~nosuchuser/a.gguf" }', "in the home folder of a user who does not exist here"),
        ("target = { path = 5 }", "Expected `str | null`, got `int` - at `$.target.path`"),
        ('target = { path = "a\\u0000" }', "Expected `str` matching regex '^[^\\\\0]+\\\\Z'"),
        ('target = { repo = "../../etc", file = "a.gguf" }', "repo is like user/repo, not '../../etc'"),
        ('target = { repo = "a/b", file = "../a.gguf" }', "file is the name of a file in a/b"),
    ],
)
def test_a_wrong_entry_is_one_line_and_the_others_work(
    config: Path, caplog: pytest.LogCaptureFixture, entry: str, problem: str
) -> None:
    config.write_text(f"[pairs.good]\n{PATH}[pairs.x]\n{entry}\n[pairs.'x:y']\n{PATH}")
    pairs = catalog.load_catalogue()
    catalog.load_catalogue()
    assert pairs.keys() >= {"demo", "llama-3-70b", "good"}
    assert not pairs.keys() & {"x", "x:y"}
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 2
    for name, warning in zip(("x", "x:y"), warnings, strict=True):
        assert f"{config}: [pairs.{name}]: " in warning
        assert "\n" not in warning
        with pytest.raises(CatalogError, match=re.escape(warning.removeprefix("warning: "))):
            catalog.find_pair(name)
    assert problem in warnings[0]
    assert warnings[1].endswith("a pair's name has no '/' and no ':'")


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
    with pytest.raises(CatalogError, match=re.escape("[pairs.demo]: Expected `object`")):
        catalog.find_pair("demo")
    assert catalog.find_pair("demo-mtp").target.path


@pytest.mark.parametrize("words", [("fetch",), ("check",), ("bench", "--target")])
def test_the_home_of_nobody_is_one_line(words: tuple[str, ...]) -> None:
    done = shell.here(*words, "~nosuchuser/a.gguf")
    assert done.returncode == 1
    assert "~nosuchuser/a.gguf is in the home folder of a user who does not exist here" in done.stderr
