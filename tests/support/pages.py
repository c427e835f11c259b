"""HTML pages as their elements and scripts, and the contrast of their colours."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any


class Page(HTMLParser):
    """A page's elements with their attributes, and the text of its scripts and style sheets."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.sources: list[tuple[str, dict[str, str | None], str]] = []
        self.words = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem in {"script", "style"}:  # from Python 3.14 on, titles are raw text as well
            self.sources.append((*self.elements[-1], data))
        else:
            self.words += data

    def specs(self) -> dict[str, Any]:
        """The charts' specs by their places."""
        found = [(about["data-chart"], data) for tag, about, data in self.sources if "data-chart" in about]
        return {str(place): json.loads(data) for place, data in found}

    def addresses(self) -> set[str]:
        """What its elements link to or load."""
        return {about[name] or "" for _, about in self.elements for name in ("src", "href") if name in about}

    def check_harmless(self, scripts: int) -> None:
        """Nothing but so many scripts, and a style sheet, may run: those that the page itself has."""
        assert not {tag for tag, _ in self.elements} & {"img", "iframe", "object", "embed", "form", "svg"}
        assert not [name for _, about in self.elements for name in about if name.startswith("on")]
        kept = {"script": set[str](), "style": set[str]()}
        for tag, about, data in self.sources:
            if about.get("type") != "application/json":
                assert not about
                digest = base64.b64encode(hashlib.sha256(data.encode()).digest()).decode()
                kept[tag].add(f"'sha256-{digest}'")
        assert len(kept["script"]) == scripts
        policy = next(str(about["content"]) for tag, about in self.elements if "http-equiv" in about)
        rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
        assert rules["default-src"] == "'none'"
        assert {tag: set(rules[f"{tag}-src"].split()) for tag in kept} == kept


def contrast(one: str, two: str) -> float:
    """The contrast of two colours by WCAG 2.2."""
    light, dark = sorted((_luminance(one), _luminance(two)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(part, 16) / 255 for part in re.findall("..", colour.lstrip("#"))]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
