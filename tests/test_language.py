"""What people read is plain English: no sentence or name that a reader has to guess the meaning of."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "ggufspec").rglob("*.py"))
TEXTS = [*SOURCES, ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
INSTEAD = {
    "where dice decide": "with simulated acceptance",
    "nobody company": "no other request is running",
    "waits for nobody": "never blocks",
    "the best are lucky": "biased upward by selection",
    "to count as good": "latency limits for goodput",
    "look ahead failed": "forecasting failed",
    "reading ahead": "tracing",
    "never rise": "must not increase with position",
    ".gguf that is none": "a file that is not GGUF",
}
"""Sentence -> what to write instead."""
NO_NAMES = {"_late", "_against", "allow", "trade", "never", "tight", "lending", "_OURS"}
"""Names of functions and constants that do not say what they are."""


def test_sentences_are_plain() -> None:
    texts = {file: file.read_text(encoding="utf-8").lower() for file in TEXTS}
    assert not [(file, sentence) for file, text in texts.items() for sentence in INSTEAD if sentence in text]


def test_names_say_what_they_are() -> None:
    for file in SOURCES:
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        names = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        names |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        assert not names & NO_NAMES, file
