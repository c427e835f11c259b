"""``ggufspec completion``: print a shell completion script."""

from __future__ import annotations

import click

from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo
from ggufspec.options import CompletionOptions

PROGRAM = "ggufspec"
_VARIABLE = "_GGUFSPEC_COMPLETE"


@command_of(CompletionOptions)
def command(asked: CompletionOptions) -> None:
    """Print a script with which a shell completes commands, options and values.

    Values include pairs, stored benches, local models and builds of llama.cpp. The script takes effect in new
    shells.

    \b
    ggufspec completion bash >> ~/.bashrc
    ggufspec completion zsh >> ~/.zshrc     # after compinit
    ggufspec completion fish > ~/.config/fish/completions/ggufspec.fish
    """
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(asked.shell)
    assert completion_class is not None
    script = completion_class(click.get_current_context().find_root().command, {}, PROGRAM, _VARIABLE)
    echo(script.source_template % script.source_vars())
