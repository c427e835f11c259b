"""Options under their former names, which work for one version, with a note on standard error."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from ggufspec.cli.entry.output import echo

_EVERYWHERE = {"--type": "--kv-type", "--ubatch": "--ubatch-size"}

OLD_NAMES: Mapping[str, Mapping[str, str]] = {
    "fetch": {"--fit": "--largest"},
    "sweep": {"--plan": "--dry-run"},
}
"""Command -> former name -> present name; ``_EVERYWHERE`` holds for all commands."""


def old_names(command: str | None, known: Collection[str]) -> dict[str, str]:
    """Return the former names of a command's options, and their names now.

    Args:
        command: its name.
        known: the options that it has.
    """
    names = {**_EVERYWHERE, **OLD_NAMES.get(command or "", {})}
    return {old: new for old, new in names.items() if new in known}


def note(old: str, new: str) -> str:
    """Return the sentence for somebody who used a former name."""
    return f"note: {old} is now {new}; the old name works in this version only"


def rename_options(
    args: Sequence[str], names: Mapping[str, str], with_value: Collection[str], *, is_silent: bool
) -> list[str]:
    """Return arguments with the present names of options in place of former ones.

    Args:
        args: the command's arguments.
        names: former name -> present name.
        with_value: options after which a value follows, which may look like an option.
        is_silent: print no note, as during shell completion.
    """

    def renamed() -> Iterator[str]:
        rest = iter(args)
        for word in rest:
            if word == "--":
                yield from (word, *rest)
                return
            name, separator, value = word.partition("=")
            current = names.get(name, name)
            if current != name and not is_silent:
                echo(note(name, current), err=True)
            yield f"{current}{separator}{value}" if current != name else word
            if current in with_value and not separator:
                yield from (next_word for next_word in [next(rest, None)] if next_word is not None)

    return list(renamed())
