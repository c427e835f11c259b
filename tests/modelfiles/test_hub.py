"""References, the choice among a repository's files, headers by range, and what is cached."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ggufspec import errors
from ggufspec.domain import ModelFile
from ggufspec.modelfiles import catalog, gguf, hub
from ggufspec.modelfiles.catalog import is_inside
from ggufspec.modelfiles.hub import choice, search
from ggufspec.modelfiles.hub.choice import RepoFile
from ggufspec.steps import finish
from tests.support import hub_client
from tests.support.hub_server import Fault, Hub

HUB = "https://huggingface.co"


def parse(text: str) -> hub.Reference:
    return hub.parse_reference(text, catalog.load_catalogue())


DRAFTER = {
    "repo": "QuantFactory/Meta-Llama-3-8B-Instruct-GGUF",
    "filename": "Meta-Llama-3-8B-Instruct.Q3_K_L.gguf",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("u/r", {}),
        ("u/r:Q4_K_M", {"quant": "Q4_K_M"}),
        ("u/r@v2:Q8_0", {"quant": "Q8_0", "revision": "v2"}),
        ("u/r/f.gguf", {"filename": "f.gguf"}),
        ("u/r@v2/sub/f.gguf", {"filename": "sub/f.gguf", "revision": "v2"}),
        ("hf://u/r/f.gguf", {"filename": "f.gguf"}),
        ("hf.co/u/r:Q4_K_M", {"quant": "Q4_K_M"}),
        ("huggingface.co/u/r", {}),
        ("hf://models/u/r@refs%2Fpr%2F1/f.gguf", {"filename": "f.gguf", "revision": "refs/pr/1"}),
        ("https://huggingface.co/u/r", {}),
        (f"{HUB}/u/r/resolve/main/f.gguf?download=true", {"filename": "f.gguf", "revision": "main"}),
        ("https://hf.co/u/r/blob/refs%2Fpr%2F1/a/f.gguf", {"filename": "a/f.gguf", "revision": "refs/pr/1"}),
        (f"{HUB}/u/r/tree/main", {"revision": "main"}),
        ("llama-3-70b:drafter", DRAFTER),
    ],
)
def test_references(text: str, expected: dict[str, str]) -> None:
    found = vars(parse(text)) | {"text": text}  # which is shown without what gives access
    assert found == vars(hub.Reference(text=text)) | {"repo": "u/r"} | expected


def test_a_file_that_exists_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "u" / "r" / "f.gguf"
    file.parent.mkdir(parents=True)
    file.touch()
    assert parse("u/r/f.gguf").path == file
    assert parse("demo:target").path == hub_client.DEMO / "target.gguf"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a/b/c", "'c' is not a GGUF file of a repository"),
        ("a/b/../../../etc/x.gguf", "'../../../etc/x.gguf' is not a GGUF file of a repository"),
        (f"{HUB}/a/b/resolve/main/%2E%2E/x.gguf", "'../x.gguf' is not a GGUF file of a repository"),
        ("a/b:", "'a/b:' is incomplete"),
        ("..%2f/b", "not a model reference: '..%2f/b'"),
        ("demo", "'demo' is a pair, not one model"),
        ("gpt-oss-20b-ngram:drafter", "the pair 'gpt-oss-20b-ngram' has no drafter"),
        ("https://example.com/a/b/resolve/main/f.gguf", "example.com is not the Hugging Face Hub"),
        (f"{HUB}/a/b/commits/main", f"{HUB}/a/b/commits/main is not the URL of a model"),
    ],
)
def test_what_is_no_reference(text: str, message: str) -> None:
    with pytest.raises(errors.BadReferenceError) as caught:
        parse(text)
    assert caught.value.message == message
    assert caught.value.hint


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a\\..\\x", "C:x", "a/./x", "", "a\0b"])
def test_names_that_leave_the_folder(name: str) -> None:
    assert not is_inside(name)
    assert is_inside("sub/a-00001-of-00002.gguf")


@pytest.mark.parametrize(
    ("name", "quant"),
    [
        ("Meta-Llama-3-8B-Instruct.Q3_K_L.gguf", "Q3_K_L"),
        ("qwen2.5-coder-7b-q8_0.gguf", "Q8_0"),
        ("UD-Q4_K_XL/GLM-4.7-UD-Q4_K_XL-00001-of-00003.gguf", "UD-Q4_K_XL"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("m-IQ3_XXS.gguf", "IQ3_XXS"),
        ("m.f16.gguf", "F16"),
        ("TQ1_0/m-TQ1_0.gguf", "TQ1_0"),
        ("model.gguf", None),
    ],
)
def test_quants(name: str, quant: str | None) -> None:
    assert choice.quant_of(name) == quant


def files(*names: str) -> list[RepoFile]:
    return [RepoFile(path=name, size_bytes=1 << 30, digest="0" * 64) for name in names]


MIXED = files(
    "m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-m-f16.gguf", "imatrix-m.gguf", "mtp-m-Q8_0.gguf", "README.md",
    "big/m-BF16-00001-of-00002.gguf", "big/m-BF16-00002-of-00002.gguf", "m-Q2_K-00001-of-00002.gguf",
)  # fmt: skip


def test_choice_by_quant_file_and_default() -> None:
    choose = partial(choice.choose_files, MIXED, repo="u/r")
    assert choose().filename == "m-Q4_K_M.gguf"
    assert choose(quant="q8_0").filename == "m-Q8_0.gguf"
    assert choose(filename="mmproj-m-f16.gguf").size_bytes == 1 << 30
    split = choose(filename="big/m-BF16-00002-of-00002.gguf")
    assert split == choose(quant="BF16")
    assert (split.filename, split.size_bytes) == ("big/m-BF16-00001-of-00002.gguf", 2 << 30)
    listed = files("m-UD-Q4_K_XL.gguf", "m-Q8_0.gguf")
    assert choice.choose_files(listed, repo="u/r", quant="Q4_K_XL").quant == "UD-Q4_K_XL"


@pytest.mark.parametrize(
    ("listed", "wanted", "message", "hint"),
    [
        (
            MIXED,
            {"filename": "m-Q2_K-00001-of-00002.gguf"},
            "u/r has 1 of the 2 parts of m-Q2_K-00001-of-00002.gguf",
            "missing: m-Q2_K-00002-of-00002.gguf; choose another file, or ask its owner",
        ),
        (
            files("a-Q4_0.gguf", "b-Q4_0.gguf"),
            *({"quant": "Q4_0"}, "u/r has 2 models that match Q4_0"),
            "name one, such as u/r/a-Q4_0.gguf: it has a-Q4_0.gguf (1 GiB), b-Q4_0.gguf (1 GiB)",
        ),
        (
            files("a-IQ1_S.gguf", "a-IQ2_S.gguf"),
            *({}, "u/r has 2 models"),
            "name one, such as u/r:IQ1_S: it has a-IQ1_S.gguf (1 GiB), a-IQ2_S.gguf (1 GiB)",
        ),
        (
            files("README.md"),
            *({}, "u/r has no GGUF model"),
            "it has no GGUF models; look for a repository whose name ends with -GGUF",
        ),
    ],
)
def test_choice_fails_with_a_list(
    listed: list[RepoFile], wanted: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(errors.RemoteFileNotFoundError) as caught:
        choice.choose_files(listed, repo="u/r", **wanted)
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_a_header_is_read_by_range(loopback: Hub) -> None:
    loopback.add("me/T-GGUF", {"t-Q4_K_M.gguf": hub_client.gguf(30 << 20)})
    model = hub.locate(parse("me/T-GGUF"), hub.Access())
    card = hub.read_card(model)
    assert card.n_layers == gguf.read_card(hub_client.DEMO / "drafter.gguf").n_layers
    assert card.size_bytes == model.size_bytes
    assert loopback.bytes_served <= 1 << 20
    assert len(loopback.requests("me/T-GGUF/resolve")) == 1


def test_a_header_beyond_the_first_range(loopback: Hub) -> None:
    body = hub_client.gguf(5 << 20)
    loopback.add("me/T-GGUF", {"t.gguf": body})
    [source] = hub.open_headers(ModelFile(repo="me/T-GGUF", filename="t.gguf"), hub.Access()).values()
    for offset, n in ((0, 10), (1 << 20, 1 << 20), ((1 << 20) - 7, 20), (len(body) - 3, 100)):
        assert source.read(offset, n) == body[offset : offset + n]
    assert source.size == len(body)
    assert loopback.bytes_served <= (2 << 20) + 200


def test_a_server_without_ranges_gives_the_front_only(loopback: Hub) -> None:
    loopback.add("me/T-GGUF", {"t.gguf": hub_client.gguf(64 << 20)})
    loopback.faults = [Fault(where="file=t.gguf", times=9, no_ranges=True, rate=200e6)]
    [source] = hub.open_headers(ModelFile(repo="me/T-GGUF", filename="t.gguf"), hub.Access()).values()
    assert source.size == len(hub_client.gguf(64 << 20))
    assert source.read(0, 4) == b"GGUF"
    with pytest.raises(errors.CorruptDownloadError, match="ignores the range in a request for me/T-GGUF/"):
        source.read(2 << 20, 4)
    assert loopback.bytes_served < 32 << 20


def test_split_models_are_read_whole(loopback: Hub) -> None:
    parts = {f"t-Q8_0-0000{no}-of-00002.gguf": hub_client.gguf(no) for no in (1, 2)}
    loopback.add("me/S-GGUF", parts)
    model = hub.locate(parse("me/S-GGUF:Q8_0"), hub.Access())
    assert model.size_bytes == sum(len(body) for body in parts.values())
    sources = hub.open_headers(model, hub.Access()).values()
    assert [source.size for source in sources] == [len(body) for body in parts.values()]


def test_resolve_says_what_is_missing(loopback: Hub) -> None:
    pair = catalog.find_pair("llama-3-70b")
    with pytest.raises(errors.NotCachedError) as caught:
        hub.resolve(pair, offline=True)
    assert caught.value.message == (
        "NousResearch/Meta-Llama-3-70B-Instruct-GGUF/Meta-Llama-3-70B-Instruct-Q3_K_S.gguf "
        "is not on this machine"
    )
    assert caught.value.hint == "ggufspec fetch llama-3-70b (without --offline)"
    assert hub.resolve(catalog.find_pair("demo"), offline=True) == catalog.find_pair("demo")
    assert loopback.seen == []


def test_the_last_pair_is_forgotten_with_its_files(tmp_path: Path, home: Path) -> None:
    assert hub.last_pair() is None
    model = tmp_path / "t.gguf"
    model.touch()
    pair = finish(hub.fetch(hub.survey_fetch("x", parse("demo:target"), None, hub.Access()), hub.Access()))
    assert hub.last_pair() == pair
    hub.remember_fetched(hub.survey_fetch("x", parse(str(model)), None, hub.Access()).pair)
    model.unlink()
    with pytest.raises(errors.NotCachedError):
        hub.last_pair()
    (home / "data" / "last_pair.json").write_text("[]")
    assert hub.last_pair() is None


def test_a_pair_that_cannot_be_remembered_is_there_nevertheless(home: Path) -> None:
    (home / "data").mkdir(exist_ok=True)
    (home / "data" / "last_pair.json").mkdir()  # root may write everywhere, but no file over a folder
    with pytest.raises(errors.GgufspecError, match="the files are there, but") as caught:
        finish(hub.fetch(hub.survey_fetch("x", parse("demo:target"), None, hub.Access()), hub.Access()))
    assert "GGUFSPEC_DATA" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("Qwen/Qwen2.5-Coder-32B-Instruct", "Qwen2.5-Coder"),
        ("meta-llama/Meta-Llama-3-70B-Instruct", "Llama-3"),
        ("meta-llama/Llama-3.3-70B-Instruct", "Llama-3"),
        ("Qwen/Qwen3-30B-A3B", "Qwen3"),
        ("google/gemma-3-27b-it", "gemma-3"),
        ("me/Model-Instruct-GGUF", "Model"),
    ],
)
def test_families(name: str, family: str) -> None:
    assert search.family(name) == family


def test_scores_prefer_the_small_and_the_popular() -> None:
    assert search.score(0.05, 10_000) > search.score(0.05, 100)
    assert search.score(0.05, 10_000) > search.score(0.45, 10_000)
    assert search.parameters_in("Qwen/Qwen3-0.6B-GGUF") == 0.6e9
    assert search.parameters_in("x/gemma-3-270m-it") == 270e6
    assert search.parameters_in("x/y") is None


def test_what_is_shown_without_a_login_is_public(loopback: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    for name in ("me/open", "me/closed"):
        loopback.add(name, {"README.md": b"# T"})
    loopback.repos["me/closed"].private = True
    assert hub.is_public("me/open", hub.Access())
    assert not hub.is_public("me/closed", hub.Access())
    assert not hub.is_public("me/nothing", hub.Access())
    assert not hub.is_public("me/open", hub.Access(offline=True))
