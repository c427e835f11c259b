"""A chosen configuration as commands of llama.cpp that can be pasted into a shell."""

from __future__ import annotations

import shlex

from ggufspec.domain import Program, RunSpec
from ggufspec.errors import NoInstallError
from ggufspec.llama.command.commands import put_context, put_placement
from ggufspec.llama.command.drafting import put_drafting
from ggufspec.llama.command.words import Words
from ggufspec.llama.install.installs import Install


def lines(spec: RunSpec, install: Install) -> dict[str, str]:
    """Return a command for each program that can run a configuration, by the program's name.

    What only a measurement needs (seeds, log levels, fixed lengths) is left out.

    Args:
        spec: what to run; its prompt and length do not matter.
        install: whose programs, and how they spell their flags.
    """
    programs = (Program.SERVER, Program.SIMPLE if spec.drafting is not None else Program.PLAIN)
    found = {}
    for program in programs:
        try:
            executable = install.executable(program)
        except NoInstallError:
            continue
        words = Words(executable, install)
        words.put("model", spec.model.path)
        put_context(words, spec)
        put_placement(words, spec, install)
        put_drafting(words, spec, install, program=program)
        if program is not Program.SERVER:
            words.put("prompt", "…")
        found[executable.path.name] = shlex.join(words.done())
    return found
