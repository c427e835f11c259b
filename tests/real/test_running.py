"""Real llama-servers that run already, with and without the embedded drafter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

import ggufspec
from ggufspec.analysis import arms
from ggufspec.domain import Drafting, ModelFile, Offload, Prompt, Role, RunSpec, Status
from ggufspec.llama import server
from ggufspec.llama.command import commands
from ggufspec.llama.install.installs import Install
from ggufspec.llama.server import launching
from ggufspec.modelfiles import catalog, hub
from ggufspec.options import BenchOptions
from tests.support import embedded


def _spec() -> RunSpec:
    return RunSpec(
        pair=hub.resolve(catalog.find_pair("demo"), offline=True),
        role=Role.DRAFTING,
        prompt=Prompt(id="", text=""),
        n_predict=24,
        context=512,
        threads=1,
        offload=Offload().on_processor,
        drafting=Drafting(n_max=3),
    )


@pytest.fixture
def servers(llama: Install) -> Iterator[tuple[str, str]]:
    """The addresses of a server with the target alone, and of one that drafts."""
    with ExitStack() as stack:
        urls = []
        for spec in (_spec().baseline, _spec()):
            port = next(launching.find_free_ports(18080))
            argv = commands.serving_argv(spec, llama, slots=2, port=port)
            stack.callback(launching.start_printed(argv, port=port, timeout_s=120).close)
            urls.append(f"http://127.0.0.1:{port}")
        yield urls[0], urls[1]


def test_running_servers_are_measured_as_they_describe_themselves(
    llama: Install, servers: tuple[str, str]
) -> None:
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
    assert drafted.acceptance is not None
    assert drafted.acceptance.n_accepted > 0
    assert target.acceptance is None
    assert target.spec.model == ModelFile(filename="target.gguf", size_bytes=alone.model_bytes)
    compared = [run.text_identical for run in stored.current if run.spec.role is Role.DRAFTING]
    sure = [
        embedded.sure_text(llama, replace(_spec().baseline, prompt=Prompt(id="p", text=text)))
        for text in asked.prompt
    ]
    assert compared == [True] or (compared == [False] and not all(text.is_whole for text in sure))
