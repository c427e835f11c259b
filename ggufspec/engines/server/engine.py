"""The engine ``server``: llama-server over HTTP. Models are loaded once and measured on many prompts."""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TextIO

from ggufspec.domain import (
    IMAGE,
    NO_PROMPT,
    Asking,
    Failure,
    Method,
    MethodCounts,
    Pair,
    Program,
    Role,
    RunSpec,
    Sample,
    Sampling,
    Status,
    Traffic,
)
from ggufspec.engines.engine import LoadingEngine, Measurement, read_log, with_placement
from ggufspec.engines.server import response
from ggufspec.engines.server.capabilities import (
    Capabilities,
    distract_drafter,
    erase_slot,
    fix_first_state,
    probe,
    read_history,
)
from ggufspec.engines.server.response import body, note, send
from ggufspec.llama.command import LEARNING_METHODS, type_name
from ggufspec.llama.logs import parsing
from ggufspec.llama.server import Server, endpoints, readable_argv, start

_SUMMARY = b"total time ="  # in every era, the last line about a request


@dataclass(kw_only=True)
class LoadedServer:
    """A server with its models loaded.

    Attributes:
        load: the build and the placement of the models, from its log.
        most: the most tokens that its head drafts in a round; None if the head did not lower γ.
    """

    server: Server
    argv: tuple[str, ...]
    load: Sample
    most: int | None
    capabilities: Capabilities | None  # None if nothing drafts
    number: int  # of the engine's load, from 0
    runs: int = 0
    gives_zeros: bool = False  # to its drafter, for images
    by_method: tuple[MethodCounts, ...] = ()  # of a chain: the totals of all requests so far
    last: RunSpec | None = None  # what its slot answered last, if that was a turn of a conversation
    last_tokens: int = 0  # of the prompt of that turn

    def goes_on(self, spec: RunSpec) -> bool:
        """Whether its slot answered the turn before last, for the same arm."""
        before = spec.prompt.turn_before
        if self.last is None or not spec.prompt.history or before != self.last.prompt.id:
            return False
        return replace(self.last, prompt=spec.prompt) == spec

    @property
    def is_usable(self) -> bool:
        """Whether the server still runs."""
        return self.server.is_alive

    def close(self) -> None:
        """End the server."""
        self.server.close()


def load_of(spec: RunSpec) -> RunSpec:
    """Return a run's specification without prompt, length and sampling; equal ones share a server.

    A drafter alone is loaded like a target, and a target alone without a drafter.
    """
    if spec.role is Role.DRAFTING:
        pair, role, offload = replace(spec.pair, name=""), Role.DRAFTING, spec.offload
    else:
        pair, role = Pair(name="", target=spec.model), Role.TARGET
        offload = spec.own_offload.target_alone
    traffic = None if spec.traffic is None else Traffic(users=spec.traffic.users)
    return replace(
        spec,
        pair=pair,
        role=role,
        offload=offload,
        prompt=NO_PROMPT,
        n_predict=0,
        sampling=Sampling(),
        traffic=traffic,
        asking=Asking(),
    )


@dataclass(kw_only=True)
class ServerEngine(LoadingEngine[LoadedServer]):
    """Keeps servers, one for each set of models and settings that must be loaded.

    If a build takes the draft size from each request, one server is used for every draft size and for the
    target alone. That is known only after the first load with a drafter, so ``load_key`` changes then.

    N-gram methods have no settings per request, and all but ``ngram-simple`` keep what they saw in earlier
    requests, so each of their runs loads a new server (see ``LEARNING_METHODS``), and each conversation one.
    """

    name: str = "server"
    _families: set[RunSpec] = field(default_factory=set)  # loads that are used for every draft size
    _hosts: dict[RunSpec, RunSpec] = field(default_factory=dict)  # target alone -> such a load

    def argv(self, spec: RunSpec) -> tuple[str, ...]:
        """Return the server's command; PORT, KEY_FILE and SLOTS change with each start."""
        return readable_argv(load_of(spec), self.install)

    def load_key(self, spec: RunSpec) -> Hashable | None:
        """Return the load that a run needs, given what is known about the build so far."""
        if spec.drafting is not None and not LEARNING_METHODS.isdisjoint(spec.drafting.chain.methods):
            return None
        if self.per_arm:
            return replace(spec, prompt=NO_PROMPT)
        load = load_of(spec)
        if load.drafting is None:
            host = self._hosts.get(load)
            return host if host is not None and self._pool.holds(host) else load
        family = replace(load, drafting=None)
        return family if family in self._families else load

    def measure(self, spec: RunSpec, log: Path) -> Measurement:
        """Send one request to a server, which is loaded first if necessary."""
        out, err = log.with_suffix(".out"), log.with_suffix(".err")
        started = time.perf_counter()
        try:
            loaded = self._loaded(spec)
        except Failure as failure:
            out.write_bytes(b"")
            err.write_bytes(failure.log)
            return Measurement(
                sample=_failed(spec, failure),
                argv=self.argv(spec),
                wall_s=time.perf_counter() - started,
                error=failure.reason,
            )
        started = time.perf_counter()
        failed: Failure | None = None
        with out.open("w", encoding="utf-8", newline="\n") as record:
            try:
                self._ask(loaded, spec, record)
            except Failure as failure:
                failed = failure
                note(record, failure=failure.reason)
            except BaseException:  # Ctrl-C: the server would go on generating, and the others are not needed
                self._pool.clear()
                raise
        wall_s = time.perf_counter() - started
        logged = loaded.server.read_log(until=b"" if failed else self._last_words(spec))
        err.write_bytes(logged)
        loaded.gives_zeros = loaded.gives_zeros or parsing.gives_zeros(logged)
        is_seen = any(IMAGE in prompt.needs for prompt in spec.prompts)
        if loaded.gives_zeros and spec.drafting is not None and is_seen:
            with out.open("a", encoding="utf-8", newline="\n") as record:
                note(record, reads_zeros=True)
        parsed = self._parse(spec, out)
        by_method = parsing.count_by_method(logged, loaded.by_method)
        loaded.by_method = parsing.count_by_method(logged) or loaded.by_method
        if by_method and sum(counts.n_accepted for counts in by_method) != parsed.sample.n_accepted:
            by_method = None  # lines of the log are missing
        if failed is None and parsed.sample.status is Status.SUMMARY_LOST:
            failed = loaded.server.death()
        broken = failed is not None and (failed.status is Status.TIMED_OUT or not loaded.server.is_alive)
        if broken or (self.load_key(spec) is None and not spec.prompt.turn):
            self._pool.forget(loaded)
        is_turn = spec.prompt.turn > 0 and parsed.sample.status is Status.OK
        loaded.last = spec if is_turn else None
        loaded.last_tokens = (parsed.sample.prompt_tokens or 0) + (parsed.sample.cached_tokens or 0)
        if failed is not None:
            return Measurement(
                sample=replace(_failed(spec, failed), traffic=parsed.sample.traffic),
                argv=loaded.argv,
                wall_s=wall_s,
                error=failed.reason,
                load=loaded.number,
            )
        load = loaded.load
        return Measurement(
            sample=replace(
                with_placement(parsed.sample, load, load if spec.drafter is not None else None),
                build=load.build,
                by_method=by_method,
                text=parsed.sample.text if parsed.sample.status is Status.OK else None,
            ),
            argv=loaded.argv,
            wall_s=wall_s,
            error=parsed.remark,
            load=loaded.number,
        )

    def _loaded(self, spec: RunSpec) -> LoadedServer:
        """Return the server for a run; load it if necessary."""
        key = self.load_key(spec)
        held = self._pool.get(key)
        if held is not None and (key is not None or held.goes_on(spec)):
            return held
        self._pool.drop(key)  # of a method that learns, the server of another conversation
        self._pool.make_room()
        load = load_of(spec)
        server = start(load, self.install, timeout_s=self.timeout_s)
        try:
            capabilities = probe(server, load.drafting, timeout_s=self.timeout_s) if load.drafting else None
        except BaseException as error:
            if isinstance(error, Failure):
                error.log = server.read_log()
            server.close()
            raise
        log = server.log.read_bytes()
        loaded = LoadedServer(
            server=server,
            argv=readable_argv(load, self.install),
            load=read_log(log, Program.SERVER),
            most=parsing.lowered_size(log),
            capabilities=capabilities,
            number=next(self._load_numbers),
        )
        if capabilities is not None and load.pair.draft is not None and not self.per_arm:
            key = self._register(load, spec, capabilities)
        self._pool.put(key, loaded)
        return loaded

    def _register(self, load: RunSpec, spec: RunSpec, capabilities: Capabilities) -> RunSpec:
        """Store whether a server with a drafter takes the draft size per request; return its key."""
        family, alone = replace(load, drafting=None), load_of(spec.baseline)
        if not capabilities.per_request:
            self._families.discard(family)
            return load
        self._families.add(family)
        self._hosts[alone] = family
        self._pool.drop(alone)
        return family

    def _ask(self, loaded: LoadedServer, spec: RunSpec, record: TextIO) -> None:
        """Send a request and write the complete record of the run; response.py describes its lines."""
        capabilities, server = loaded.capabilities, loaded.server
        request_body = body(
            spec,
            may_draft=capabilities is not None,
            per_request=capabilities is not None and capabilities.per_request,
            caches=bool(spec.prompt.history) or (capabilities is not None and capabilities.caches_to_draft),
        )
        self._note_run(loaded, spec, record, request=request_body)
        if spec.prompt.history:
            note(record, kept_tokens=self._go_on(loaded, spec))
        elif spec.drafting and capabilities is not None and capabilities.remembers and loaded.runs:
            distract_drafter(server, spec.drafting, timeout_s=self.timeout_s)
            server.read_log(until=_SUMMARY)  # not part of this run
        elif _keeps_state(spec) and self.load_key(spec) is not None:
            fix_first_state(server, timeout_s=self.timeout_s)
            server.read_log(until=self._last_words(spec))
        loaded.runs += 1
        if request_body["cache_prompt"] and not spec.prompt.history:
            erase_slot(server)
        before = _accepted_at(server) if spec.drafting else None
        send(server, request_body, record, timeout_s=self.timeout_s)
        if before is not None:
            note(record, accepted_at={"before": before, "after": _accepted_at(server)})

    def _go_on(self, loaded: LoadedServer, spec: RunSpec) -> int:
        """Return how many tokens the turn before certainly left in the cache; read it again where it is lost.

        That is where the turn was not the last request: where it was stored by a bench that was cut off, or
        this one is measured again. An arm's own answer may differ from the target's, which the history has,
        so only the tokens of the prompt are certain.
        """
        if loaded.goes_on(spec):
            return loaded.last_tokens
        n_tokens = read_history(loaded.server, spec, self.timeout_s)
        loaded.server.read_log(until=_SUMMARY)  # not part of this run
        return n_tokens

    def _note_run(self, loaded: LoadedServer, spec: RunSpec, record: TextIO, **notes: object) -> None:
        """Write the first lines of a record: the run, and further notes.

        Raises:
            Failure: the server was started to draft, and does not.
        """
        capabilities = loaded.capabilities
        size = spec.drafting.n_max if spec.drafting else None
        run = {
            "n_draft": size if size is None or loaded.most is None else min(size, loaded.most),
            "method": spec.drafting.method.value if spec.drafting else None,
            "p_min": spec.drafting.p_min if spec.drafting else None,
            "load_ms": None if loaded.runs else loaded.server.load_ms,
            "capabilities": None if capabilities is None else asdict(capabilities),
        }
        note(record, run=run)
        if notes:
            note(record, **notes)
        if spec.drafting and capabilities is not None and capabilities.inactive:
            raise _inactive(loaded.server)

    def _last_words(self, spec: RunSpec) -> bytes:
        """Return how the last line about a request begins: of a chain, the statistics of the last method."""
        if spec.drafting is None or not spec.drafting.first:
            return _SUMMARY
        options = self.install.executable(Program.SERVER).options
        return f"{type_name(spec.drafting.method, options)}: #calls".encode()

    def _parse(self, spec: RunSpec, out: Path) -> response.Parsed:
        """Return the sample of a finished record."""
        return response.parse_response(out.read_text(encoding="utf-8"))


def _keeps_state(spec: RunSpec) -> bool:
    """Whether the server's drafter begins from a state of the request before."""
    return spec.drafting is not None and spec.drafting.method is Method.DRAFT_MTP


def _failed(spec: RunSpec, failure: Failure) -> Sample:
    size = spec.drafting.n_max if spec.drafting else None
    return Sample(status=failure.status, program=Program.SERVER, n_draft=size)


def _inactive(server: Server) -> Failure:
    """Return why a server that was started to draft does not."""
    diagnosis = parsing.diagnose(server.log.read_bytes())
    if diagnosis is not None and diagnosis.status is Status.DRAFTER_REFUSED:
        return Failure(*diagnosis)
    return Failure(Status.DRAFTING_INACTIVE, "the server was started to draft but does not")


def _accepted_at(server: Server) -> list[int] | None:
    """Return how often each position of a draft was accepted since the load; None if it is not counted."""
    text = server.get("/metrics")
    return None if text is None else endpoints.read_accepted_at(text.decode(errors="replace"))
