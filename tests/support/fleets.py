"""A fleet in one process: nodes with a scripted engine that send one message at a time, and can be lost."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from ggufspec import machine
from ggufspec.choices import Where
from ggufspec.domain import Machine, Prompt, Role
from ggufspec.fleet import Drive, Order, Reply, benching, make_order
from ggufspec.fleet.benching import Bencher, list_software
from ggufspec.fleet.orders import Message
from ggufspec.llama.install.installs import Install
from ggufspec.measure import Block, RunPlan, Session, api
from ggufspec.options import FleetSweepOptions
from ggufspec.results import ResultSet
from tests.support.scripted import INSTALL, Scripted
from tests.support.values import MACHINE, spec

N_BLOCKS = 4
PROMPTS = (Prompt(id="p1", text="one"), Prompt(id="p2", text="two"))


def plan(n_blocks: int = N_BLOCKS) -> RunPlan:
    """Return a plan with a block for each number of threads: target, drafter alone, and two draft sizes."""
    blocks = []
    for threads in range(1, n_blocks + 1):
        arms = (spec(Role.TARGET), spec(Role.DRAFTER), *(spec(Role.DRAFTING, draft=size) for size in (2, 4)))
        blocks.append(Block(arms=tuple(replace(arm, threads=threads, prompt=NO) for arm in arms)))
    return RunPlan(blocks=tuple(blocks), prompts=PROMPTS, repeats=2, warmups=1)


NO = Prompt(id="", text="")


@dataclass(kw_only=True)
class FakeNode:
    """A node: its host, what it measures with, and after how many messages it is lost.

    One that does not prepare is busy with that for ever.
    """

    host: str
    hardware: str = "A Processor"
    install: Install = INSTALL
    engine: Scripted = field(default_factory=Scripted)
    lost_after: int | None = None
    software: Mapping[str, str] = field(default_factory=list_software)
    n_blocks: int = N_BLOCKS
    prepares: bool = True
    bencher: Bencher | None = None
    stream: Iterator[Message] | None = None
    n_sent: int = 0

    @property
    def machine(self) -> Machine:
        """The machine that the node is on."""
        return replace(MACHINE, hostname=self.host, cpu=self.hardware)

    @property
    def session(self) -> Session:
        """What it measures."""
        return Session(
            name="tiny",
            suite=plan(self.n_blocks),
            engine=self.engine,
            llama=self.install,
            render=None,
            notes=(),
            files=(),
        )


@dataclass(kw_only=True)
class FakeCluster:
    """Nodes of which each sends one message at a time, in turn; ``later`` join after so many rounds."""

    root: Path
    monkeypatch: pytest.MonkeyPatch
    nodes: dict[str, FakeNode]
    later: dict[str, int] = field(default_factory=dict)
    n_rounds: int = 0
    lost: set[str] = field(default_factory=set)

    def list_nodes(self) -> Mapping[str, str]:
        """Return the nodes that are there."""
        return {
            name: node.host
            for name, node in self.nodes.items()
            if name not in self.lost and self.later.get(name, 0) <= self.n_rounds
        }

    def start(self, node: str, order: Order | None) -> None:
        """Prepare a node."""
        here = self.nodes[node]
        if not here.prepares:
            return
        folder = self.root / here.host
        folder.mkdir(parents=True, exist_ok=True)
        here.bencher = Bencher(
            order=pickle.dumps(order), software=here.software, moves_data=False, lock=folder / "lock"
        )
        if order is not None and order.tunes:
            here.stream = here.bencher.tune()
        else:
            here.stream = here.bencher.prepare() if order is not None else here.bencher.examine()

    def measure(self, node: str, block: int, n_known: int, last_log: str | None) -> None:
        """Let a node measure."""
        here = self.nodes[node]
        here.stream = here.bencher.measure(block, n_known, last_log)

    def restore(self, node: str, bench: ResultSet) -> None:
        """Give a node its runs back."""
        here = self.nodes[node]
        here.stream = here.bencher.restore(replace(bench.meta), tuple(bench.runs))

    def wait(self, timeout_s: float) -> list[Reply]:
        """Return the next message of each node."""
        self.n_rounds += 1
        replies = []
        for name, node in self.nodes.items():
            if node.stream is None or name in self.lost:
                continue
            if node.lost_after is not None and node.n_sent >= node.lost_after:
                self.lose(name)
                replies.append(Reply(name, None, "the node died"))
                continue
            with self.on(node):
                message = next(node.stream, None)
            if message is None:
                node.stream = None
            else:
                node.n_sent += 1
                replies.append(Reply(name, pickle.loads(pickle.dumps(message))))  # as over a network
        return replies

    def lose(self, name: str) -> None:
        """Kill a node."""
        node = self.nodes[name]
        self.lost.add(name)
        with self.on(node):
            if node.stream is not None:
                node.stream.close()  # type: ignore[attr-defined]  # every stream is a generator
            node.stream = None

    def kill_all(self) -> None:
        """Kill every node, as Ray does when the driver dies."""
        for name in self.nodes:
            self.lose(name)

    @contextmanager
    def on(self, node: FakeNode) -> Iterator[None]:
        """Be on a node: its results, its machine, its session."""
        before = os.environ["GGUFSPEC_DATA"]
        with self.monkeypatch.context() as patch:
            patch.setattr(machine, "snapshot", lambda _=(): node.machine)
            patch.setattr(api, "prepare", lambda _: node.session)
            patch.setattr(benching, "identify", lambda session: session)
            os.environ["GGUFSPEC_DATA"] = str(self.root / node.host)
            try:
                yield
            finally:
                os.environ["GGUFSPEC_DATA"] = before


def order(name: str = "nightly") -> Order:
    """An order without models to fetch."""
    return make_order(name, FleetSweepOptions(), command=("ggufspec", "fleet", "sweep"))


def drive(
    cluster: FakeCluster, where: Where = Where.SAME, *, resumes: bool = False, patience_s: float = 0.0
) -> list[tuple[str, ...]]:
    """Run a fleet to its end."""
    return list(
        Drive(cluster=cluster, order=order(), where=where, resumes=resumes, patience_s=patience_s).run()
    )
