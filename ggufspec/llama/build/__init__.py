"""Compile llama.cpp: choose tools and backend, configure, build, and check that the result runs."""

from __future__ import annotations

from ggufspec.llama.build.ordering import build, list_builds, request_build, run_build
