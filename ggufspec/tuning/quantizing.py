"""Other quantizations of a drafter, as further drafters to choose from; made once, and kept."""

from __future__ import annotations

import hashlib
import re

from ggufspec import machine, paths
from ggufspec.domain import ModelFile
from ggufspec.errors import GgufspecError
from ggufspec.llama.command import tools
from ggufspec.llama.install import Install
from ggufspec.measure import find_drafters, identity
from ggufspec.modelfiles import gguf
from ggufspec.options import TuneOptions

_NAMED = re.compile(r"[-.](?:I?Q\d\w*|BF16|F16|F32)$", re.IGNORECASE)


def add_quantized(asked: TuneOptions, install: Install) -> tuple[TuneOptions, tuple[str, ...]]:
    """Return options with further drafters, and notes on where they come from.

    A drafter is made from each of the drafters, in each quantization that has fewer bits than its own.

    Args:
        asked: names the drafters, or a pair that has one, and the quantizations.
        install: its llama-quantize makes them.

    Raises:
        NoInstallError: the install lacks llama-quantize.
        GgufspecError: there is no drafter, or it cannot be quantized so.
    """
    if not asked.quantize_drafter:
        return asked, ()
    drafters = find_drafters(asked)
    if not drafters:
        raise GgufspecError("there is no drafter to quantize", "name one with --draft-model")
    made: list[ModelFile] = []
    notes = []
    for drafter in drafters:
        assert drafter.path is not None
        own_quant = gguf.read_card(drafter.path).quant
        for quant in asked.quantize_drafter:
            if own_quant is not None and (quant == own_quant or _bits(quant) > _bits(own_quant)):
                notes.append(
                    f"drafters: {drafter.filename} is {own_quant}, so {quant} of it would add nothing"
                )
                continue
            made.append(_quantize_drafter(drafter, quant, install))
            quantized = made[-1].path
            assert quantized is not None
            card = gguf.read_card(quantized)
            notes.append(
                f"drafters: {made[-1].filename} was made from {drafter.filename} by llama-quantize"
                + (f"; it is {card.described_quant}" if card.described_quant != card.quant else "")
            )
    return asked.replace(draft_model=(*drafters, *made)), tuple(notes)


def _quantize_drafter(drafter: ModelFile, quant: str, install: Install) -> ModelFile:
    """Return a drafter in another quantization; it is made unless the same llama.cpp made it before."""
    assert drafter.path is not None
    parts = identity.of_models([drafter])[drafter]
    build = install.describe()
    facts = (*(part.sha256 for part in parts), quant, str(build.version), str(build.commit))
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    stem = _NAMED.sub("", drafter.path.stem)
    out = paths.quantized_dir() / key / f"{stem}-{quant}.gguf"
    if not out.is_file():
        try:
            tools.quantize(install, drafter.path, quant, out, threads=machine.usable_cores())
        except OSError as error:
            raise GgufspecError(
                f"cannot write {out}: {error.strerror}", "free some disk space, or set GGUFSPEC_CACHE"
            ) from error
    return ModelFile(filename=out.name, path=out, quant=quant)


def _bits(quant: str) -> int:
    """Return the bits of a weight that the name of a quantization states."""
    number = re.search(r"\d+", quant)
    return int(number[0]) if number else 0
