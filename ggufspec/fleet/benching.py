"""What a machine of a fleet does: prepare the request for itself, and measure one block after another.

Runs are stored on the machine first, in a bench of its own below <data>/node, and sent to the driver as they
come. So nothing that was measured is measured again when the driver or the connection was lost.
"""

from __future__ import annotations

import glob
import os
import pickle
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from filelock import lock_descriptor

from ggufspec import doctor, machine, measure, paths, results, temporary, tuning
from ggufspec.domain import RunResult
from ggufspec.errors import ConsentNeededError, GgufspecError
from ggufspec.fleet import orders
from ggufspec.fleet.journal import block_key
from ggufspec.llama import build
from ggufspec.llama.install import installs
from ggufspec.measure import Session, api, identify, models, runplan
from ggufspec.modelfiles import hub
from ggufspec.options import BenchOptions, BuildOptions, RunOptions, TuneOptions
from ggufspec.results import Meta, ResultSet, Runs
from ggufspec.units import format_bytes

HOST_LOCK = Path("/tmp/ggufspec-fleet.lock")  # noqa: S108  # not TMPDIR, which may differ between users
"""The file that is locked while a block is measured; containers of a host share it if they share /tmp."""

_POLL_S = 0.5


@contextmanager
def hold_host(file: Path = HOST_LOCK) -> Iterator[float]:
    """Wait until nothing else is measured on this host, and keep it so; yield the seconds of waiting.

    The lock ends with the block or with the process.

    Raises:
        OSError: the file cannot be made or opened.
    """
    descriptor = _open(file)
    try:
        started = time.monotonic()
        while not lock_descriptor(descriptor, blocking=False):
            time.sleep(_POLL_S)
        yield time.monotonic() - started
    finally:
        os.close(descriptor)


def _open(file: Path) -> int:
    """Return a descriptor of a file that all users may lock.

    A file that is there is opened without O_CREAT: in a folder such as /tmp, Linux refuses to "create" the
    files of other users (fs.protected_regular).
    """
    try:
        return os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        pass
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except FileExistsError:  # between the two calls
        return os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    os.fchmod(descriptor, 0o666)  # whatever the umask: the lock is for every user
    return descriptor


T = TypeVar("T", bound=RunOptions)

MOST_BYTES = 10_000_000_000
"""The size of a download above which the driver's --yes is needed."""


def list_software() -> dict[str, str]:
    """Return the versions that the driver and all machines of a fleet must share."""
    versions = {
        "ggufspec": metadata.version("ggufspec"),
        "Python": ".".join(platform.python_version_tuple()[:2]),
    }
    with suppress(metadata.PackageNotFoundError):
        versions["Ray"] = metadata.version("ray")
    return versions


@dataclass(kw_only=True)
class Bencher:
    """Measures blocks on this machine.

    Attributes:
        order: what to measure, pickled: it is read only once the versions agree.
        software: the driver's ``list_software``.
        moves_data: whether results are stored beside the user's own; a driver may be on the same machine.
        lock: the file that is locked while a block is measured.
        unset: variables that are removed if they have these values, because llama.cpp would inherit them.
    """

    order: bytes
    software: Mapping[str, str]
    moves_data: bool = True
    lock: Path = HOST_LOCK
    unset: Mapping[str, str] = field(default_factory=dict)
    _session: Session | None = field(default=None, init=False)
    _known: runplan.Experience | None = field(default=None, init=False)
    _bench: str = field(default="", init=False)
    _keys: tuple[str, ...] = field(default=(), init=False)
    _command: tuple[str, ...] = field(default=(), init=False)
    _plans: bool = field(default=False, init=False)

    def prepare(self) -> Iterator[orders.Message]:
        """Yield what is measured here once all that it needs is on this machine, or why it cannot be.

        Downloads, builds and checksums wait for blocks of other nodes on this host: they would disturb them.
        """
        yield from self._answer(lambda: self._alone(self._prepare))

    def examine(self) -> Iterator[orders.Message]:
        """Yield what ``ggufspec doctor`` finds on this machine; nothing is changed."""
        yield orders.Examined(doctor.examine(), list_software())

    def tune(self) -> Iterator[orders.Message]:
        """Yield the configuration that is fastest on this machine, or why none was found."""
        yield from self._answer(lambda: self._alone(self._tune))

    def measure(self, block: int, n_known: int, last_log: str | None) -> Iterator[orders.Message]:
        """Measure a block, and yield its runs as they come, then what is known of all its texts.

        Args:
            block: its number.
            n_known: how many runs of this machine's bench the driver has.
            last_log: the log of the last one of these.
        """
        yield from self._answer(lambda: self._measure(block, n_known, last_log))

    def restore(self, meta: Meta, runs: tuple[RunResult, ...]) -> Iterator[orders.Message]:
        """Store the runs that the driver has of this machine, in place of those that were lost here.

        Args:
            meta: of the bench.
            runs: in the order of measurement.
        """
        yield from self._answer(lambda: self._restore(meta, runs))

    def _answer(self, work: Callable[[], Iterable[orders.Message]]) -> Iterator[orders.Message]:
        """Yield the messages of some work, or why it failed."""
        for name, value in self.unset.items():  # Ray sets them again before each call
            if os.environ.get(name) == value:
                del os.environ[name]
        try:
            yield from work()
        except (GgufspecError, OSError) as error:
            yield orders.OrderFailure(reason=_describe(error))

    def _alone(self, work: Callable[[], orders.Message]) -> Iterator[orders.Message]:
        """Yield the message of work that is done while nothing else is measured on this host."""
        with hold_host(self.lock):
            message = work()
        yield message

    def _restore(self, meta: Meta, runs: tuple[RunResult, ...]) -> Iterator[orders.Message]:
        folder = paths.runs_dir() / self._bench
        if folder.exists():
            results.delete(self._bench)
        (folder / "logs").mkdir(parents=True)
        results.write_bench(folder, replace(meta, id=self._bench), runs)
        yield self._describe_plan()

    def _open_order(self) -> orders.Order:
        """Return the order.

        Raises:
            GgufspecError: this machine has other versions than the driver.
        """
        here = list_software()
        for name, version in self.software.items():
            if here.get(name) != version:
                version_here = f"{name} {here[name]}" if name in here else f"no {name}"
                raise GgufspecError(
                    f"it has {version_here}, and the driver has {version}", "install the same version"
                )
        order: orders.Order = pickle.loads(self.order)  # noqa: S301  # from the driver, which may run anything here
        return order

    def _separate_results(self) -> None:
        """Store results in a place of their own from here on."""
        if self.moves_data:
            os.environ["GGUFSPEC_DATA"] = str(paths.data_dir() / "node")
            self.moves_data = False

    def _tune(self) -> orders.TunedHere:
        """Return the configuration that is fastest here, with its bench.

        Raises:
            GgufspecError: there is none, or nothing can be tuned.
        """
        order = self._open_order()
        self._separate_results()
        _build_missing(order)
        with temporary.folder() as folder:
            asked = orders.unpack_texts(order, Path(folder))
            assert isinstance(asked, TuneOptions), "the order is to measure blocks"
            tuned = tuning.tune(_fetch(asked, order))
        bench = results.load(tuned.results.meta.id)
        logs = sorted((bench.folder / "logs").iterdir())
        return orders.TunedHere(
            meta=bench.meta,
            runs=tuple(bench.runs),
            configuration=results.read_configuration(bench.meta.id),
            logs={file.name: file.read_bytes() for file in logs if file.is_file()},
        )

    def _prepare(self) -> orders.Preparation:
        """Return what is measured here.

        Raises:
            GgufspecError: it cannot be.
        """
        order = self._open_order()
        self._known = runplan.experience()  # of the user's own benches
        self._separate_results()
        _build_missing(order)
        with temporary.folder() as folder:
            asked = orders.unpack_texts(order, Path(folder))
            assert isinstance(asked, BenchOptions), "the order is to tune"
            session = identify(api.prepare(_fetch(asked, order)))
        self._session = replace(session, suite=replace(session.suite, max_time_s=None))
        self._keys = tuple(block_key(block.arms[0]) for block in session.suite.blocks)
        self._bench = f"{order.id}.{orders.identify_machine(machine.snapshot(session.devices))}"
        self._command, self._plans = order.command, order.plans
        return self._describe_plan()

    def _describe_plan(self) -> orders.Preparation:
        session = self._prepared
        assert self._known is not None, "prepare first"
        expected = runplan.expect(session.suite, self._known)
        return orders.Preparation(
            meta=self._describe_bench(session),
            keys=self._keys,
            expected_s=tuple(sum(expected[arm] for arm in block.arms) for block in session.suite.blocks),
            notes=session.notes,
        )

    def _describe_bench(self, session: Session) -> Meta:
        """Return the Meta of this machine's bench, which is opened for it; without one for a mere plan."""
        if self._plans:
            return Meta(
                id=self._bench,
                started_at="",
                engine=session.engine.name,
                command=self._command,
                build=session.build,
                machine=machine.snapshot(session.devices),
                files=session.files,
                builds={name: install.describe() for name, install in session.builds.items()},
            )
        store = self._open(session)
        results.close(store)
        return store.meta

    def _measure(self, number: int, n_known: int, last_log: str | None) -> Iterator[orders.Message]:
        session = self._prepared
        suite = replace(session.suite, blocks=(session.suite.blocks[number],))
        session = replace(session, suite=suite)
        with hold_host(self.lock) as waited_s:
            store = opened = self._open(session)
            runs = opened.runs
            if n_known and (len(runs) < n_known or runs[n_known - 1].log != last_log):
                results.close(opened)
                yield orders.RunsMissing(self._bench)
                return
            n_sent = n_known
            try:
                for store in api.record(session, opened):
                    for index in range(n_sent, len(store.runs)):
                        yield orders.RunStored(index, store.runs[index], _read_logs(store, index))
                    n_sent = max(n_sent, len(store.runs))
            finally:
                session.engine.close()
            yield from _list_judgements(store.runs, n_known, self._keys[number])
            yield orders.BlockMeasured(number, waited_s)

    @property
    def _prepared(self) -> Session:
        assert self._session is not None, "prepare first"
        return self._session

    def _open(self, session: Session) -> ResultSet:
        """Open this machine's bench of the fleet, new or begun before."""
        begun = self._bench in results.ids()
        return api.begin(
            session,
            command=self._command,
            name=None if begun else self._bench,
            resume=self._bench if begun else None,
        )


def _build_missing(order: orders.Order) -> None:
    """Build llama.cpp where there is none, if the order says so.

    Raises:
        GgufspecError: it cannot be built.
    """
    is_named = order.request.llamas != (None,)
    if order.request.build_missing and not (order.plans or is_named or installs.is_any_found()):
        build.build(BuildOptions())


def _fetch(asked: T, order: orders.Order) -> T:
    """Return a request after downloading the models that it names by reference; a plan downloads nothing.

    Raises:
        NotCachedError: a plan needs a model that is not on this machine.
        ConsentNeededError: the download is large, and the driver was not started with --yes.
        GgufspecError: a model is not found, or cannot be downloaded.
    """
    access = hub.Access.of(asked)
    if order.plans:
        texts = [name for name in models.list_names(asked) if isinstance(name, str)]
        return models.with_models(asked, {text: models.find_model(text, access) for text in texts})
    for survey in measure.survey_models(models.list_names(asked), access).values():
        if survey.missing_bytes > MOST_BYTES and not order.request.yes:
            raise ConsentNeededError(
                f"its download of {format_bytes(survey.missing_bytes)} needs confirmation", "add --yes"
            )
        if survey.missing_bytes:
            hub.check_room(survey)
    return models.with_fetched(asked)


def _read_logs(store: ResultSet, number: int) -> dict[str, bytes]:
    """Return the logs of a run by their names, those of lost attempts included."""
    name = store.runs[number].log
    files = (store.folder / "logs").glob(f"{glob.escape(name)}.*")
    return {file.name: file.read_bytes() for file in sorted(files) if file.is_file()}


def _list_judgements(runs: Runs, n_known: int, key: str) -> Iterator[orders.TextJudged]:
    """Yield what is known of the texts of a block, and of all runs that were made since."""
    for number, run in enumerate(runs):
        judgement = (run.text_identical, run.difference, run.audit)
        if judgement != (None, None, None) and (number >= n_known or block_key(run.spec) == key):
            yield orders.TextJudged(run.log, *judgement)


def _describe(error: GgufspecError | OSError) -> str:
    if isinstance(error, GgufspecError):
        return error.message if error.hint is None else f"{error.message} ({error.hint})"
    return str(error)
