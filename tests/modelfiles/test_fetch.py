"""``ggufspec fetch``, when all goes well: the usual cache, a folder of one's own, consent, the dry run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from huggingface_hub import hf_hub_download

from ggufspec.modelfiles import hub as hub_module
from tests.support import fake_nvml, hub_client, shell
from tests.support.fake_nvml import FakeGpu
from tests.support.hub_client import PAIR, TARGET
from tests.support.hub_server import Hub
from tests.support.shell import run


def test_a_pair_arrives_in_the_usual_cache(hub: Hub, home: Path) -> None:
    code, out, err = run("fetch", "--quiet", *PAIR)
    target, draft = (Path(line) for line in out.splitlines())
    assert (code, err) == (0, "")
    assert target.read_bytes() == hub_client.gguf(1 << 20)
    assert draft.read_bytes() == hub_client.gguf()
    commit = hub.repos["me/T-GGUF"].commit
    assert target == home / f"hf/hub/models--me--T-GGUF/snapshots/{commit}/t-Q4_K_M.gguf"
    theirs = hf_hub_download(
        "me/T-GGUF", "t-Q4_K_M.gguf", cache_dir=home / "hf" / "hub", local_files_only=True
    )
    assert theirs == str(target)
    last = hub_module.last_pair()
    assert last.target.path == target
    assert not list((home / "hf").rglob("*.incomplete"))


def test_the_second_time_only_metadata_travels_and_offline_nothing(hub: Hub) -> None:
    _, online, _ = run("fetch", "-q", *PAIR)
    served = hub.bytes_served
    err = shell.done("fetch", *PAIR).stderr
    assert "to download: 0 B;" in err
    assert hub.bytes_served == served
    hub.seen.clear()
    assert run("fetch", "-q", "--offline", *PAIR) == (0, online, "")
    assert hub.seen == []


def test_what_another_tool_has_downloaded_is_only_verified(hub: Hub, home: Path) -> None:
    theirs = hf_hub_download("me/T-GGUF", "t-Q4_K_M.gguf", cache_dir=home / "hf" / "hub", endpoint=hub.url)
    served = hub.bytes_served
    code, out, _ = run("fetch", "-q", "--target", TARGET)
    assert (code, out) == (0, f"{theirs}\n")
    assert hub.bytes_served == served


def test_split_files_arrive_whole(hub: Hub) -> None:
    parts = {f"q/t-F16-0000{no}-of-00003.gguf": hub_client.gguf(no) for no in (1, 2, 3)}
    hub.add("me/S-GGUF", parts)
    _, out, _ = run("fetch", "-q", "--no-check", "--target", "me/S-GGUF")
    first = Path(out.strip())
    assert first.name == "t-F16-00001-of-00003.gguf"
    assert sorted(path.name for path in first.parent.iterdir()) == [name[2:] for name in parts]


def test_files_that_are_not_in_lfs(hub: Hub) -> None:
    hub.add("me/Git-GGUF", {"a.gguf": hub_client.gguf()}, lfs=False)
    out = shell.done("fetch", "-q", "--target", "me/Git-GGUF").stdout
    assert Path(out.strip()).read_bytes() == hub_client.gguf()


def test_a_folder_of_ones_own(hub: Hub, home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    code, out, _ = run("fetch", "-q", "--local-dir", str(folder), *PAIR)
    assert (code, out) == (0, f"{folder}/t-Q4_K_M.gguf\n{folder}/d-Q8_0.gguf\n")
    assert sorted(path.name for path in folder.iterdir()) == ["d-Q8_0.gguf", "t-Q4_K_M.gguf"]
    assert not list((home / "hf").rglob("snapshots"))
    served = hub.bytes_served
    shell.done("fetch", "-q", "--local-dir", str(folder), *PAIR)
    assert hub.bytes_served <= served + 3 * (1 << 20)  # the headers once more


def test_dry_run(hub: Hub, home: Path) -> None:
    code, out, err = run("fetch", "--dry-run", *PAIR)
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[:3] == [
        "file                         size",
        "me/T-GGUF/t-Q4_K_M.gguf  2.74 MiB  to download",
        "me/D-GGUF/d-Q8_0.gguf    1.74 MiB  to download",
    ]
    assert lines[3].startswith(f"to download: 4.48 MiB; free at {home}/hf/hub: ")
    assert lines[4] == "licence: no licence is stated (me/T-GGUF); no licence is stated (me/D-GGUF)"
    assert hub.bytes_served == 0


def test_the_licence_is_said_before_a_download_and_not_afterwards(hub: Hub) -> None:
    hub.repos["me/T-GGUF"].info["tags"] = ["gguf", "license:gemma"]
    err = shell.done("fetch", *PAIR).stderr
    assert "licence: gemma (me/T-GGUF); no licence is stated (me/D-GGUF)\n" in err
    assert "licence: " not in run("fetch", *PAIR)[2]


@pytest.mark.skipif(os.statvfs("/tmp").f_bavail * os.statvfs("/tmp").f_frsize < 12e9, reason="little disk")
def test_large_downloads_need_consent(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repos["me/T-GGUF"].files["t-Q4_K_M.gguf"].size = 11_000_000_000
    with Path(os.devnull).open() as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        code, _, err = run("fetch", "--target", TARGET)
    assert code == 32
    assert err.endswith("error: the download of 10.2 GiB needs confirmation\nhint: add --yes\n")
    assert run("fetch", "--yes", "--target", TARGET)[0] == 28  # it went on, to a file that is smaller


@pytest.mark.parametrize(
    ("free_mib", "code", "answer"),
    [
        (6144, 0, "mine is the largest pair that fits: "),
        # three pairs have this target, and its head has the fewest bytes of their drafters
        (
            2048,
            0,
            "demo-dflash is the largest pair that fits: 122 MiB with a context of 4096 tokens, of 2 GiB",
        ),
        (1000, 11, "error: no pair of the catalogue fits into 1000 MiB free on the GPU"),
        (None, 0, " of memory"),
    ],
)
def test_the_largest_pair_that_fits(
    hub: Hub, home: Path, monkeypatch: pytest.MonkeyPatch, free_mib: int | None, code: int, answer: str
) -> None:
    hub.repos["me/T-GGUF"].files["t-Q8_0.gguf"].size = 3 << 30
    halves = "target.repo = 'me/T-GGUF'\ntarget.file = 't-Q8_0.gguf'\n"
    halves += "drafter.repo = 'me/D-GGUF'\ndrafter.file = 'd-Q8_0.gguf'\n"
    (home / "pairs.toml").write_text(f"[pairs.mine]\n{halves}")
    monkeypatch.setenv("GGUFSPEC_CONFIG", str(home))
    gpus = [] if free_mib is None else [FakeGpu(total_bytes=free_mib << 20, used_bytes=0)]
    fake_nvml.install(monkeypatch, *gpus)
    monkeypatch.setenv("PATH", str(home))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found, _, err = run("fetch", "--largest", "--dry-run")
    assert found == code
    assert answer in err


@pytest.mark.parametrize(
    ("words", "said", "reference"),
    [
        (("me/T-GGUF",), "me/T-GGUF has 4 models", "me/T-GGUF:Q4_K_M"),
        (("--target", "me/T-GGUF:Q4_0"), "me/T-GGUF has 2 models that match Q4_0", "me/T-GGUF/x-Q4_0.gguf"),
        (
            ("--target", "me/D-GGUF", "--draft-model", "me/T-GGUF:q4_0"),
            *("me/T-GGUF has 2 models that match q4_0", "me/T-GGUF/x-Q4_0.gguf"),
        ),
    ],
)
def test_what_is_named_too_vaguely_gets_the_choices(
    hub: Hub, words: tuple[str, ...], said: str, reference: str
) -> None:
    hub.add("me/T-GGUF", {"x-Q4_0.gguf": hub_client.gguf(), "y-Q4_0.gguf": hub_client.gguf(1)})
    code, out, err = run("fetch", "-q", *words)
    assert (code, out, hub.content_requests()) == (22, "", [])
    error, hint = err.splitlines()
    assert said in error
    assert hint.startswith(f"hint: name one, such as {reference}: it has ")
    assert "x-Q4_0.gguf (1.74 MiB), y-Q4_0.gguf (1.74 MiB)" in hint
    shell.done("fetch", "-q", reference)


@pytest.mark.parametrize(
    ("words", "file"),
    [
        ("me/D-GGUF", "d-Q8_0.gguf"),
        ("me/T-GGUF:Q8_0", "t-Q8_0.gguf"),
        ("me/T-GGUF/t-Q8_0.gguf", "t-Q8_0.gguf"),
        ("demo:drafter", "drafter.gguf"),
        ("--target me/T-GGUF", "t-Q4_K_M.gguf"),  # llama.cpp's default
    ],
)
def test_a_model_can_stand_where_a_pair_stands(hub: Hub, words: str, file: str) -> None:
    code, out, _ = run("fetch", "-q", *words.split())
    assert (code, Path(out.strip()).name) == (0, file)


def test_a_pair_that_was_not_fetched_is_told_how(llama: Path) -> None:
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
