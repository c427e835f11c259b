"""The benches of a fleet on the driver's side: one for each machine, filled by what the machines send."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from ggufspec import paths, results
from ggufspec.domain import RunResult
from ggufspec.errors import ResultsError
from ggufspec.fleet.orders import Preparation, RunStored, TextJudged
from ggufspec.results import Meta, ResultSet
from ggufspec.results import store as stored_benches


def store_copy(name: str, meta: Meta, runs: Iterable[RunResult], add_files: Callable[[Path], object]) -> Path:
    """Store the runs of a bench under a name, and return its folder.

    Args:
        name: of the new bench.
        meta: of the copied bench.
        runs: in the order of measurement.
        add_files: adds its logs and other files to a folder that is empty.

    Raises:
        ResultsError: the name is in use, or the bench cannot be written; nothing is stored then.
        DiskFullError: the disk is full.
    """
    folder = paths.runs_dir() / name
    if folder.exists():
        raise ResultsError(f"the bench {name} already exists", "choose another name for the fleet")
    draft = folder.with_name(f".{name}-{secrets.token_hex(4)}")
    try:
        with results.disk(draft):
            draft.mkdir(parents=True)
            add_files(draft)
        results.write_bench(draft, replace(meta, id=name, number=stored_benches.next_number()), runs)
        with results.disk(folder):
            draft.rename(folder)
            paths.sync(folder.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


@dataclass(kw_only=True)
class FleetBenches:
    """What is stored of each machine, by its id.

    Attributes:
        fleet: the name of the fleet, with which the names of its benches begin.
        command: the command line that asked for it.
        resumes: whether benches that are stored already are continued.
    """

    fleet: str
    command: tuple[str, ...]
    resumes: bool
    _stores: dict[str, ResultSet] = field(default_factory=dict, init=False)

    def name(self, machine: str) -> str:
        """Return the name of a machine's bench."""
        return f"{self.fleet}.{machine}"

    def open(self, preparation: Preparation) -> None:
        """Open the bench of a machine, unless it is open.

        Raises:
            ResultsError: it cannot be continued, for example because the machine's llama.cpp is another one.
        """
        machine, meta = preparation.machine_id, preparation.meta
        if machine in self._stores:
            return
        name = self.name(machine)
        if self.resumes and name in results.ids():
            self._stores[machine] = results.reopen(name, build=meta.build, machine=meta.machine)
            return
        self._stores[machine] = results.create(
            engine=meta.engine,
            command=self.command,
            build=meta.build,
            machine=meta.machine,
            doubts=meta.doubts,
            name=name,
            files=meta.files,
            environment=meta.environment,
            builds=meta.builds,
            software=meta.software,
            suite_sha256=meta.suite_sha256,
            stopping=meta.stopping,
        )

    def of(self, machine: str) -> ResultSet:
        """Return what is stored of a machine."""
        return self._stores[machine]

    def append(self, machine: str, stored: RunStored) -> bool:
        """Store a run with its logs; False if it is there, because another node of the machine sent it."""
        store = self._stores[machine]
        if stored.place != len(store.runs):
            return False
        folder = store.folder / "logs"
        with results.disk(folder):
            for name, content in stored.logs.items():
                (folder / Path(name).name).write_bytes(content)
        self._stores[machine] = results.append(store, stored.run)
        return True

    def judge(self, machine: str, judged: TextJudged) -> None:
        """Store what was judged of a run's text, unless that is stored."""
        store = self._stores[machine]
        logs = store.runs.column("log")
        number = next((number for number in reversed(range(len(logs))) if logs[number] == judged.log), None)
        if number is None:
            return
        run = store.runs[number]
        if (run.text_identical, run.difference, run.audit) != judged[1:]:
            changed = replace(
                run, text_identical=judged.text_identical, difference=judged.difference, audit=judged.audit
            )
            self._stores[machine] = results.judge(store, changed)

    def complete(self) -> None:
        """Note that the benches have all their runs."""
        for machine, store in self._stores.items():
            results.confirm(store)
            self._stores[machine] = results.amend(store, planned_runs=len(store.current))

    def close(self) -> None:
        """Let others write to the benches."""
        for store in self._stores.values():
            results.close(store)
