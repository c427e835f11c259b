"""What the loopback Hub holds, what it does wrong on purpose, and what it has seen."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class HubFile:
    """A file as the Hub lists it; what is sent may differ from it on purpose."""

    content: Path
    size: int
    digest: str
    lfs: bool = True


@dataclass
class Repo:
    """A repository with one commit, which every branch points to."""

    name: str
    files: dict[str, HubFile]
    commit: str
    branches: tuple[str, ...] = ("main",)
    gated: bool = False
    private: bool = False
    info: dict[str, Any] = field(default_factory=dict)


@dataclass
class Fault:
    """What goes wrong with the next ``times`` requests whose path contains ``where``."""

    where: str
    times: int = 1
    method: str = ""  # spoil only requests of this method
    status: int | None = None  # answer this instead
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None  # send this instead, as if all were well
    cut_after: int | None = None  # close the connection after that many bytes of a body
    hold_after: int | None = None  # stop sending there until ``release`` is set
    no_ranges: bool = False
    chunked: bool = False  # send no length, but chunks; ``cut_after`` then ends them as if they were all
    stride: int = 256 << 10  # bytes in a chunk
    extra: bytes = b""  # send this after the body, with ``chunked``
    content_range: str | None = None  # state this of a part; ``{}`` is "bytes 0-99", "" states nothing
    rate: float | None = None  # bytes per second
    release: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class Seen:
    """One request that arrived."""

    host: str  # "hub" or "content"
    method: str
    path: str
    headers: Mapping[str, str]  # names in lower case
