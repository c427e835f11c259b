"""Where llama.cpp's source comes from: the package index, git, or a local folder."""

from __future__ import annotations

from ggufspec.llama.source.git import commits_between
from ggufspec.llama.source.index import BUILDS_PACKAGE, releases_between
from ggufspec.llama.source.sources import LEGACY, builds_between, choose_source
