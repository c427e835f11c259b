"""The description of the package for an index: README.md without what works only beside the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_IMAGE = re.compile(r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n+(?:\*[^*]+\*\n+)?")  # with its caption
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)[^)]*\)")
_CLOSING = "The documentation is in the folder `docs` of the source archive.\n"


def describe(readme: str) -> str:
    """Return the text without images and links into the repository, which an index cannot follow."""
    text = _LINK.sub(r"\1", _IMAGE.sub("", _COMMENT.sub("", readme)))
    return f"{text.rstrip()}\n\n{_CLOSING}"


class Description(MetadataHookInterface):
    """Sets the long description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Make the description from README.md."""
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": describe(readme)}
