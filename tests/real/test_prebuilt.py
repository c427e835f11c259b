"""An archive as upstream packs it, of real programs: fetched, tested, and measured with its server."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

import pytest

from ggufspec.llama.build import prebuilt
from ggufspec.llama.install.installs import Install
from tests.support import shell
from tests.support.release_server import serve_releases


def test_an_official_archive_drafts_with_its_server(
    llama: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libc, version = platform.libc_ver()
    if (sys.platform, platform.machine(), libc) != ("linux", "x86_64", "glibc") or version < "2.35":
        pytest.skip("official archives of CPU programs are for x86-64 with glibc 2.35 and newer")
    monkeypatch.setenv("GGUFSPEC_CACHE", str(tmp_path / "cache"))
    with serve_releases(tmp_path / "archives") as releases:
        monkeypatch.setenv(prebuilt.ADDRESS, f"{releases.url}/releases")
        left_out = ("llama-speculative", "llama-tokenize")  # examples are not part of archives
        files = [path for path in llama.root.iterdir() if not path.name.startswith(left_out)]
        releases.add("b11312", "ubuntu-x64", files)
        fetched = shell.here("build", "--prebuilt", "--backend", "cpu")
    assert fetched.returncode == 0, fetched.stderr
    asked = ("--pair", "demo", "--draft", "3", "-n", "16", "-r", "1", "--warmup", "0", "-t", "1")
    done = shell.done("bench", *asked, "--per-category", "1", "-o", "json")
    assert "engine: server, because the llama.cpp in" in done.stderr
    (drafting,) = (row for row in json.loads(done.stdout) if row["role"] == "drafting")
    assert drafting["text_identical"]
    assert drafting["accept_rate"] > 0.3  # the embedded pair accepts more than half of three
