"""What a user asks of a bench, checked before anything runs: Request -> Session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ggufspec import catalog, compat, engines, gguf, hub, machine, prompts
from ggufspec.domain import Layers, ModelFile, Offload, Pair, Program, Prompt, Sampling
from ggufspec.errors import ContextTooSmallError, GgufspecError
from ggufspec.llama import install as installs
from ggufspec.llama import tokens
from ggufspec.sweep import Suite

_CONTEXT_STEP = 256  # llama.cpp pads its key-value cache to this many tokens
_EMBEDDED = "demo"
_OTHER_TEXT = "give the text to continue, e.g. --prompt 'Once upon a time'"


@dataclass(frozen=True, kw_only=True)
class Request:
    """Everything that can be said about a bench, under the names of the command line's options.

    Sampling is greedy unless ``temp`` is positive; ``top_k`` then defaults to llama.cpp's 40. ``ctx`` and
    ``threads`` default to what fits and to the usable physical cores; ``timeout`` is in seconds per run.
    """

    pair: str | None = None
    target: Path | None = None
    draft_model: Path | None = None
    ngl: Layers = "auto"
    ngld: Layers = "auto"
    draft: tuple[int, ...] = (3,)
    n_predict: int = 250
    ctx: int | None = None
    threads: int | None = None
    temp: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 1
    prompt: tuple[str, ...] = ()
    prompt_file: tuple[Path, ...] = ()
    repeats: int = 3
    warmup: int = 1
    timeout: float = 3600.0
    llama: Path | None = None
    engine: str = "binary"


@dataclass(frozen=True, kw_only=True)
class Session:
    """A checked bench, ready to run; ``why`` says how its pair was chosen."""

    suite: Suite
    engine: engines.Engine
    install: installs.Install
    why: str


def prepare(request: Request) -> Session:
    """Turn a request into something that can run.

    Raises:
        GgufspecError: a subclass for each thing that cannot work, before any model is loaded.
    """
    pair, why = _pair(request)
    cards = _cards(pair)
    install = installs.find(request.llama)
    install.executable(Program.PLAIN)
    _check_drafter(cards, install, request.engine)
    suite = Suite(
        pair=pair,
        prompts=(asked := _prompts(request, pair)),
        draft_sizes=request.draft,
        n_predict=request.n_predict,
        context=_context(request, asked, pair, cards, install),
        threads=request.threads or machine.usable_cores(),
        offload=Offload(target_layers=request.ngl, draft_layers=request.ngld),
        sampling=Sampling(
            temperature=request.temp,
            top_k=request.top_k if request.top_k is not None else (40 if request.temp > 0 else 1),
            top_p=request.top_p,
            min_p=request.min_p,
            seed=request.seed,
        ),
        repeats=request.repeats,
        warmups=request.warmup,
    )
    engine = engines.make(request.engine, install, timeout_s=request.timeout)
    return Session(suite=suite, engine=engine, install=install, why=why)


def _pair(request: Request) -> tuple[Pair, str]:
    """Choose the pair: named files, a named pair, the last fetched one, the embedded one."""
    if request.target is not None:
        draft = request.draft_model
        name = request.target.stem if draft is None else f"{request.target.stem} + {draft.stem}"
        files = (request.target, draft)
        target, drafter = (
            None if file is None else ModelFile(filename=file.name, path=file.absolute()) for file in files
        )
        assert target is not None
        return Pair(name=name, target=target, draft=drafter), "as given"
    if request.draft_model is not None:
        raise GgufspecError("a drafter was given without a target", "add --target FILE")
    if request.pair is not None:
        return hub.resolve(catalog.find(request.pair), offline=True), "as named"
    last = hub.last_fetched()
    if last is not None:
        return last, "the last fetched pair"
    return hub.resolve(catalog.find(_EMBEDDED), offline=True), "the embedded pair, as nothing was fetched yet"


def _cards(pair: Pair) -> Mapping[str, gguf.ModelCard]:
    """Read both headers; llama.cpp itself would die of a missing or truncated file."""
    files = {"target": pair.target, "draft": pair.draft}
    return {
        name: gguf.validate_file(file.path) for name, file in files.items() if file is not None and file.path
    }


def _check_drafter(cards: Mapping[str, gguf.ModelCard], install: installs.Install, engine: str) -> None:
    if "draft" not in cards:
        return
    rule = compat.rule_of(install, engines.ENGINES[engine])
    verdict = compat.check(cards["target"], cards["draft"], rule)
    if verdict.outcome is compat.Outcome.REFUSED:
        raise compat.refusal(verdict)


def _prompts(request: Request, pair: Pair) -> tuple[Prompt, ...]:
    """Collect texts and files; without any, the suite that fits the pair."""
    for text in request.prompt:
        if not text.strip():
            raise GgufspecError("a prompt is empty", _OTHER_TEXT)
    given = tuple(Prompt(id=f"p{i}", text=text) for i, text in enumerate(request.prompt, start=1))
    read = tuple(prompt for file in request.prompt_file for prompt in prompts.load(file))
    if not given and not read:
        return prompts.suite(_EMBEDDED if pair.name == _EMBEDDED else "general")
    names = [prompt.id for prompt in (*given, *read)]
    if len(set(names)) < len(names):
        raise GgufspecError("two prompts have the same id", "rename one of the prompt files or ids")
    return (*given, *read)


def _context(
    request: Request,
    asked: tuple[Prompt, ...],
    pair: Pair,
    cards: Mapping[str, gguf.ModelCard],
    install: installs.Install,
) -> int:
    """Choose the context, or check the given one: old builds overrun it in silence.

    A token is at least one byte of text, so a context that holds the bytes, a BOS and the space that some
    vocabularies put first, holds the prompt.
    """
    room = request.n_predict + max(request.draft, default=0) + 2
    longest = max(asked, key=lambda prompt: len(prompt.text.encode()))
    needed = len(longest.text.encode()) + 2 + room
    limit = min((card.context_length for card in cards.values() if card.context_length), default=needed)
    chosen = request.ctx or min(limit, -(-needed // _CONTEXT_STEP) * _CONTEXT_STEP)
    if needed <= chosen:
        return chosen
    for prompt in asked:
        ids = tokens.tokenize(install, str(pair.target.path), prompt.text)
        if ids is not None and len(ids) + room > chosen:
            raise ContextTooSmallError(
                f"prompt {prompt.id} ({len(ids)} tokens) and {request.n_predict} tokens of answer "
                f"do not fit into a context of {chosen}",
                f"use a shorter prompt or a smaller -n; the models allow a context of {limit}",
            )
    return chosen
