"""Real llama-servers that run already, with and without the embedded drafter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import ggufspec
from ggufspec.analysis import arms
from ggufspec.domain import Drafting, ModelFile, Prompt, Role, RunSpec, Status
from ggufspec.llama import server
from ggufspec.llama.command import commands
from ggufspec.llama.install.installs import Install
from ggufspec.llama.server import launching
from ggufspec.options import BenchOptions
from tests.support import embedded


def _spec() -> RunSpec:
    return embedded.spec(Role.DRAFTING, prompt=Prompt(id="", text=""), n_predict=24)


@contextmanager
def _served(llama: Install, spec: RunSpec, *flags: str) -> Iterator[str]:
    """Serve a specification, and write a line for each round; yield the address."""
    port = next(launching.find_free_ports(18080))
    argv = ("env", "LLAMA_TRACE=1", *commands.serving_argv(spec, llama, slots=2, port=port), *flags)
    with closing(launching.start_printed(argv, port=port, timeout_s=120)):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def servers(llama: Install) -> Iterator[tuple[str, str]]:
    """The addresses of a server with the target alone, and of one that drafts."""
    with _served(llama, _spec().baseline) as alone, _served(llama, _spec()) as drafting:
        yield alone, drafting


def test_servers_are_measured_as_they_describe_themselves(llama: Install, servers: tuple[str, str]) -> None:
    alone, drafting = (server.describe_server(url, None) for url in servers)
    assert (alone.software, alone.drafts, drafting.drafts) == ("llama-server", False, True)
    assert alone.n_params == drafting.n_params
    assert alone.n_params is not None
    assert alone.slots == 2
    assert alone.context is not None
    asked = BenchOptions(
        url=servers[0],
        url_drafting=servers[1],
        parallel=2,
        n_predict=24,
        repeats=1,
        prompt=("Once upon a time there was", "In a small village"),
        timeout=120.0,
    )
    stored = ggufspec.load(ggufspec.bench(asked).meta.id)
    assert [(run.sample.status, run.error) for run in stored.current] == [(Status.OK, None)] * 2
    target, drafted = arms.group(stored)
    assert drafted.acceptance.n_accepted > 0
    assert target.acceptance is None
    assert target.spec.model == ModelFile(filename="target.gguf", size_bytes=alone.model_bytes)
    compared = [run.text_identical for run in stored.current if run.spec.role is Role.DRAFTING]
    sure = [
        embedded.sure_text(llama, replace(_spec().baseline, prompt=Prompt(id="p", text=str(text))))
        for text in asked.prompt
    ]
    assert compared == [True] or (compared == [False] and not all(text.is_whole for text in sure))


@pytest.mark.takes(15)
def test_the_rounds_of_a_running_server_tell_those_of_smaller_drafts(llama: Install, tmp_path: Path) -> None:
    """By its log and by its counters; a server that drafts three tokens shows whether that is so."""
    asked = BenchOptions(
        url_drafting="",
        n_predict=160,
        repeats=1,
        timeout=120.0,
        prompt=tuple(f"{word} was" for word in WORDS),
    )
    log = tmp_path / "server.log"
    eight, three = (replace(_spec(), drafting=Drafting(n_max=size)) for size in (8, 3))
    with _served(llama, eight, "--metrics", "--log-file", str(log)) as url:
        ggufspec.bench(asked.replace(url_drafting=url))
        counted = ggufspec.whatif_served(url=url)
        logged = ggufspec.whatif_served(url=url, server_log=log)
    with _served(llama, three) as url:
        stored = ggufspec.load(ggufspec.bench(asked.replace(url_drafting=url)).meta.id)
    (shown,) = arms.group(stored)
    assert (counted.n_max, logged.n_max) == (8, 8)
    for served in (logged, counted):
        assert not served.has_baseline
        (found,) = [forecast for forecast in served.forecasts if forecast.drafting.n_max == 3]
        assert found.mean_accepted_length == pytest.approx(shown.acceptance.mean_accepted_length, rel=0.05)


WORDS = ("The old man", "A small dog", "In the forest there", "The weather", "Her mother", "On the table")
