"""``ggufspec models``, ``fetch``, ``convert``, ``suggest`` and ``check``: models here and on the Hub."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING

from ggufspec import api
from ggufspec.cli.entry.command import command_of, usage_errors
from ggufspec.cli.entry.output import echo, echo_json, echo_rows
from ggufspec.cli.entry.terminal import Terminal, print_conversion, print_survey
from ggufspec.options import CheckOptions, ConvertOptions, FetchOptions, ModelsOptions, SuggestOptions
from ggufspec.units import counted, format_percent

if TYPE_CHECKING:
    from ggufspec.doctor.drafters import ExaminedDrafter
    from ggufspec.domain import Pair
    from ggufspec.modelfiles import hub
    from ggufspec.modelfiles.api import CheckedPair, SuggestedDrafter


_MOST_NAMED = 3


@command_of(ModelsOptions)
def models(asked: ModelsOptions) -> None:
    """List the models on this machine, and which of them can draft for which.

    Looks into each FOLDER and those of the settings (`ggufspec config set folders ~/models`) with all below
    them, the Hub's cache, and where llama.cpp (LLAMA_CACHE), LM Studio and Ollama (OLLAMA_MODELS) keep
    models. Only headers are read. Whether llama.cpp accepts a drafter is decided as by `ggufspec check`;
    draft models of more than 60 % of the target's size are left out. Pairs that were measured say in which
    bench.

    \b
    ggufspec models
    ggufspec models ~/models /mnt/gguf -o json
    """
    from ggufspec.report.rows import listing
    from ggufspec.report.text import overview

    found = api.models(asked, sink=Terminal())
    if asked.output == "json":
        echo_json(
            {
                "models": [listing.LocalModelRow.to_json(model) for model in found.models],
                "pairs": [listing.LocalPairRow.to_json(pair) for pair in found.pairs],
            }
        )
        return
    if not found.models:
        echo(
            "no models were found: `ggufspec fetch` downloads a pair, and `ggufspec demo` needs none",
            err=True,
        )
        return
    echo(overview.model_list(found.models, found.pairs))
    open_pairs = [pair for pair in found.pairs if pair.bench is None]
    smallest = {pair.target.path: pair for pair in reversed(open_pairs)}
    n_measured = len(found.pairs) - len(open_pairs)
    measured = f", {n_measured or 'none'} of them measured" if found.pairs else ""
    ending = ". Find out what pays:" if open_pairs else ""
    echo(f"\n{counted(len(found.pairs), 'pair')} here{measured}{ending}", err=True)
    for pair in [*smallest.values()][:_MOST_NAMED]:
        drafter = () if pair.drafter is pair.target else ("-md", str(pair.drafter.path))
        echo(shlex.join(["ggufspec", "tune", "-m", str(pair.target.path), *drafter]), err=True)


@command_of(FetchOptions)
def fetch(asked: FetchOptions) -> None:
    """Download a pair of models into the Hub's cache, and verify the files.

    The first fetch of a pair pins its files by SHA-256, unless the catalogue does; later ones refuse others.

    PAIR is a name from the catalogue, by default that of `ggufspec config`, otherwise the pair of the Llama-3
    notebook. REF is user/repo:QUANT (as in llama.cpp's -hf), user/repo/file.gguf, hf://…, a Hub URL, half of
    a pair (demo:target) or a local path. A REF in place of PAIR is a target without a drafter; if its
    repository has several models, they are listed. With --quiet, only the paths are printed.

    \b
    ggufspec fetch qwen3-8b
    ggufspec fetch unsloth/Qwen3-8B-GGUF
    ggufspec fetch --target unsloth/Qwen3-8B-GGUF:Q4_K_M --draft-model unsloth/Qwen3-0.6B-GGUF:Q8_0
    """
    terminal = Terminal()
    with usage_errors():
        survey = api.fetch(asked, sink=terminal)
    is_quiet = asked.dry_run or terminal.is_quiet
    if asked.dry_run:
        print_survey(survey, err=False)
    else:
        for role, model in (("target", survey.pair.target), ("drafter", survey.pair.draft)):
            if model is not None:
                echo(model.path if is_quiet else f"{role:<8} {model.path}")
    _print_next_step(survey, quiet=is_quiet)


def _print_next_step(survey: hub.Survey, *, quiet: bool) -> None:
    """Print how to measure a pair, or where a target without a drafter gets one; quietly, only the latter."""
    from ggufspec.errors import UnsupportedMethodError
    from ggufspec.modelfiles import catalog

    pair, target = survey.pair, survey.pair.target
    try:
        has_method = catalog.drafting_method(pair) is not None
    except UnsupportedMethodError:
        return
    if has_method or _has_layers_for_mtp(pair):
        way = "" if has_method else " --method draft-mtp"
        if not quiet:
            echo(f"measure it: ggufspec bench{way}", err=True)
        return
    if not survey.heads:
        find = shlex.join(["ggufspec", "suggest", target.reference])
        echo(f"note: this target has no drafter; find one: {find}", err=True)
    for head in survey.heads:
        words = ["ggufspec", "fetch", "--target", target.reference, "--draft-model", head.reference]
        echo(f"note: its repository has a head that may draft for it; get it: {shlex.join(words)}", err=True)


def _has_layers_for_mtp(pair: Pair) -> bool:
    """Whether the target can draft for itself; False if its file is not here, or cannot be read."""
    from ggufspec.errors import GgufspecError
    from ggufspec.modelfiles import gguf
    from ggufspec.modelfiles.compat import mtp_layers

    if pair.target.path is None:
        return False
    try:
        return mtp_layers(gguf.read_card(pair.target.path)) > 0
    except GgufspecError:
        return False


@command_of(ConvertOptions)
def convert(asked: ConvertOptions) -> None:
    """Convert HEAD, an EAGLE-3, DFlash or DSpark head in safetensors, to a GGUF.

    HEAD is a Hub repository (user/repo, user/repo@revision) or a folder. The converter is that of the
    llama.cpp in use. It needs PyTorch, which is installed once with uv, into ggufspec's cache folder; a
    conversion with a known result tests it. Of TARGET, only configuration and tokenizer are downloaded. What
    is downloaded or installed already is not fetched again. On success, the path of the GGUF is printed.

    \b
    ggufspec convert AngelSlim/Qwen3-8B_eagle3 --target Qwen/Qwen3-8B
    ggufspec convert ./head --target ./target --torch torch-2.11.0+cpu-cp312-cp312-linux_x86_64.whl
    """
    made = api.convert(asked, sink=Terminal())
    if made.head is None:
        print_conversion(made, err=False)
        return
    limit = "" if made.head.most is None else f"; draft size at most {made.head.most}"
    echo(f"converted: a head for {made.head.method}{limit}", err=True)
    words = ["ggufspec", "check", "TARGET.gguf", str(made.path)]
    echo(f"check it with the GGUF of its target: {shlex.join(words)}", err=True)
    echo(made.path)


@command_of(SuggestOptions)
def suggest(asked: SuggestOptions) -> None:
    """Find drafters for TARGET: its layers for MTP, heads, and smaller models of the same family.

    TARGET is user/repo:QUANT, user/repo/file.gguf, hf://…, a Hub URL, half of a pair or a local path. Only
    headers are read. Heads (MTP, EAGLE-3, DFlash, DSpark) are found beside the target, as llama.cpp's -hf
    finds them, and in repositories of their own. What llama.cpp refuses is listed last, with the reason.

    \b
    ggufspec suggest Qwen/Qwen3-32B-GGUF:Q4_K_M
    ggufspec suggest llama-3-70b:target --offline -o json
    """
    from ggufspec.redaction import redact
    from ggufspec.report.rows import listing

    drafters = api.suggest(asked, sink=Terminal())
    shown = ("drafter", "method", "size_bytes", "ratio", "downloads", "verdict")
    echo_rows(listing.DrafterRow, drafters, asked.output, *shown)
    for drafter in [drafter for drafter in drafters if not drafter.is_refused][:3]:
        echo(_format_command(redact(asked.target), drafter), err=True)


def _format_command(target: str, drafter: SuggestedDrafter) -> str:
    """Return the commands that fetch a drafter with its target and measure it."""
    fetch = f"ggufspec fetch --target {target}"
    if drafter.in_target:
        return f"{fetch} && ggufspec bench --method {drafter.method.value}"
    return f"{fetch} --draft-model {drafter.name} && ggufspec bench"


@command_of(CheckOptions)
def check(asked: CheckOptions) -> None:
    """Check whether llama.cpp accepts DRAFTER for TARGET; if not, print the reason and what would help.

    Both are files, user/repo:QUANT or halves of a pair (demo:target), also as -m and -md. DRAFTER is a draft
    model or a head (MTP, EAGLE-3, DFlash, DSpark). TARGET alone is a pair, or a model whose layers for MTP
    draft; without any, it is the pair fetched last. Only headers are read. The rule is that of the installed
    llama.cpp, or of the newest if none is installed. The exit code 7 means refused.

    With --run, both run. The reference is llama.cpp's library on the processor: of each token of the target's
    text it says whether the drafter has it right. The llama.cpp in use, or that of --llama, then drafts with
    llama-server, and its rounds are compared with what the reference foretells, up to near-ties. The verdict
    is "works", "hard text", "broken file" (the reference, too, is at chance) or "broken kernel or build" (the
    reference works), with the draft size from which on it is; the exit code 43 means broken.

    \b
    ggufspec check llama-3-70b
    ggufspec check big.gguf small.gguf --build 2697
    ggufspec check big.gguf eagle3.gguf --run --llama new/build/bin
    """
    if asked.run:
        with usage_errors():
            examined = api.examine(asked, sink=Terminal())
        if asked.output == "json":
            echo_json(_format_examined(examined))
        else:
            echo(_describe_examined(examined), nl=False)
        examined.raise_if_broken()
        return
    with usage_errors():
        checked = api.check(asked)
    if asked.output == "json":
        echo_json(_format_check(checked))
    else:
        echo(_describe_check(checked))
    checked.raise_if_refused()


def _describe_examined(examined: ExaminedDrafter) -> str:
    from ggufspec.doctor.drafters import count_rounds

    guesses, runs = examined.guesses, examined.agreements
    lines = [f"{examined.verdict.value}: {examined.reasons[0]}", *examined.reasons[1:]]
    right = f"{guesses.right:,} of {guesses.tokens:,} tokens right"
    sure = f"{guesses.sure_right:,} of {guesses.sure:,} that the target is sure of"
    lines.append(f"reference  {right}; {sure}")
    compared, differing = count_rounds(runs)
    if compared:
        drafted = sum(run.drafted for run in runs)
        accepted, foretold = (sum(run.accepted for run in runs), sum(run.foretold for run in runs))
        rates = (
            f"accepted {format_percent(accepted / drafted)}, foretold {format_percent(foretold / drafted)}"
        )
        lines.append(f"examined   {compared - differing:,} of {compared:,} rounds as foretold; {rates}")
    return "".join(f"{line}\n" for line in lines)


def _format_examined(examined: ExaminedDrafter) -> dict[str, object]:
    return {
        "verdict": examined.verdict.value,
        "reasons": list(examined.reasons),
        "draft_size": examined.n_max,
        "reference": {"build": examined.reference.version, **asdict(examined.guesses)},
        "examined": {
            "build": examined.examined.version,
            "path": examined.examined.path,
            "prompts": [asdict(run) for run in examined.agreements],
        },
    }


def _describe_rule(checked: CheckedPair) -> str:
    first, last = checked.verdict.rule.first, checked.verdict.rule.last
    return f"{checked.program.value} of builds {first} {'and newer' if last is None else f'to {last}'}"


def _format_check(checked: CheckedPair) -> dict[str, object]:
    verdict = checked.verdict
    return {
        "outcome": verdict.outcome.value,
        "decided_as": _describe_rule(checked),
        **{
            role: {
                "architecture": card.architecture,
                "quant": card.quant,
                "tokenizer": card.tokenizer_model,
                "tokens": card.vocabulary.n_tokens,
            }
            for role, card in (("target", checked.target), ("drafter", checked.drafter))
        },
        "reasons": list(verdict.reasons),
        "helps": list(verdict.helps),
        "n_differences": verdict.n_differences,
        "differences": [
            {"id": token.id, "target": token.target, "drafter": token.draft} for token in verdict.differences
        ],
    }


def _describe_check(checked: CheckedPair) -> str:
    verdict = checked.verdict
    lines = [f"{verdict.outcome.value} ({_describe_rule(checked)})"]
    for role, card in (("target", checked.target), ("drafter", checked.drafter)):
        model = f"{card.architecture} {card.described_quant}".rstrip()
        lines.append(f"{role:<8} {model}, {card.vocabulary.n_tokens} tokens ({card.tokenizer_model})")
    lines += [f"because  {reason}" for reason in verdict.reasons]
    lines += [
        f"         token {token.id}: {token.target!r} and {token.draft!r}" for token in verdict.differences
    ]
    lines += [f"help     {advice}" for advice in verdict.helps]
    return "\n".join(lines)
