"""``ggufspec build``, ``doctor``, ``config``, ``cache`` and ``completion``: what is here, what is missing."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from ggufspec import api, options
from ggufspec.choices import StorageKind
from ggufspec.cli.entry.command import command_of, group_of, usage_errors
from ggufspec.cli.entry.output import echo, echo_json, echo_rows, echo_table, terminal_width
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.units import counted, format_bytes

if TYPE_CHECKING:
    from ggufspec.options import settings


@command_of(options.BuildOptions)
def build(asked: options.BuildOptions) -> None:
    """Build llama.cpp for this machine, or list what is installed; `ggufspec cache prune` removes builds.

    A build contains the programs and the library. An existing build is reused. The source is verified before
    compiling, and the programs are tested afterwards. If the CUDA compiler is missing, it is installed from
    the package index.

    \b
    ggufspec build                   the newest version that was tested
    ggufspec build --version legacy  the version with `main` and `speculative`
    ggufspec build --backend cuda --cuda-arch 90  for H100 and H200
    ggufspec build --cmake=-DGGML_NATIVE=OFF --cmake=-DGGML_AVX512=OFF
    ggufspec build --prebuilt        the newest official archive, in seconds
    """
    if asked.listing and asked.cmake:
        raise click.UsageError("--cmake chooses what is built; --list takes no --cmake")
    if asked.listing:
        from ggufspec.report.text import provenance

        usable, skipped = api.list_builds()
        echo(provenance.table(usable, asked.output, skipped), nl=False)
        if not usable:
            echo("no llama.cpp was found; build it: ggufspec build", err=True)
        return
    with usage_errors():
        echo(api.build(asked, sink=Terminal()).bin)


@command_of(options.DoctorOptions)
def doctor(asked: options.DoctorOptions) -> None:
    """Check what is installed, and print the command that fixes each problem.

    `missing` means that something cannot work, `remark` is for information. The exit code is 1 only if no
    bench can run: llama.cpp is not installed, and cannot be built.

    \b
    ggufspec doctor
    ggufspec doctor --llama ~/llama.cpp/build/bin
    ggufspec doctor --offline -o json
    """
    from rich.console import Console

    from ggufspec import doctor
    from ggufspec.doctor import finding
    from ggufspec.errors import GgufspecError

    console = Console(stderr=True)
    # a status line for a terminal: the Hub may take long to answer
    with console.status("checking") if console.is_terminal else nullcontext():
        report = doctor.examine(offline=asked.offline, llama=options.only(asked.llama))
    echo(finding.render(report, asked.output, width=terminal_width()), nl=False)
    missing = [item for item in report.findings if item.status is finding.FindingStatus.MISSING]
    if not report.can_run:
        missing = [item for item in missing if item.name != "settings"]
        raise GgufspecError(f"no bench can run here: {missing[0].text}", missing[0].fix)
    if any(item.name == "llama.cpp" for item in missing):
        echo("a bench can run after: ggufspec build", err=True)
    else:
        echo("a bench can run: ggufspec bench", err=True)


@command_of(options.KeyArgument)
def get(asked: options.KeyArgument) -> None:
    """Print the value of KEY; nothing if it is not set.

    \b
    ggufspec config get engine
    ggufspec config get pair
    """
    from ggufspec.options import settings

    settings.refuse_unknown(asked.key, "config get")
    value = settings.read_settings()[asked.key].value
    if value is not None:
        echo(_format_value(value))


@command_of(options.SetOptions)
def assign(asked: options.SetOptions) -> None:
    """Write VALUE for KEY into the settings file.

    \b
    ggufspec config set pair llama-3-70b
    ggufspec config set threads 8
    """
    from ggufspec import paths
    from ggufspec.cli.entry import defaults
    from ggufspec.modelfiles import catalog
    from ggufspec.options import settings

    settings.refuse_unknown(asked.key, settings.SET)
    parsed = settings.parse_setting(asked.key, asked.value, settings.SET)
    if asked.key == "pair":
        catalog.find_pair(asked.value)
    if asked.key == "llama":
        parsed = str(paths.expanded(asked.value, settings.SET))
    source = settings.SettingSource.FILE
    setting = settings.Setting(key=asked.key, value=parsed, source=source, where=settings.SET)
    defaults.check_setting(settings.KEYS[asked.key], setting)
    settings.change(paths.config_file(), asked.key, parsed)
    _warn_of_environment(asked.key)


@command_of(options.KeyArgument)
def unset(asked: options.KeyArgument) -> None:
    """Remove KEY from the settings file.

    \b
    ggufspec config unset engine
    ggufspec config unset threads
    """
    from ggufspec import paths
    from ggufspec.options import settings

    if asked.key not in settings.KEYS and asked.key not in settings.keys_in(paths.config_file()):
        settings.refuse_unknown(asked.key, "config unset")
    settings.change(paths.config_file(), asked.key, None)
    _warn_of_environment(asked.key)


@command_of(options.Options)
def path(asked: options.Options) -> None:
    """Print the path of the settings file, even if it does not exist.

    \b
    ggufspec config path
    $EDITOR "$(ggufspec config path)"
    """
    from ggufspec import paths

    echo(paths.config_file())


@group_of(options.AnswerOptions, get=get, set=assign, unset=unset, path=path)
def config(asked: options.AnswerOptions) -> None:
    """Show and change the settings of all commands, with their sources.

    The command line has precedence over the environment (GGUFSPEC_PAIR and so on), and the environment over
    the file. Keys: pair, llama, engine, suite, threads, offline, output, folders. A setting is the default of
    the option with its name. llama also applies to commands without that option, and in notebooks; folders
    are searched beside those that `ggufspec models` is given.

    \b
    ggufspec config
    ggufspec config set engine server
    ggufspec config set llama ~/llama.cpp/build/bin
    """
    from ggufspec import paths
    from ggufspec.options import settings

    current = settings.read_settings()
    if asked.output == "json":
        rows = {
            key: {"value": setting.value, "source": setting.source, "where": setting.where}
            for key, setting in current.items()
        }
        echo_json(rows)
        return
    cells = []
    for key, setting in current.items():
        option = settings.KEYS[key]
        default = option.shown or _format_value(option.default)
        value = default if setting.value is None else _format_value(setting.value)
        cells.append((key, value, setting.where or str(setting.source)))
    echo_table(("key", "value", "set by"), cells)
    echo(f"file: {paths.config_file()}", err=True)
    for name, similar in settings.strange_variables().items():
        guess = f"; did you mean {similar}?" if similar else ""
        echo(f"note: the variable {name} is not a setting{guess}", err=True)


def _format_value(value: settings.Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _warn_of_environment(key: str) -> None:
    import os

    from ggufspec.options import settings

    variable = settings.PREFIX + key.upper()
    if os.environ.get(variable):
        echo(f"note: the variable {variable} is set and has precedence over the file", err=True)


@command_of(options.CompletionOptions)
def completion(asked: options.CompletionOptions) -> None:
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
    commands = click.get_current_context().find_root().command
    script = completion_class(commands, {}, "ggufspec", "_GGUFSPEC_COMPLETE")
    echo(script.source_template % script.source_vars())


@command_of(options.CacheListOptions)
def list_items(asked: options.CacheListOptions) -> None:
    """List the items of each KIND, or of all kinds, with the names that `prune` accepts.

    \b
    ggufspec cache list
    ggufspec cache list builds models -o json
    """
    from ggufspec.doctor import storage
    from ggufspec.report.rows import listing

    items = storage.list_items([*map(StorageKind, asked.kinds)] or tuple(StorageKind))
    if items or asked.output == "json":
        echo_rows(listing.StoredItemRow, items, asked.output, "name", "size_bytes", "day", "note")
    else:
        echo("nothing is stored", err=True)


@command_of(options.PruneOptions)
def prune(asked: options.PruneOptions) -> None:
    """Delete each NAME after confirmation: a complete kind, or a single item as `list` names it.

    Models must be named one by one.

    \b
    ggufspec cache prune sources
    ggufspec cache prune builds/0.2.63-cpu-ba7f74e6 --yes
    """
    from ggufspec.doctor import storage

    items = storage.select(asked.names)
    if not items:
        echo("nothing to delete", err=True)
        return
    sizes = {item.name: item.size_bytes for item in items}
    if not asked.yes:
        terminal, what = Terminal(), f"{counted(len(items), 'item')} of {format_bytes(sum(sizes.values()))}"
        terminal.refuse_unasked(f"deleting {what}")
        for item in items:
            echo(item.name, err=True)
        terminal.agree(f"Delete {what}?", f"deleting {what}")
    for item in items:
        storage.remove(item)
        echo(f"deleted {item.name} ({format_bytes(sizes[item.name])})")


@group_of(options.AnswerOptions, list=list_items, prune=prune)
def cache(asked: options.AnswerOptions) -> None:
    """Show the disk space of builds, sources, models and results, and free it.

    The kinds are builds, sources, cuda, models, digests, other, profiles and results. Profiles and results
    are measurements; the others can be built or downloaded again. Models are in the Hub's cache, which other
    programs share.

    \b
    ggufspec cache
    ggufspec cache list builds
    ggufspec cache prune sources builds/0.2.63-cpu-ba7f74e6
    """
    from ggufspec.doctor import storage

    rows: list[dict[str, Any]] = []
    for kind in StorageKind:
        items = storage.list_items([kind])
        size_bytes, shared = sum(item.size_bytes for item in items), kind is StorageKind.MODELS
        row = {"kind": kind.value, "items": len(items), "size_bytes": size_bytes, "shared": shared}
        rows.append(row | {"path": str(storage.root(kind))})
    if asked.output == "json":
        echo_json(rows)
        return
    note = {True: " (shared with other programs)", False: ""}
    cells = [
        [
            row["kind"],
            str(row["items"]),
            format_bytes(row["size_bytes"]),
            f"{row['path']}{note[row['shared']]}",
        ]
        for row in rows
    ]
    echo_table(["kind", "items", "size", "where"], cells)
    own = sum(row["size_bytes"] for row in rows if not row["shared"])
    echo(f"{format_bytes(own)} without the models; `ggufspec cache list` lists every item", err=True)
