"""How the scripts of this folder speak: options below their docstring, and Markdown tables."""

from __future__ import annotations

import argparse


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser that shows a script's docstring as it is written."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def print_head(*names: str, texts: int = 1) -> None:
    """Print the head of a table, whose first columns are texts and whose others are numbers."""
    print_row(*names)
    print("|---" * texts + "|---:" * (len(names) - texts) + "|")


def print_row(*cells: object) -> None:
    """Print a row of a table at once: the next one may take long."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
