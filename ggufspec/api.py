"""The whole bench as one call, for notebooks and scripts; the command line makes the same steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ggufspec import doubts, machine, measuring, results
from ggufspec.errors import ResultsError
from ggufspec.request import Request, Session, prepare
from ggufspec.results import ResultSet


def bench(request: Request | None = None, **options: Any) -> ResultSet:
    """Measure target alone, drafter alone and drafting, as ``ggufspec bench`` and ``ggufspec sweep`` do.

    Args:
        request: what to measure; without it, ``options`` are its fields, e.g. ``draft=(3, 5), ngl=45``.
        **options: fields of Request; tuples are axes.

    Returns:
        The runs, already stored; ``ggufspec.load(results.meta.id)`` reads them again.

    Raises:
        GgufspecError: something cannot work, said before any model is loaded; failing runs are rows instead.
    """
    asked = request or Request(**options)
    session = prepare(asked)
    store = begin(session, command=("ggufspec.bench", repr(asked)))
    with session.engine:
        *_, finished = measuring.record(
            session.suite, session.engine, session.install, store, render=session.render
        )
    return finished


def look_around(session: Session) -> dict[str, str]:
    """Return the named warnings about this machine as it is now, with advice; takes 0.3 s."""
    threads = max(arm.threads for block in session.suite.blocks for arm in block.arms)
    here = machine.snapshot(session.install.devices)
    return doubts.advise(doubts.before(here, threads=threads, busy_cores=machine.busy_cores()))


def begin(
    session: Session,
    *,
    command: tuple[str, ...],
    name: str | None = None,
    resume: str | None = None,
    warnings: Mapping[str, str] | None = None,
) -> ResultSet:
    """Open the store of a bench: a new one, under its own or a given name, or one that was cut off.

    Args:
        session: what is going to be measured.
        command: the command line that asked for it, stored with the results.
        name: what to call a new bench.
        resume: the name or id of a stored one to go on with.
        warnings: what ``look_around`` has found; None looks now.

    Raises:
        ResultsError: no such bench, one that another process writes to, or one of another build or machine.
    """
    here = machine.snapshot(session.install.devices)
    build = session.install.describe()
    if resume is not None:
        store = results.reopen(resume, build=build, machine=here)
        try:
            _refuse_mixture(session, store)
        except ResultsError:
            results.close(store)
            raise
        return store
    found: list[doubts.Doubt] = []
    if session.suite.repeats < 2:
        found.append(doubts.Doubt.FEW_REPEATS)
    if any(note.startswith("memory:") for note in session.notes):
        found.append(doubts.Doubt.MEMORY_TIGHT)
    return results.create(
        engine=session.engine.name,
        command=command,
        build=build,
        machine=here,
        doubts={**(look_around(session) if warnings is None else warnings), **doubts.advise(found)},
        name=name,
        planned_runs=session.suite.n_runs,
    )


def _refuse_mixture(session: Session, store: ResultSet) -> None:
    """Raise where new runs would stand beside stored ones that they cannot be compared with."""
    name, meta, specs = store.meta.id, store.meta, store.runs.specs
    if session.engine.name != meta.engine:
        raise ResultsError(
            f"the bench {name} was begun with the engine {meta.engine}, not {session.engine.name}",
            f"resume it with --engine {meta.engine}, or start a new one",
        )
    contexts, context = {spec.context for spec in specs}, session.suite.blocks[0].arms[0].context
    if contexts and context not in contexts:
        raise ResultsError(
            f"the bench {name} was begun with a context of {max(contexts)} tokens, not {context}",
            f"resume it with --ctx {max(contexts)} if that is enough, or start a new one",
        )
    texts = {spec.prompt.id: spec.prompt.text for spec in specs}
    for prompt in (*session.suite.prompts, *session.suite.warmup_prompts):
        if texts.get(prompt.id, prompt.text) != prompt.text:
            raise ResultsError(
                f"prompt {prompt.id} has another text in the bench {name}",
                "give the same prompts in the same order, new ones last, or start a new bench",
            )
