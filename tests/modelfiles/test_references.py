"""Models of the Hub where a local file can be named: fetched before the run, from the cache if there."""

from __future__ import annotations

from pathlib import Path

import pytest

import ggufspec
from ggufspec import errors, redaction, results
from ggufspec.measure import prepare_session
from ggufspec.modelfiles import hub as modelhub
from ggufspec.options import BenchOptions
from tests.support import hub_client, shell
from tests.support.hub_server import Hub
from tests.support.shell import run

QUICK = ("-p", "Once", "-n", "32", "-r", "1", "--warmup", "0", "-t", "1")
pytestmark = pytest.mark.usefixtures("llama")
PAIR = ("-m", "me/T-GGUF:Q4_K_M", "-md", "me/D-GGUF:q8_0")


def test_a_bench_fetches_what_it_names_and_keeps_the_default(hub: Hub, home: Path) -> None:
    code, _, err = run("bench", *PAIR, *QUICK, "--offline")
    assert (code, hub.seen) == (errors.NotCachedError.exit_code, [])
    assert "me/T-GGUF is not in the cache" in err
    err = shell.done("bench", *PAIR, *QUICK, "--name", "a").stderr
    assert hub_client.blob(home, hub).read_bytes() == hub_client.gguf(1 << 20)
    assert "me/T-GGUF/t-Q4_K_M.gguf" in err
    hub.seen.clear()
    shell.done("bench", *PAIR, *QUICK)
    shell.done("bench", *PAIR, *QUICK, "--offline")
    assert hub.seen == []
    target = results.load("a").runs.specs[0].pair.target
    assert (target.repo, target.filename) == ("me/T-GGUF", "t-Q4_K_M.gguf")
    assert modelhub.last_pair() is None


@pytest.mark.parametrize("command", ["plan", "check", "whatif"])
def test_commands_that_read_headers_take_the_same_names(hub: Hub, command: str) -> None:
    words = ("--machine", "h100", "--alpha", "0.8") if command == "whatif" else ()
    code, out, err = run(command, *PAIR, *words)
    assert code == 0, err
    assert out
    assert hub.bytes_served <= 4 << 20


def test_tokens_are_sent_and_not_stored(hub: Hub) -> None:
    secret = "hf_good"  # what the Hub of these tests accepts
    shell.done("bench", *PAIR, *QUICK, "--name", "a", "--token", secret)
    folder = results.load("a").folder
    assert all(secret.encode() not in file.read_bytes() for file in folder.rglob("*") if file.is_file())
    words = ["bench", "--token", "x", "-n", "3", "--token=y"]
    assert redaction.without_token_option(words) == ("bench", "-n", "3")


def test_a_notebook_names_them_too(hub: Hub) -> None:
    request = BenchOptions(target="me/T-GGUF:Q4_K_M", prompt=("Once",), n_predict=32, repeats=1, warmup=0)
    with pytest.raises(errors.NotCachedError, match=r"me/T-GGUF/t-Q4_K_M.gguf is not on this machine"):
        prepare_session(request)
    assert len(ggufspec.bench(request).current) == 1
    assert prepare_session(request).suite.blocks[0].arms[0].model.repo == "me/T-GGUF"
    assert "token" not in repr(request)


def test_missing_files_are_local(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "big.gguf").write_bytes(hub_client.gguf())
    code, _, err = run("bench", "-m", "models/bug.gguf", *QUICK)
    assert code == errors.ModelFileError.exit_code
    assert f"there is no file {folder / 'bug.gguf'}" in err
    assert f"did you mean {folder / 'big.gguf'}?" in err
    assert hub.seen == []
    shell.done("bench", "-m", "models/big.gguf", *QUICK)


def test_the_cache_is_asked_first_where_a_file_or_a_quant_is_named(hub: Hub) -> None:
    access = modelhub.Access()
    for text in ("me/D-GGUF:Q8_0", "me/D-GGUF/d-Q8_0.gguf", "me/D-GGUF"):
        assert modelhub.survey_model(text, access).missing_bytes
    for _ in modelhub.fetch(modelhub.survey_model("me/D-GGUF", access), access):
        pass
    hub.seen.clear()
    for text in ("me/D-GGUF:Q8_0", "me/D-GGUF/d-Q8_0.gguf"):
        assert not modelhub.survey_model(text, access).missing_bytes
    assert hub.seen == []
    assert not modelhub.survey_model("me/D-GGUF", access).missing_bytes
    assert hub.seen  # which file a repository means depends on all that it has
