"""The engine ``server``: llama-server over HTTP. Models are loaded once and measured on many prompts.

Builds b4164 to b9108 take the draft size from each request; later ones silently ignore it. Up to b6722, a
request that disables the prompt cache silently disables drafting. Version numbers may be missing or wrong, so
every server with a drafter gets a few short requests after it has loaded.

The drafter of all those builds keeps the last text that it drafted for, independently of the prompt cache
(common_speculative_gen_draft). For a repeated prompt its draft is the last answer, without any evaluation;
another prompt with the same beginning may get a part of it. So before each run the drafter drafts for an
unrelated text.
"""

from __future__ import annotations

import io
import time
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

from ggufspec.domain import (
    IMAGE,
    NO_PROMPT,
    Asking,
    Drafting,
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
from ggufspec.engines.library import BEFORE_MTP
from ggufspec.engines.server import response
from ggufspec.engines.server.response import body, note, send
from ggufspec.llama.command import LEARNING_METHODS, type_name
from ggufspec.llama.logs import parsing
from ggufspec.llama.server import (
    AnswerEvent,
    Server,
    decode,
    endpoints,
    path_of,
    read_slot_drafts,
    readable_argv,
    start,
)

_SUMMARY = b"total time ="  # in every era, the last line about a request


_PROMPTS = ("Once upon a time there was", "The weather was", "In the village", "A good recipe needs")
_DISTRACTION = (100, 100)  # token ids that every vocabulary has, without a BOS
_TOKENS = 6  # the first one, a draft of up to four, and one more


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a loaded server supports."""

    slot_drafts: bool | None = None  # according to /slots; None if it does not say
    drafts: bool = False  # a draft was seen
    per_request: bool = False  # a request can set any draft size, 0 included
    caches_to_draft: bool = False  # it drafts only with the prompt cache enabled
    remembers: bool = False  # its drafter keeps the last text between runs

    @property
    def inactive(self) -> bool:
        """Whether it certainly does not draft."""
        return self.slot_drafts is False and not self.drafts


def probe(server: Server, drafting: Drafting, *, timeout_s: float | None = None) -> Capabilities:
    """Test a server that was started to draft.

    N-gram methods draft only if a text repeats itself, and they remember what they see: they, and chains with
    them, get no requests.

    Args:
        server: newly loaded.
        drafting: the draft size and limits it was started with.
        timeout_s: time limit for each of up to five short requests.

    Raises:
        Failure: the server died or did not answer in time.
    """
    prompts = iter(_PROMPTS)
    loaded_drafts = slot_drafts(server)
    if not drafting.method.drafts_with_model or drafting.first:
        return Capabilities(slot_drafts=loaded_drafts)

    def drafted(n_max: int, *, caches: bool, n_predict: int = _TOKENS) -> Sample:
        body = greedy_request(next(prompts), n_predict, n_max=n_max, caches=caches)
        if caches:
            erase_slot(server)
        out = io.StringIO()
        send(server, body | {"stream": True, "timings_per_token": True}, out, timeout_s=timeout_s)
        return response.parse_response(out.getvalue()).sample

    size = drafting.n_max
    caches = not drafted(size, caches=False).n_drafted
    if caches and not drafted(size, caches=True).n_drafted:
        return Capabilities(slot_drafts=loaded_drafts)
    known = Capabilities(slot_drafts=loaded_drafts, drafts=True, caches_to_draft=caches)
    if drafted(0, caches=caches).n_drafted:
        return known
    try:
        longer = drafted(size + 1, caches=caches, n_predict=size + 4).rounds or ()
    except Failure as refusal:  # ik_llama.cpp refuses more than its start said, where layers are recurrent
        if refusal.status is not Status.FAILED or not server.is_alive:
            raise
        longer = ()
    longest = max((round_.drafted for round_ in longer), default=0)
    distract_drafter(server, drafting, timeout_s=timeout_s)
    return replace(known, per_request=longest == size + 1, remembers=True)


def slot_drafts(server: Server) -> bool | None:
    """Return whether a slot drafts, as the server says; None if it does not."""
    return read_slot_drafts(server.get("/slots"))


def greedy_request(
    prompt: str | Sequence[int], n_predict: int, *, caches: bool, n_max: int | None = None
) -> dict[str, Any]:
    """Return a request for a greedy answer of a given length, with drafts of up to ``n_max`` tokens."""
    body: dict[str, Any] = {"prompt": prompt, "n_predict": n_predict, "cache_prompt": caches}
    body |= {"ignore_eos": True, "temperature": 0.0, "top_k": 1, "stream": False}
    keys = {"speculative.n_max": n_max, "speculative.n_min": 0, "speculative.p_min": 0.0}
    return body if n_max is None else body | keys


def distract_drafter(server: Server, drafting: Drafting, *, timeout_s: float | None = None) -> None:
    """Let the drafter draft for an unrelated text, which replaces the text that it keeps.

    Raises:
        Failure: the server died or did not answer in time.
    """
    question = greedy_request(_DISTRACTION, 4, n_max=min(2, drafting.n_max), caches=True)
    server.post("/completion", question, timeout_s=timeout_s)


def read_history(server: Server, spec: RunSpec, timeout_s: float | None) -> int:
    """Let the slot read the conversation before a turn, and return how many of its tokens are certain.

    Of a chat, that is the prompt of the turn before: only the server's template knows what follows it.

    Raises:
        Failure: the server died or did not answer in time.
    """
    asked = greedy_request(spec.prompt.text[: spec.prompt.history], 1, n_max=0, caches=True)
    if spec.request is not None and spec.request.is_chat:
        roles = [message["role"] for message in spec.request.messages]
        before = len(roles) - 1 - roles[::-1].index("assistant")  # the last answer, which begins the turn
        earlier = spec.request.replace(messages=spec.request.messages[:before])
        asked = {name: value for name, value in asked.items() if name != "prompt"} | earlier.fields
    answer = server.post(path_of(asked), asked, timeout_s=timeout_s)
    return decode(answer, AnswerEvent).n_prompt or 0


def erase_slot(server: Server) -> None:
    """Empty the prompt cache of the slot, for servers on which requests cannot disable the cache."""
    server.post("/slots/0?action=erase", {})


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
    capabilities: Capabilities
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

    def require_drafts(self, spec: RunSpec) -> None:
        """Make sure that a server that was started to draft does.

        Raises:
            Failure: it certainly does not.
        """
        if spec.drafting is None or not self.capabilities.inactive:
            return
        diagnosis = parsing.diagnose(self.server.log.read_bytes())
        if diagnosis is not None and diagnosis.status is Status.DRAFTER_REFUSED:
            raise Failure(*diagnosis)
        raise Failure(Status.DRAFTING_INACTIVE, "the server was started to draft but does not")

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
                sample=self.failed(spec, failure),
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
        load, error = loaded.load, parsed.remark
        if failed is not None:
            sample, error = replace(self.failed(spec, failed), traffic=parsed.sample.traffic), failed.reason
        else:
            sample = replace(
                with_placement(parsed.sample, load, load if spec.drafter is not None else None),
                build=load.build,
                by_method=by_method,
                text=parsed.sample.text if parsed.sample.status is Status.OK else None,
            )
        return Measurement(sample=sample, argv=loaded.argv, wall_s=wall_s, error=error, load=loaded.number)

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
            capabilities = Capabilities()
            if load.drafting is not None:
                capabilities = probe(server, load.drafting, timeout_s=self.timeout_s)
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
        if load.drafting is not None and load.pair.draft is not None and not self.per_arm:
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
            per_request=capabilities.per_request,
            caches=bool(spec.prompt.history) or capabilities.caches_to_draft,
        )
        self._note_run(loaded, spec, record, request=request_body)
        if spec.prompt.history:
            note(record, kept_tokens=self._go_on(loaded, spec))
        elif spec.drafting and capabilities.remembers and loaded.runs:
            distract_drafter(server, spec.drafting, timeout_s=self.timeout_s)
            server.read_log(until=_SUMMARY)  # not part of this run
        elif spec.drafting and spec.drafting.method is Method.DRAFT_MTP and self.load_key(spec) is not None:
            # the target's choice of one token ends the request, so nothing is drafted
            request = greedy_request(BEFORE_MTP, 1, n_max=0, caches=False)
            server.post("/completion", request, timeout_s=self.timeout_s)
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
        size = spec.drafting.n_max if spec.drafting else None
        run = {
            "n_draft": size if size is None or loaded.most is None else min(size, loaded.most),
            "method": spec.drafting.method.value if spec.drafting else None,
            "p_min": spec.drafting.p_min if spec.drafting else None,
            "load_ms": None if loaded.runs else loaded.server.load_ms,
            "capabilities": asdict(loaded.capabilities),
        }
        note(record, run=run)
        if notes:
            note(record, **notes)
        loaded.require_drafts(spec)

    def _last_words(self, spec: RunSpec) -> bytes:
        """Return how the last line about a request begins: of a chain, the statistics of the last method."""
        if spec.drafting is None or not spec.drafting.first:
            return _SUMMARY
        options = self.install.executable(Program.SERVER).options
        return f"{type_name(spec.drafting.method, options)}: #calls".encode()

    def _parse(self, spec: RunSpec, out: Path) -> response.Parsed:
        """Return the sample of a finished record."""
        return response.parse_response(out.read_text(encoding="utf-8"))


def _accepted_at(server: Server) -> list[int] | None:
    """Return how often each position of a draft was accepted since the load; None if it is not counted."""
    text = server.get("/metrics")
    return None if text is None else endpoints.read_accepted_at(text.decode(errors="replace"))
