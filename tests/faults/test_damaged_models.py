"""Models that were truncated, damaged or lost are named, with the command that brings them back."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from ggufspec import digests, paths
from ggufspec.domain import ModelFile
from ggufspec.errors import ModelFileError, NotCachedError
from ggufspec.modelfiles import catalog, hub as hub_package
from tests.support import fakes, hub_client, models, shell
from tests.support.hub_client import PAIR
from tests.support.hub_server import Hub
from tests.support.shell import run

DEMO = paths.models_dir() / "demo"
DRY = ("bench", "--dry-run", "-p", "Once", "-n", "8")


@pytest.fixture(autouse=True)
def llama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGUFSPEC_CONFIG", str(tmp_path))
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(fakes.install(tmp_path / "llama")))
    monkeypatch.setattr(digests, "_SETTLED_NS", 0)


def truncate(path: Path) -> None:
    os.truncate(path, len(hub_client.gguf()) // 2)


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def repair(hint: str, *used: str) -> None:
    """Do what a hint says: remove a file if it says so, then fetch; the pair can be used again."""
    command = hint.removeprefix("hint: ").removeprefix("restore it: ").partition(";")[0]
    removing, both, fetching = command.rpartition(" && ")
    if both:
        program, file = shlex.split(removing)
        assert program == "rm"
        Path(file).unlink()
    program, *words = shlex.split(fetching)
    assert program == "ggufspec"
    shell.done(*words)
    shell.done(*DRY, *used)


def hint_of(*words: str, code: int, what: str) -> str:
    done = shell.here(*words)
    assert (done.returncode, done.stdout) == (code, "")
    error, hint = done.stderr.splitlines()
    assert what in error
    return hint


@pytest.mark.parametrize(
    ("spoil", "what"), [(truncate, " is truncated: "), (damage, " is damaged: its SHA-256 ")]
)
@pytest.mark.parametrize("name", ["me/T-GGUF/t-Q4_K_M.gguf", "me/D-GGUF/d-Q8_0.gguf"])
def test_a_spoiled_file_of_the_cache_is_named_with_its_repair(
    hub: Hub, home: Path, spoil: Callable[[Path], None], what: str, name: str
) -> None:
    run("fetch", "-q", *PAIR)
    shell.done(*DRY)
    spoil(hub_client.blob(home, hub, name))
    hint = hint_of(*DRY, code=6, what=what)
    if spoil is truncate:  # headers are all that these commands read
        assert hint_of("plan", code=6, what=what) == hint
        assert hint_of("check", "me/T-GGUF:Q4_K_M", "me/D-GGUF", code=6, what=what) == hint
    repair(hint)
    assert (
        hub_client.blob(home, hub, name).stat().st_size
        == hub.repos[name.rpartition("/")[0]].files[name.rpartition("/")[2]].size
    )


def test_a_pair_of_the_catalogue_is_repaired_by_name(hub: Hub, home: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.toml").write_text(
        "[pairs.mine]\ntarget = { repo = 'me/T-GGUF', file = 't-Q4_K_M.gguf' }\n"
        "drafter = { repo = 'me/D-GGUF', file = 'd-Q8_0.gguf' }\n"
    )
    run("fetch", "-q", "mine")
    blob = hub_client.blob(home, hub)
    damage(blob)
    for words in (DRY, (*DRY, "--pair", "mine")):
        hint = hint_of(*words, code=6, what=" is damaged: ")
        assert hint == f"hint: restore it: rm {blob} && ggufspec fetch mine"
    repair(hint)


def test_the_repair_of_a_single_file_is_a_fetch_of_its_commit(hub: Hub, home: Path) -> None:
    _, out, _ = run("fetch", "-q", *PAIR)
    target, drafter = out.splitlines()
    blob = hub_client.blob(home, hub)
    damage(blob)
    hint = hint_of(*DRY, "-m", target, "-md", drafter, code=6, what=f"{target} is damaged")
    commit = hub.repos["me/T-GGUF"].commit
    assert hint.endswith(f"rm {blob} && ggufspec fetch --target me/T-GGUF@{commit}/t-Q4_K_M.gguf")
    repair(hint, "-m", target, "-md", drafter)


@pytest.mark.parametrize("spoil", [truncate, damage])
def test_an_own_folder_is_repaired(hub: Hub, tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    folder = tmp_path / "my models"
    run("fetch", "-q", "--local-dir", str(folder), *PAIR)
    spoil(folder / "t-Q4_K_M.gguf")
    hint = hint_of(*DRY, code=6, what=f"{folder}/t-Q4_K_M.gguf is ")
    assert f"--local-dir '{folder}'" in hint
    repair(hint)


def test_only_the_spoiled_part_of_a_model_is_removed(hub: Hub, home: Path) -> None:
    names = [f"t-F16-0000{no}-of-00003.gguf" for no in (1, 2, 3)]
    hub.add("me/S-GGUF", {name: hub_client.gguf(no) for no, name in enumerate(names)})
    run("fetch", "-q", "--target", "me/S-GGUF")
    blobs = [hub_client.blob(home, hub, f"me/S-GGUF/{name}") for name in names]
    damage(blobs[1])
    hint = hint_of(*DRY, code=6, what=f"{names[1]} is damaged")
    assert f"rm {blobs[1]} && " in hint
    served = hub.bytes_served
    repair(hint)
    assert hub.bytes_served == served + len(hub_client.gguf(1))
    blobs[2].unlink()
    hint = hint_of(*DRY, code=6, what=f"there is no file {home}")
    repair(hint)


def test_a_pair_whose_files_are_gone_is_not_replaced_in_silence(hub: Hub, home: Path) -> None:
    run("fetch", "-q", *PAIR)
    hub_client.blob(home, hub).unlink()
    for words in (DRY, ("plan",), ("tune",)):
        hint = hint_of(
            *words, code=29, what="t-Q4_K_M.gguf is gone; it belongs to the pair that was fetched last"
        )
        assert hint.endswith("; or name another pair, such as --pair demo")
    with pytest.raises(NotCachedError):
        hub_package.last_pair()
    repair(hint)


def test_an_undamaged_file_is_read_once(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    run("fetch", "-q", *PAIR)
    shell.done(*DRY)
    monkeypatch.setattr("hashlib.file_digest", None)
    shell.done(*DRY)


# -- files of any origin


@pytest.fixture
def local(tmp_path: Path) -> tuple[Path, Path]:
    """A pair of files that nobody fetched."""
    pair = tmp_path / "t.gguf", tmp_path / "d.gguf"
    for path, name in zip(pair, ("target", "drafter"), strict=True):
        path.write_bytes((DEMO / f"{name}.gguf").read_bytes())
    return pair


@pytest.mark.parametrize("spoiled", [0, 1])
def test_every_command_says_that_a_file_is_truncated(local: tuple[Path, Path], spoiled: int) -> None:
    path = local[spoiled]
    os.truncate(path, path.stat().st_size - 1000)
    target, drafter = map(str, local)
    models_of = ("-m", target, "-md", drafter)
    for words in (
        ("check", target, drafter),
        ("plan", *models_of),
        (*DRY, *models_of),
        ("sweep", "--dry-run", *models_of),
        ("tune", *models_of),
        ("whatif", *models_of, "--machine", "h100", "--accept", "0.7"),
        ("suggest", "--offline", str(path)),
    ):
        hint = hint_of(*words, code=6, what=f"{path} is truncated: 1000 B of ")
        assert hint == "hint: download the file again"


@pytest.mark.parametrize("command", ["check", "plan"])
def test_a_file_that_is_truncated_on_the_hub_is_named(hub: Hub, command: str) -> None:
    hub.add("me/D-GGUF", {"d-Q8_0.gguf": hub_client.gguf()[:-1024]})
    words = ("me/T-GGUF:Q4_K_M", "me/D-GGUF") if command == "check" else ("-m", "me/D-GGUF")
    hint_of(command, *words, code=6, what="me/D-GGUF/d-Q8_0.gguf is truncated: 1 KiB of ")


def split(folder: Path, of: int = 2, **changes: models.Value) -> Path:
    """Write a model in two parts, each of which names itself; ``changes`` are to the second part's header."""
    metadata, tensors = models.llama()
    keys: dict[str, models.Value] = {"split.count": of, "split.tensors.count": len(tensors)}
    second = {"split.no": 1} | keys | {f"split.{name}": value for name, value in changes.items()}
    folder.mkdir(exist_ok=True)
    models.write_model(folder / "m-00002-of-00002.gguf", second, tensors[5:])
    return models.write_model(
        folder / "m-00001-of-00002.gguf", metadata | {"split.no": 0} | keys, tensors[:5]
    )


def complaint(path: Path) -> str:
    done = shell.here("plan", "-m", str(path))
    assert done.returncode in {0, 6}
    return done.stderr.partition("\n")[0]


def test_all_parts_of_a_model_must_be_there_and_its_own(tmp_path: Path) -> None:
    first = split(tmp_path / "whole")
    assert complaint(first) == ""
    second = first.with_name("m-00002-of-00002.gguf")
    alone = first.rename(first.with_name("m.gguf"))
    assert complaint(alone).endswith("m.gguf is part 1 of 2 of a model, but its name says 1 part")
    alone.rename(first)
    os.truncate(second, second.stat().st_size - 10)
    assert f"{second} is truncated: 10 B of" in complaint(first)
    second.unlink()
    assert complaint(first) == f"error: there is no file {second}"
    for change in ({"no": 0}, {"no": 2}, {"no": "1"}, {"count": 3}):
        path = split(tmp_path / "changed", **change)
        assert "m-00002-of-00002.gguf is not part 2 of 2" in complaint(path)
    assert "is part 1 of 3 of a model, but its name says 2 parts" in complaint(split(tmp_path / "3", of=3))


def test_parts_of_two_models_are_told_apart(tmp_path: Path) -> None:
    first = split(tmp_path / "one")
    _, tensors = models.llama(n_layers=3)
    models.write_model(
        first.with_name("m-00002-of-00002.gguf"), {"split.no": 1, "split.count": 2}, tensors[5:]
    )
    assert complaint(first).endswith("tensors instead of 21")


def test_a_model_of_the_hub_is_checked_by_its_listed_digest_only_where_it_was_fetched(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    path.write_bytes((DEMO / "target.gguf").read_bytes())
    listed = ModelFile(filename="t.gguf", repo="me/T-GGUF", path=path, sha256="0" * 64)
    pair = catalog.find_pair("demo").__class__(name="x", target=listed)
    assert hub_package.validate_model(listed, pair).n_layers == 8
    fetched = listed.__class__(**{**vars(listed), "revision": "main"})
    with pytest.raises(ModelFileError, match="is damaged"):
        hub_package.validate_model(fetched, pair)
