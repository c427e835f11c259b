"""How tests use the loopback Hub: models to serve, processes that know no other Hub, and fixtures."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hub_server import Hub

TARGET = "me/T-GGUF/t-Q4_K_M.gguf"
PAIR = ("--target", "me/T-GGUF:Q4_K_M", "--draft-model", "me/D-GGUF:q8_0")
DEMO = Path(__file__).resolve().parents[2] / "models" / "demo"


def gguf(extra_bytes: int = 0, seed: int = 0) -> bytes:
    """Return a whole, small model, made longer by bytes that no tensor claims."""
    tail = hashlib.shake_128(seed.to_bytes(4)).digest(min(extra_bytes, 1 << 16))
    tail = tail * (extra_bytes // len(tail) + 1) if tail else b""
    return (DEMO / "drafter.gguf").read_bytes() + tail[:extra_bytes]


def environment(hub: Hub, home: Path) -> dict[str, str]:
    """Return the environment of a process that knows no Hub but this one."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "GGUFSPEC_CACHE": str(home / "cache"),
        "GGUFSPEC_DATA": str(home / "data"),
        "HF_HOME": str(home / "hf"),
        "HF_ENDPOINT": hub.url,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }


def use(hub: Hub, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point this very process at the Hub: what huggingface_hub reads at import is set where it keeps it."""
    from huggingface_hub import constants

    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hf" / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    for name in ("HF_TOKEN_PATH", "HF_STORED_TOKENS_PATH", "AGENT_HARNESSES_PATH"):
        monkeypatch.setattr(constants, name, str(home / "hf" / name), raising=False)


@pytest.fixture
def loopback(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """An empty Hub, and the only one that this process knows."""
    (tmp_path / "served").mkdir()
    with Hub(tmp_path / "served") as server:
        use(server, home, monkeypatch)
        yield server


@pytest.fixture
def hub(loopback: Hub) -> Hub:
    """A Hub that has a pair."""
    loopback.add(
        "me/T-GGUF",
        {
            "README.md": b"# T",
            "mmproj-t-Q4_K_M.gguf": b"a projector",
            "t-Q4_K_M.gguf": gguf(1 << 20),
            "t-Q8_0.gguf": gguf(2 << 20),
        },
    )
    loopback.add("me/D-GGUF", {"d-Q8_0.gguf": gguf()})
    return loopback


def blob(home: Path, hub: Hub, name: str = TARGET) -> Path:
    """Return where the cache keeps the bytes of a file."""
    repo, _, path = name.rpartition("/")
    folder = home / "hf" / "hub" / f"models--{repo.replace('/', '--')}"
    return folder / "blobs" / hub.repos[repo].files[path].digest
