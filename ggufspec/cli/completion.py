"""``ggufspec completion``: the script that lets a shell complete commands, options and values."""

from __future__ import annotations

import click

from ggufspec.cli.entry.output import echo

PROGRAM = "ggufspec"
_VARIABLE = "_GGUFSPEC_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def command(*, shell: str) -> None:
    """Print the script that lets a shell complete commands, options and values.

    Pairs, stored benches, models that are here and builds of llama.cpp complete, too. It takes effect in
    shells that are started afterwards.

    \b
    ggufspec completion bash >> ~/.bashrc
    ggufspec completion zsh >> ~/.zshrc     # after compinit
    ggufspec completion fish > ~/.config/fish/completions/ggufspec.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(click.get_current_context().find_root().command, {}, PROGRAM, _VARIABLE)
    echo(script.source_template % script.source_vars())
