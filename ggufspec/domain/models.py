"""The models of a run: files, heads in them, and pairs of a target and what drafts for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ggufspec.choices import Method


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """One GGUF, on disk (``path``) or on the Hub (``repo`` and ``filename``).

    ``content`` identifies the content: the SHA-256 of the file or, for a model in several files, of the list
    of their checksums; None until the files are read. ``sha256`` is the checksum on the Hub.
    """

    filename: str
    repo: str | None = None
    revision: str | None = None
    quant: str | None = None
    size_bytes: int | None = None
    sha256: str | None = None
    path: Path | None = None
    content: str | None = None


ModelName = str | Path | ModelFile
"""A path, or a text as ``hub.parse_reference`` reads it: ``user/repo:Q4_K_M``, ``demo:target``, a path."""


@dataclass(frozen=True, kw_only=True)
class HeadFile(ModelFile):
    """A file whose head drafts, and by which method; layers for MTP may lie in the target's own file."""

    method: Method

    @classmethod
    def of(cls, model: ModelFile, method: Method) -> HeadFile:
        """Return the head in a file."""
        return cls(**_facts(model), method=method)

    @property
    def file(self) -> ModelFile:
        """The file alone."""
        return ModelFile(**_facts(self))


def _facts(model: ModelFile) -> dict[str, Any]:
    return {field.name: getattr(model, field.name) for field in fields(ModelFile)}


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A target and its drafter; ``draft`` is None where drafting needs no second model."""

    name: str
    target: ModelFile
    draft: ModelFile | None = None

    def with_models(self, change: Callable[[ModelFile], ModelFile]) -> Pair:
        """Return the pair with what a function makes of each model."""
        target = change(self.target)
        return replace(self, target=target, draft=None if self.draft is None else change(self.draft))

    @property
    def models(self) -> tuple[ModelFile, ...]:
        """The target, and the drafter if there is one."""
        return (self.target,) if self.draft is None else (self.target, self.draft)
