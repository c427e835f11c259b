"""The files of a pair are pinned by its catalogue or its first fetch, and other files are refused."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest

from ggufspec.modelfiles import pins
from tests.support import hub_client
from tests.support.hub_client import PAIR
from tests.support.hub_server import Hub
from tests.support.shell import run

TARGET = "me/T-GGUF/t-Q4_K_M.gguf"
DRAFTER = "me/D-GGUF/d-Q8_0.gguf"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a catalogue of a pair that has no checksums."""
    folder = tmp_path / "config"
    folder.mkdir()
    monkeypatch.setenv("GGUFSPEC_CONFIG", str(folder))
    _write_catalogue(folder)
    return folder


def _write_catalogue(folder: Path, target: str = "") -> None:
    (folder / "pairs.toml").write_text(
        f"[pairs.mine]\ntarget = {{ repo = 'me/T-GGUF', file = 't-Q4_K_M.gguf'{target} }}\n"
        "drafter = { repo = 'me/D-GGUF', file = 'd-Q8_0.gguf' }\n"
    )


def _digest(hub: Hub, name: str = TARGET) -> str:
    repo, _, path = name.rpartition("/")
    return hub.repos[repo].files[path].digest


def _pinned(config: Path) -> dict[str, dict[str, str]]:
    stored = json.loads((config / "pins.json").read_text())
    assert stored["schema"] == 1
    return dict(stored["files"])


def _change(hub: Hub) -> str:
    """Replace the target on the Hub, and return its new checksum."""
    hub.add("me/T-GGUF", {"t-Q4_K_M.gguf": hub_client.gguf(1 << 20, seed=9)})
    hub.repos["me/T-GGUF"].commit = "c" * 40
    return _digest(hub)


def test_the_first_fetch_pins_and_the_next_one_checks(hub: Hub, config: Path) -> None:
    commit, old = hub.repos["me/T-GGUF"].commit, _digest(hub)
    code, _, err = run("fetch", "mine")
    assert (code, f"pinned in {config / 'pins.json'}: {TARGET}, {DRAFTER}" in err) == (0, True)
    assert _pinned(config) == {
        DRAFTER: {"commit": hub.repos["me/D-GGUF"].commit, "sha256": _digest(hub, DRAFTER)},
        TARGET: {"commit": commit, "sha256": old},
    }
    again, _, err = run("fetch", "mine")
    assert (again, "pinned in" in err) == (0, False)
    new = _change(hub)
    for words in (("fetch", "mine"), ("fetch", "mine", "--dry-run")):
        refused, out, err = run(*words)
        assert (refused, out) == (37, "")
        assert (
            f"{TARGET} is not the file that {config / 'pins.json'} lists: SHA-256 {old} there, {new}" in err
        )
        assert f"`ggufspec fetch mine --repin` accepts the new file; `--revision {commit}` gets" in err
    accepted, _, err = run("fetch", "mine", "--repin")
    assert (accepted, f"pinned in {config / 'pins.json'}: {TARGET}\n" in err) == (0, True)
    assert _pinned(config)[TARGET] == {"commit": "c" * 40, "sha256": new}
    assert run("fetch", "-q", "mine")[0] == 0


def test_the_catalogue_pins_as_well(hub: Hub, config: Path) -> None:
    _write_catalogue(config, f", sha256 = '{'0' * 64}'")
    refused, _, err = run("fetch", "mine")
    assert refused == 37
    assert f"the file that {config / 'pairs.toml'} lists: SHA-256 {'0' * 64} there" in err
    assert not (config / "pins.json").exists()
    assert run("fetch", "mine", "--repin")[0] == 0
    assert run("fetch", "mine")[0] == 0  # the user's own pin wins


def test_what_matches_the_catalogue_is_not_pinned_again(hub: Hub, config: Path) -> None:
    _write_catalogue(config, f", sha256 = '{_digest(hub)}'")
    assert run("fetch", "mine")[0] == 0
    assert list(_pinned(config)) == [DRAFTER]


def test_other_models_are_not_pinned_and_other_revisions_neither_pinned_nor_checked(
    hub: Hub, config: Path
) -> None:
    assert run("fetch", *PAIR)[0] == 0
    assert run("fetch", "mine", "--revision", "main")[0] == 0
    assert not (config / "pins.json").exists()
    run("fetch", "-q", "mine")
    _change(hub)
    assert run("fetch", "-q", "mine", "--revision", "main")[0] == 0
    assert run("fetch", "-q", "mine")[0] == 37


def test_a_model_in_parts_is_pinned_part_by_part(hub: Hub, config: Path) -> None:
    parts = [f"s-Q4_K_M-0000{number}-of-00002.gguf" for number in (1, 2)]
    hub.add("me/S-GGUF", dict.fromkeys(parts, hub_client.gguf()))
    (config / "pairs.toml").write_text(
        f"[pairs.split]\ntarget = {{ repo = 'me/S-GGUF', file = '{parts[0]}' }}\n"
    )
    run("fetch", "--no-check", "split")
    assert list(_pinned(config)) == [f"me/S-GGUF/{p}" for p in parts]


def test_pairs_says_what_is_pinned(hub: Hub, config: Path) -> None:
    _, before, _ = run("pairs", "mine")
    assert "pinned     t-Q4_K_M.gguf not yet: its first fetch does it; d-Q8_0.gguf not yet" in before
    run("fetch", "-q", "mine")
    _, after, _ = run("pairs", "mine")
    commit = hub.repos["me/T-GGUF"].commit
    assert (
        f"t-Q4_K_M.gguf of {commit[:12]}, SHA-256 {_digest(hub)[:12]}… (in {config / 'pins.json'})" in after
    )
    (listed,) = json.loads(run("pairs", "mine", "-o", "json")[1])
    assert (listed["target"]["pinned_commit"], listed["target"]["pinned_sha256"]) == (commit, _digest(hub))
    assert listed["target"]["sha256"] is None
    assert "pinned" not in run("pairs", "demo")[1]
    assert run("pairs", "mine", "--verify")[1].startswith("mine: ok")
    _change(hub)
    assert "changed since it was listed: t-Q4_K_M.gguf" in run("pairs", "mine", "--verify")[1]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        *((text, "cannot be read") for text in ("", "{", "[]", '{"files": {}}', '{"schema": 1}')),
        ('{"schema": 1, "files": {"a": 1}}', "cannot be read"),
        ('{"schema": 2, "repos": {}}', "was written by a newer ggufspec (schema 2)"),
    ],
)
def test_pins_of_another_form_are_one_clear_error(content: str, problem: str, hub: Hub, config: Path) -> None:
    (config / "pins.json").write_text(content)
    code, _, err = run("fetch", "mine")
    assert (code, f"{config / 'pins.json'} {problem}" in err, err.count("\n")) == (31, True, 2)


def test_refused_pins_are_warnings(hub: Hub, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = mock.Mock(side_effect=PermissionError(13, "Permission denied"))
    monkeypatch.setattr(pins, "pin_files", refused)
    code, _, err = run("fetch", "mine")
    assert (code, "Permission denied; nothing was pinned" in err) == (0, True)
