"""The benches of a fleet on the driver's side: filled by what machines send, or joined from their copies."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

from ggufspec import paths, results
from ggufspec.analysis import matching
from ggufspec.choices import Where
from ggufspec.domain import Build, RunResult
from ggufspec.errors import ResultsError
from ggufspec.fleet.journal import BlockEnded, MachineJoined, StoredFleet, block_key, create_fleet, new_name
from ggufspec.fleet.orders import Preparation, RunStored, TextJudged, identify_machine
from ggufspec.fleet.scheduling import AttemptEnding
from ggufspec.results import Meta, ResultSet, store as stored_benches


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
        opened = replace(meta, command=self.command, planned_runs=None)
        self._stores[machine] = results.create(opened, name)

    def of(self, machine: str) -> ResultSet:
        """Return what is stored of a machine."""
        return self._stores[machine]

    def append(self, machine: str, stored: RunStored) -> None:
        """Store a run with its logs, unless it is there, because another node of the machine sent it."""
        store = self._stores[machine]
        if stored.place != len(store.runs):
            return
        folder = store.folder / "logs"
        with results.disk(folder):
            for name, content in stored.logs.items():
                (folder / Path(name).name).write_bytes(content)
        self._stores[machine] = results.append(store, stored.run)

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


_LEAST = 2


def merge(benches: Sequence[str], *, name: str | None = None, command: tuple[str, ...] = ()) -> StoredFleet:
    """Store benches of several machines as one fleet; the benches are copied.

    Args:
        benches: ids of stored benches, or the folders of others.
        name: of the fleet; None makes one from the time.
        command: the command line that asked for it.

    Raises:
        ResultsError: a bench cannot be read, or the benches must not be joined; nothing is stored then.
    """
    loaded = [results.load(bench) for bench in benches]
    refuse_mixture(loaded)
    journal = create_fleet(new_name() if name is None else name, command=command, where=Where.EACH)
    fleet = journal.stored.fleet.name
    copies: list[Path] = []
    try:
        for bench in loaded:
            machine = identify_machine(bench.meta.machine)
            copies.append(_copy(bench, f"{fleet}.{machine}"))
            journal.append(
                MachineJoined(machine=machine, hostname=bench.meta.machine.hostname, bench=copies[-1].name),
                *(
                    BlockEnded(
                        pool=machine, block=number, key=key, ending=AttemptEnding.MEASURED, machine=machine
                    )
                    # in the order of their first runs
                    for number, key in enumerate(dict.fromkeys(map(block_key, bench.runs.by_spec()[0])))
                ),
            )
    except BaseException:
        for folder in (*copies, journal.stored.folder):
            shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        journal.close()
    return journal.stored


def refuse_mixture(benches: Sequence[ResultSet]) -> None:
    """Refuse benches whose differences are not those of their machines alone.

    Raises:
        ResultsError: naming two benches and what they do not share, or a bench that is damaged or does not
            say what its models hold.
    """
    if len(benches) < _LEAST:
        raise ResultsError("a fleet has two machines or more", "name a bench of each")
    for bench in benches:
        _refuse_alone(bench)
    with_shared = [(bench, _shared(bench)) for bench in benches]
    for (first, ours), (other, theirs) in combinations(with_shared, 2):
        if identify_machine(first.meta.machine) == identify_machine(other.meta.machine):
            raise _mixture(first, other, "are of the same machine", "sessions of one machine are not pooled")
        for what, value in ours.items():
            if value != theirs.get(what, value):
                raise _mixture(first, other, f"have different {what}", "measure the same in the same way")


def _refuse_alone(bench: ResultSet) -> None:
    name = bench.meta.id
    if bench.damage:
        raise ResultsError(f"the bench {name} is damaged: {bench.damage[0]}", "copy it again")
    if not len(bench.runs):
        raise ResultsError(f"the bench {name} has no runs", "leave it out")
    if any(spec.servers is not None for spec in bench.runs.by_spec()[0]):
        raise ResultsError(
            f"the bench {name} measured a server that ran already", "its machine is not known: leave it out"
        )
    matching.refuse_unknown_models(bench)


def _shared(bench: ResultSet) -> dict[str, object]:
    """Return what benches of one fleet have in common, by its name for people.

    Prompts and models that only one of two benches has are no difference.
    """
    meta, specs = bench.meta, bench.runs.by_spec()[0]
    builds: Sequence[Build] = tuple(meta.builds.values()) or (meta.build,)
    return {
        "engines": meta.engine,
        "versions of llama.cpp": [(build.version, build.commit) for build in builds],
        "stopping rules": meta.stopping,
        "answer lengths (-n)": {spec.n_predict for spec in specs},
        "sampling": {spec.sampling for spec in specs},
        **{f"texts of the prompt {spec.prompt.id}": spec.prompt.content for spec in specs},
        **{
            f"files called {model.filename}": model.content
            for spec in specs
            for model in filter(None, (spec.model, spec.drafter))
        },
    }


def _copy(bench: ResultSet, name: str) -> Path:
    """Store a copy of a bench and its logs under a name; return its folder."""
    return store_copy(
        name,
        bench.meta,
        bench.runs,
        lambda folder: shutil.copytree(bench.folder / "logs", folder / "logs"),
    )


def _mixture(first: ResultSet, other: ResultSet, difference: str, hint: str) -> ResultsError:
    return ResultsError(f"{first.meta.id} and {other.meta.id} {difference}, so they cannot be joined", hint)
