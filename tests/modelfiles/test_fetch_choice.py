"""What is named too vaguely, or wrongly, gets the choices with their sizes and the exact next command."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.support import fakes, hub_client, shell
from tests.support.hub_client import Run
from tests.support.hub_server import Hub

CHOICES = "it has t-Q4_K_M.gguf (2.74 MiB), t-Q8_0.gguf (3.74 MiB)"


def next_command(err: str) -> list[str]:
    """Return the words of the command that an error's hint ends with."""
    program, *words = shlex.split(err.rpartition("for example: ")[2])
    assert program == "ggufspec"
    return words


def test_a_repository_lists_its_models_and_the_next_command_fetches_one(hub: Hub, run: Run) -> None:
    code, out, err = run("fetch", "-q", "me/T-GGUF")
    assert (code, out) == (22, "")
    assert err == (
        "error: me/T-GGUF has 2 models\n"
        f"hint: name one: {CHOICES}; for example: ggufspec fetch --target me/T-GGUF:Q4_K_M\n"
    )
    assert hub.content_requests() == []
    code, out, _ = run("-q", *next_command(err))
    assert (code, Path(out.strip()).name) == (0, "t-Q4_K_M.gguf")


def test_the_next_command_keeps_what_else_was_given(hub: Hub, run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "my models"
    given = ("--draft-model", "me/D-GGUF", "--revision", "main", "--local-dir", str(folder))
    code, _, err = run("fetch", "-q", "me/T-GGUF", *given)
    assert code == 22
    words = next_command(err)
    assert words == ["fetch", "--target", "me/T-GGUF:Q4_K_M", *given]
    assert run("-q", *words)[0] == 0
    assert sorted(path.name for path in folder.iterdir()) == ["d-Q8_0.gguf", "t-Q4_K_M.gguf"]


@pytest.mark.parametrize(
    "words", [("me/A-GGUF",), ("--target", "me/A-GGUF"), ("--target", "me/A-GGUF:iq1_s")]
)
def test_models_of_the_same_quant_are_told_apart_by_their_files(
    hub: Hub, run: Run, words: tuple[str, ...]
) -> None:
    hub.add("me/A-GGUF", {"a-IQ1_S.gguf": hub_client.gguf(), "b-IQ1_S.gguf": hub_client.gguf(1)})
    code, _, err = run("fetch", "-q", *words)
    assert code == 22
    assert next_command(err) == ["fetch", "--target", "me/A-GGUF/a-IQ1_S.gguf"]
    assert run(*next_command(err))[0] == 0


def test_a_vague_drafter_is_the_one_that_is_replaced(hub: Hub, run: Run) -> None:
    hub.add("me/T-GGUF", {"x-Q4_0.gguf": hub_client.gguf(), "y-Q4_0.gguf": hub_client.gguf(1)})
    code, _, err = run("fetch", "-q", "--target", "me/T-GGUF:Q8_0", "--draft-model", "me/T-GGUF:Q4_0")
    assert code == 22
    assert next_command(err) == [
        *("fetch", "--target", "me/T-GGUF:Q8_0", "--draft-model", "me/T-GGUF/x-Q4_0.gguf")
    ]


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("me/D-GGUF", "d-Q8_0.gguf"),
        ("me/T-GGUF:Q8_0", "t-Q8_0.gguf"),
        ("me/T-GGUF/t-Q8_0.gguf", "t-Q8_0.gguf"),
        ("demo:drafter", "drafter.gguf"),
    ],
)
def test_a_model_can_stand_where_a_pair_stands(hub: Hub, run: Run, name: str, file: str) -> None:
    code, out, _ = run("fetch", "-q", name)
    assert (code, Path(out.strip()).name) == (0, file)


def test_llama_cpps_default_holds_where_a_target_is_named(hub: Hub, run: Run) -> None:
    code, out, _ = run("fetch", "-q", "--target", "me/T-GGUF")
    assert (code, Path(out.strip()).name) == (0, "t-Q4_K_M.gguf")


def test_a_pair_that_was_not_fetched_is_told_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(fakes.install(tmp_path / "llama")))
    for command in ("bench", "sweep", "tune"):
        done = shell.here(command, "--pair", "llama-3-70b")
        assert (done.returncode, done.stdout) == (29, "")
        assert done.stderr == (
            "error: NousResearch/Meta-Llama-3-70B-Instruct-GGUF/Meta-Llama-3-70B-Instruct-Q3_K_S.gguf "
            "is not on this machine\n"
            "hint: ggufspec fetch llama-3-70b\n"
        )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Llama3-70B", "close names: llama-3-70b, "),
        ("QWEN3-8B", "close names: qwen3-8b, "),
        ("zzz", "ggufspec pairs lists them all"),
        ("unsloth/Qwen3-8B-GGUF", "`ggufspec fetch unsloth/Qwen3-8B-GGUF` gets a model of the Hub"),
    ],
)
def test_a_name_that_no_pair_has_is_met_with_advice(name: str, hint: str) -> None:
    for command in ("bench", "plan"):
        done = shell.here(command, "--pair", name)
        assert (done.returncode, done.stdout) == (31, "")
        error, advice = done.stderr.splitlines()
        assert error == f"error: no pair is called {name!r}"
        assert hint in advice
