"""``pairs --verify``, ``fetch --largest`` and ``suggest``: catalogue and family, asked for at the Hub."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import NoReturn

import pytest

from ggufspec import hosts
from ggufspec.modelfiles.hub import client
from tests.support import hub_client, shell
from tests.support.hub_server import Hub
from tests.support.shell import run


def test_pairs_are_verified(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGUFSPEC_CONFIG", str(tmp_path))
    (tmp_path / "pairs.toml").write_text(
        '[pairs.mine]\ntarget = { repo = "me/T-GGUF", file = "t-Q8_0.gguf" }\n'
        'drafter = { repo = "me/D-GGUF", file = "d-Q8_0.gguf", sha256 = "00" }\n'
        '[pairs.gone]\ntarget = { repo = "me/T-GGUF", file = "t-Q2_K.gguf" }\n'
    )
    said = "mine: changed since it was listed: d-Q8_0.gguf, 5.48 MiB\n"
    assert run("pairs", "mine", "--verify")[:2] == (0, said)
    code, out, err = run("pairs", "gone", "--verify")
    assert (code, out) == (31, "gone: me/T-GGUF has no file t-Q2_K.gguf\n")
    assert err == "error: 1 of 1 pairs are not available\nhint: fix the catalogue\n"
    code, out, _ = run("pairs", "gone", "--verify", "-o", "json")
    assert (code, json.loads(out)[0]["error"]) == (31, "me/T-GGUF has no file t-Q2_K.gguf")
    mine = json.loads(run("pairs", "mine", "--verify", "-o", "json")[1])
    assert (mine[0]["changed"], mine[0]["error"]) == (["d-Q8_0.gguf"], None)
    out = shell.done("pairs").stdout
    assert "mine (unverified)" in out
    listed = {row["pair"]: row for row in json.loads(run("pairs", "-o", "json")[1])}
    assert listed["gone"]["drafter"] is None
    assert listed["mine"]["drafter"]["repo"] == "me/D-GGUF"
    assert not listed["mine"]["verified"]
    assert json.loads(run("pairs", "mine", "-o", "json")[1]) == [listed["mine"]]
    code, out, _ = run("pairs", "mine")
    assert "verified   no; check with --verify\n" in out


def test_fit_takes_the_largest(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGUFSPEC_CONFIG", str(tmp_path))
    hub.add("me/Fits-GGUF", {"f-Q4_0.gguf": hub_client.gguf(48 << 20)})
    hub.add("me/Huge-GGUF", {"h-Q4_0.gguf": hub_client.gguf()})
    hub.repos["me/Huge-GGUF"].files["h-Q4_0.gguf"].size = 1 << 50
    fits, huge = 'repo = "me/Fits-GGUF", file = "f-Q4_0.gguf"', 'repo = "me/Huge-GGUF", file = "h-Q4_0.gguf"'
    draft = 'drafter = { repo = "me/D-GGUF", file = "d-Q8_0.gguf" }\n'
    pairs = {"fits": (fits, draft), "huge": (huge, draft), "alone": (fits, "")}
    entries = (f"[pairs.{name}]\ntarget = {{ {file} }}\n{rest}" for name, (file, rest) in pairs.items())
    (tmp_path / "pairs.toml").write_text("".join(entries))
    code, out, err = run("fetch", "--largest", "--dry-run")
    assert code == 0
    assert "me/Fits-GGUF/f-Q4_0.gguf" in out
    assert "fits is the largest pair that fits: " in err
    assert "unavailable pairs are left out; the first: " in err
    assert run("fetch", "demo", "--largest")[0] == 2


def test_suggest_ranks_what_it_finds(hub: Hub) -> None:
    base = {"cardData": {"base_model": "acme/Model-3-8B-Instruct"}}
    hub.add("me/Model-3-8B-GGUF", {"m-Q4_K_M.gguf": hub_client.gguf(40 << 20)}, info=base)
    same, other = hub_client.gguf(), hub_client.gguf().replace(b"<0xC5>", b"<0xc5>")
    offered = {
        "a/Model-3-1B-GGUF": (90_000, same),
        "b/Model-3-0.5B-GGUF": (800, same),
        "c/Model-3-1B-other-GGUF": (990_000, other),
    }
    for name, (downloads, body) in offered.items():
        hub.add(name, {"d-Q8_0.gguf": body, "d-F16.gguf": hub_client.gguf(1 << 20)})
        hub.repos[name].info = {"downloads": downloads, "gguf": {"architecture": "llama"}}
    hub.add("d/Model-3-70B-GGUF", {"d.gguf": hub_client.gguf()})
    code, out, err = run("suggest", "me/Model-3-8B-GGUF:Q4_K_M")
    lines = [line.split() for line in out.splitlines()]
    assert code == 0
    assert [line[0] for line in lines] == ["drafter", *(f"{name}/d-Q8_0.gguf" for name in offered)]
    assert lines[1][1:] == ["draft-model", "1.74", "MiB", "1/24", "90,000", "accepted"]
    assert "refused: 1 token differs" in out
    assert err == "".join(
        f"ggufspec fetch --target me/Model-3-8B-GGUF:Q4_K_M --draft-model {line[0]} && ggufspec bench\n"
        for line in lines[1:3]
    )
    assert hub.bytes_served <= 4 << 20
    code, out, _ = run("suggest", "me/Model-3-8B-GGUF:Q4_K_M", "-o", "json")
    rows = json.loads(out)
    assert [row["outcome"] for row in rows] == ["accepted", "accepted", "refused"]
    assert (rows[0]["drafter"], rows[0]["downloads"]) == (lines[1][0], 90_000)
    assert rows[0]["ratio"] == pytest.approx(1 / 24, rel=0.05)
    assert rows[2]["helps"]


def test_suggest_offline_looks_into_the_cache(hub: Hub) -> None:
    hub.add("me/Big-GGUF", {"big-Q4_0.gguf": hub_client.gguf(8 << 20)})
    run("fetch", "-q", "--target", "me/Big-GGUF", "--draft-model", "me/D-GGUF")
    hub.seen.clear()
    out = shell.done("suggest", "me/Big-GGUF", "--offline").stdout
    assert out.splitlines()[1].split() == [
        *("me/D-GGUF/d-Q8_0.gguf", "draft-model", "1.74", "MiB", "1/6", "accepted")
    ]
    assert hub.seen == []


def test_suggest_looks_nearby(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("big.gguf", 8 << 20), ("small.gguf", 1 << 20), ("as-big.gguf", 7 << 20)):
        (tmp_path / name).write_bytes(hub_client.gguf(size))
    row = [str(tmp_path / "small.gguf"), "draft-model"]

    looked_up, ended = list[str](), threading.Event()

    def look_up(host: str, *_: object, **__: object) -> NoReturn:
        looked_up.append(host)
        ended.wait()
        raise OSError

    for said in (False, True):
        code, out, err = run("suggest", str(tmp_path / "big.gguf"))
        assert code == 0
        assert [line.split()[:2] for line in out.splitlines()[1:]] == [row]
        assert ("hub.invalid cannot be reached: no connection within" in err) is said
        assert ("only files beside the target" in err) is said
        monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")  # whose name nobody answers for
        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        monkeypatch.setattr(hosts, "CONNECT_S", 0.3)
        monkeypatch.setattr(client, "FIRST_PAUSE_S", 0.0)
    ended.set()
    assert looked_up == ["hub.invalid"] * 2


def test_suggest_finds_nothing(hub: Hub) -> None:
    code, out, err = run("suggest", "me/T-GGUF")
    assert (code, out) == (22, "")
    assert err == (
        "error: no head and no smaller model of the family 'T' was found\n"
        "hint: name a drafter: ggufspec fetch --target … --draft-model …\n"
    )
