"""A tuning whose result is known from the start."""

from __future__ import annotations

from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest

from ggufspec.llama.install import Install
from ggufspec.measure import NO_DEADLINE, Session, api
from ggufspec.tuning import Tuned, launching, looking, running


def simulate_tuning(
    monkeypatch: pytest.MonkeyPatch,
    tuned: Tuned,
    install: Install,
    serve: Callable[[Tuned], Tuned] = lambda tuned: tuned,
) -> None:
    """Let the steps of a tuning come to this result at once; all that is printed is real."""
    engine: Any = SimpleNamespace(name=tuned.results.meta.engine)
    nothing: Any = None
    session = Session(name="tuned", suite=nothing, engine=engine, llama=install, render=None, notes=())
    plan = SimpleNamespace(session=session, deadline=NO_DEADLINE, mixture=None, simulated=None, launches=True)

    def finished(value: object) -> Generator[None, None, object]:
        yield from ()
        return value

    for name, step in {
        "prepare_tuning": lambda request, deadline, **_: plan,
        "identify": lambda plan: plan,
        "unread_files": lambda session: {},
        "measure_finalists": lambda plan, outlook: finished(tuned),
    }.items():
        monkeypatch.setattr(running, name, step)
    forecast = lambda plan: finished(tuned.outlook)  # noqa: E731
    monkeypatch.setattr(looking, "forecast_configurations", forecast)
    monkeypatch.setattr(launching, "serve", lambda plan, tuned: serve(tuned))
    monkeypatch.setattr(api, "check_machine", lambda session, sink: None)
