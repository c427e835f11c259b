"""A stand-in for llama-server of any era, and for servers that run already, which misbehaves on demand.

``program`` installs it as a program: it answers the questions that an install is asked and serves the
endpoints that the engine needs. It accepts one, two and three drafted tokens in turn. What sets the eras
apart was seen on real servers: b6170 (llama-cpp-python 0.3.16) and today's by hand, b8475 to b9102 by their
source. It speaks as ik_llama.cpp's server, too.

``serve`` runs it in a thread as a llama-server, vLLM, SGLang or another server with OpenAI's interface. It
accepts all drafted tokens in one round and none in the next.

Both write the same words as the other fakes, and fail in the way that a word of ``FAULTS`` in a prompt tells.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

HELP = Path(__file__).parent.parent / "help"
IK_VERSION = "version: 4840 (8337e4cd)\nbuilt with GNU 12.2.0 for Linux x86_64\n"
TEXT = "once there was a small fake model that always wrote the same words"
WORDS = TEXT.replace(" ", "\0 ").split("\0")
MS_PER_ROUND = 2.0  # reported, but not taken; so little that the clock does not contradict it
TOO_LONG = "the request exceeds the available context size, try increasing it"
_SUMMARY = "slot print_timing: id  0 |       total time = 25 ms"

CHUNKS = {
    "@comment": ": still alive",
    "@notjson": "data: {half",
    "@list": 'data: ["a list"]',
    "@word": "data: nothing",
    "@timings": 'data: {"content": "x", "stop": false, "timings": [1, 2]}',
    "@counts": 'data: {"content": "x", "stop": false, "timings": {"draft_n": "three"}}',
    "@content": 'data: {"content": ["x"], "stop": false}',
    "@tokens": 'data: {"content": "x", "tokens": {"a": 1}, "stop": false}',
    "@string": 'data: {"error": "decode: failed to allocate buffer"}',
}
"""What is sent after each round of a stream, by a word in the prompt."""
FAULTS = ("@die", "@kill", "@hang", "@garbage", "@null", "@long", "@cut", "@error", "@busy", "@wide")
"""Words in a prompt that make the server fail; "@unavailable" is for several users."""
REFUSALS = {
    "@long": (400, TOO_LONG),
    "@busy": (500, "something odd"),
    "@unavailable": (503, "no slot is free"),
}
"""Words in a prompt that is not answered, with the HTTP status and the message."""
MODEL = "tiny-model"
OWNERS = {"llama-server": "llamacpp", "vLLM": "vllm", "SGLang": "sglang", "other": "someone"}


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """What sets an era or a fault of llama-server apart."""

    at_load: str = ""  # shell commands before it serves
    drafts: bool = True
    per_request: bool = False  # "speculative.n_max" is honoured: b4164 to b9108
    largest: int = 99  # but not beyond this
    caches_to_draft: bool = False  # "cache_prompt": false switches drafting off: up to b6722
    alternates: bool = False  # an evaluation without a draft follows each one with a draft: b6170, not b8475
    counts_ahead: bool = False  # a round counts before it is sent, and is cut at the end: b9102 still
    remembers: bool = False  # a repeated prompt's last answer becomes its draft: b9102 still
    counts_places: bool = True  # /metrics counts accepted tokens per place of the draft: from b10282
    miscounts: bool = False
    slots: bool = True
    loading_s: float = 0.0
    stages: bool = False  # ik_llama.cpp's: a --spec-type for each method, no figures before an answer's end
    round_s: float = 0.0  # what a round takes
    noise: float = 0.0  # share by which loads and answers differ, as no two real ones are equal
    open_to_all: bool = False  # no key is asked for, as by somebody else's server
    ranks: str | None = None  # what is answered in place of a ranking
    answers: dict[str, str] = field(default_factory=dict)  # what paths answer in place of what they should
    hangs: str = ""  # a path that does not answer
    masks_bonus: bool = True  # a grammar holds the token behind a draft, too


SPRING_2026 = Behaviour(per_request=True, counts_ahead=True, remembers=True, counts_places=False)
SUMMER_2025 = replace(SPRING_2026, caches_to_draft=True, alternates=True)
IK = replace(SPRING_2026, stages=True)


def program(path: Path, behaviour: Behaviour | None = None, *, version: str = "0.3.36") -> Path:
    """Write the program; ``version`` names the build whose help it prints."""
    from tests.support import fakes  # the program itself has no packages

    behaviour = behaviour or Behaviour()
    version, said = ("ik", IK_VERSION) if behaviour.stages else (version, fakes.VERSION)
    # as a module that is imported, it need not be compiled at each start
    code = (
        f"import sys; sys.path.append({str(Path(__file__).parent)!r}); import fake_server; fake_server.main()"
    )
    words = [sys.executable, "-S", "-E", "-c", code, str(path.parent), json.dumps(asdict(behaviour))]
    body = f'{behaviour.at_load}\nexec {shlex.join(words)} "$@"\n'
    return fakes.program(path, body, help_from="llama-server", build=version, version=said)


def starts(folder: Path) -> list[dict[str, Any]]:
    """Return what each start of the program in a folder was given, in order."""
    return _read(folder / "starts.jsonl")


def requests(folder: Path) -> list[dict[str, Any]]:
    """Return the completions that were asked for, in order; short ones are the engine's own probes."""
    return _read(folder / "requests.jsonl")


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class _Handler(BaseHTTPRequestHandler):
    """What both kinds of servers do alike."""

    def log_message(self, *_: object) -> None:
        pass

    def _body(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return body

    def _knows(self, key: str) -> bool:
        """Whether the request has the key, if one is asked for; otherwise it is refused."""
        if not key or self.headers.get("Authorization") == f"Bearer {key}":
            return True
        self._refuse(401, "Invalid API Key")
        return False

    def _refuse(self, status: int, message: str) -> None:
        self._answer(status, {"error": {"code": status, "message": message}})

    def _answer(self, status: int, what: object) -> None:
        data = (what if isinstance(what, str) else json.dumps(what)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _begins_stream(self, prompt: Any) -> bool:
        """Begin a stream, unless the prompt says that it is refused."""
        for word, (status, message) in REFUSALS.items():
            if word in prompt:
                self._refuse(status, message)
                return False
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        if "@hang" in prompt:
            time.sleep(60)
        return True

    def _event(self, what: object) -> None:
        data = what if isinstance(what, str) else json.dumps(what, ensure_ascii=False)
        self.wfile.write(f"data: {data}\n\n".encode())
        self.wfile.flush()


class _Program(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_port = True  # as llama-server's library has it

    def __init__(self, folder: Path, behaviour: Behaviour, argv: list[str]) -> None:
        def option(*names: str) -> str | None:
            return next((argv[argv.index(name) + 1] for name in names if name in argv), None)

        self.folder, self.behaviour = folder, behaviour
        key_file = option("--api-key-file")
        self.key = Path(key_file).read_text().strip() if key_file else ""
        self.key_asked_for = "" if behaviour.open_to_all else self.key
        self.slot_context = int(option("--ctx-size") or 0) // int(option("--parallel") or 1)
        self.n_max = int(option("--spec-draft-n-max", "--draft-max") or 0)
        methods = option("--spec-type") or ""
        self.stages: list[str] = []
        if behaviour.stages:
            _refuse_flags(argv)
            given = [value for flag, value in pairwise(argv) if flag == "--spec-type"]
            self.stages = [stage.partition(":")[0] for stage in given]
            sizes = [int(stage.partition("n_max=")[2].partition(",")[0]) for stage in given]
            self.n_max = max(sizes, default=0)
            methods = "ngram" * bool(self.stages)
        self.has_drafter = option("--model-draft") is not None or "ngram" in methods or "mtp" in methods
        self.places: list[int] = []
        self.totals = [0, 0, 0]  # rounds, tokens drafted and accepted, since the start
        self.slot: list[Any] = []  # what it remembers: words of texts, or tokens
        self.drafted_for: object = None  # the prompt that the drafter remembers
        self.since = time.monotonic()
        facts = {
            "argv": argv,
            "pid": os.getpid(),
            "at": time.time(),
            "key": self.key,
            "key_mode": Path(key_file).stat().st_mode & 0o777 if key_file else None,
        }
        self.keep("starts", facts)
        super().__init__(("127.0.0.1", int(option("--port") or 0)), _ProgramHandler)
        _log("srv    load_model: loading model")
        _log("load_tensors: offloaded 5/7 layers to GPU")

    def log_drafts(self, drafted: int, accepted: int, rounds: int) -> None:
        """Log what ik_llama.cpp's server logs of an answer's drafts, all of the last stage."""
        if drafted:
            rate = f"{accepted / drafted:.5f} ({accepted:5} accepted / {drafted:5} generated)"
            _log(f"draft acceptance rate = {rate}")
        new = (rounds, drafted, accepted)
        self.totals = [total + more for total, more in zip(self.totals, new, strict=True)]
        for stage in self.stages:
            calls, *tokens = self.totals if stage is self.stages[-1] else (0, 0, 0)
            name = stage.replace("-", "_")
            _log(
                f"statistics {name}: #calls(b,g,a) = 1 {calls} {calls}, #gen drafts = {calls}, #acc drafts = "
                f"{calls}, #gen tokens = {tokens[0]}, #acc tokens = {tokens[1]}, dur(b,g,a) = 0.001, 0.200, "
                "0.001 ms"
            )

    def keep(self, name: str, what: dict[str, Any]) -> None:
        with (self.folder / f"{name}.jsonl").open("a") as file:
            file.write(json.dumps(what) + "\n")


class _ProgramHandler(_Handler):
    server: _Program

    def do_GET(self) -> None:
        server = self.server
        if self._misbehaves():
            return
        if self.path == "/health":
            loading = time.monotonic() - server.since < server.behaviour.loading_s
            self._answer(503 if loading else 200, {"status": "ok"})
        elif not self._knows(server.key_asked_for):
            return
        elif self.path == "/slots" and server.behaviour.slots:
            on = server.has_drafter and server.behaviour.drafts
            self._answer(200, [{"id": 0, "speculative": on}])
        elif self.path == "/props":
            self._answer(200, {"default_generation_settings": {"n_ctx": self.server.slot_context}})
        elif self.path == "/metrics" and server.behaviour.counts_places:
            lines = ["llamacpp:spec_decode_num_drafts_total 1"]
            for place, count in enumerate(server.places):
                name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
                lines.append(f'{name}{{position="{place}"}} {count}')
            self._answer(200, "\n".join(lines))
        else:
            self._refuse(404, "no such page")

    def do_POST(self) -> None:
        body = self._body()
        if self._misbehaves() or not self._knows(self.server.key_asked_for):
            return
        if self.path == "/slots/0?action=erase":
            self.server.slot = []
            self._answer(200, {"id_slot": 0, "n_erased": 1})
        elif self.path == "/tokenize":
            self._answer(200, {"tokens": [100 + place for place, _ in enumerate(body["content"].split())]})
        elif self.path == "/completion" and self._is_too_long(body):
            self._refuse(400, TOO_LONG)
        elif self.path == "/completion":
            self.server.keep("requests", body)
            self._complete(body)
        elif self.path == "/v1/chat/completions":
            self.server.keep("requests", body)
            self._complete(body | {"prompt": body["messages"][-1]["content"]})
        else:
            self._answer(200, {"tokens": []})

    def _misbehaves(self) -> bool:
        """Do what the behaviour says of a path, if it says anything."""
        behaviour = self.server.behaviour
        if self.path == behaviour.hangs:
            time.sleep(600)
        if self.path in behaviour.answers:
            self._answer(200, behaviour.answers[self.path])
        return self.path in behaviour.answers

    def _is_too_long(self, body: dict[str, Any]) -> bool:
        """Whether a prompt of tokens does not fit into a slot; the engine's own prompts are texts."""
        prompt, most = body["prompt"], self.server.slot_context
        return isinstance(prompt, list) and 0 < most < len(prompt) + max(0, body["n_predict"])

    def _reset(self) -> None:
        """Break the connection as the system does for a process that has died."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def _draft_size(self, body: dict[str, Any]) -> int:
        behaviour, size = self.server.behaviour, self.server.n_max
        if not self.server.has_drafter or not behaviour.drafts:
            return 0
        if behaviour.caches_to_draft and not body["cache_prompt"]:
            return 0
        if behaviour.per_request:
            size = min(body.get("speculative.n_max", size), behaviour.largest)
        return size

    def _read(self, body: dict[str, Any]) -> tuple[int, int]:
        """Read a prompt into the slot; return how many tokens it has, and how many were not cached."""
        prompt = body["prompt"].split() if isinstance(body["prompt"], str) else body["prompt"]
        same = takewhile(lambda pair: pair[0] == pair[1], zip(prompt, self.server.slot, strict=False))
        cached = sum(1 for _ in same) if body["cache_prompt"] else 0
        self.server.slot = list(prompt)
        return len(prompt), len(prompt) - min(cached, len(prompt) - 1)

    def _complete(self, body: dict[str, Any]) -> None:
        prompt, n = body["prompt"], body["n_predict"]
        n = min(n, 20) if "json_schema" in body else n  # such an answer ends by itself
        if body.get("n_probs"):
            self._answer(200, self.server.behaviour.ranks or _ranked(prompt))
            return
        evaluated, fresh = self._read(body)
        if not body["stream"]:
            self.server.drafted_for = prompt
            whole = {"prompt_n": fresh, "predicted_n": n, "predicted_ms": MS_PER_ROUND * n}
            if size := self._draft_size(body):
                whole |= {"draft_n": size, "draft_n_accepted": size}
            counts = {"tokens_evaluated": evaluated, "timings": whole}
            self._answer(200, {"content": "words", "stop": True} | counts)
            _log(_SUMMARY)
            return
        if not self._begins_stream(prompt):
            return
        if "@trickle" in prompt:
            while True:
                self.wfile.write(b"data: ")
                time.sleep(0.01)
        if "@garbage" in prompt:
            self.wfile.write(b"\x00\xff{not json\n\ndata: {half\n\n")
            return
        behaviour, size = self.server.behaviour, self._draft_size(body)
        recalled = behaviour.remembers and prompt == self.server.drafted_for
        self.server.drafted_for = prompt if size else self.server.drafted_for
        ms_per_round = max(MS_PER_ROUND, 1000 * behaviour.round_s)
        done, written, drafted, accepted, rounds, alternate = 0, 0, 0, 0, 0, False
        own_places = [0] * size
        begun = time.monotonic()
        slower = 1 + behaviour.noise * ((os.getpid() * 7919 + evaluated) % 13) / 13

        def timings() -> dict[str, Any]:
            said: dict[str, Any] = {"prompt_n": fresh, "prompt_ms": 10.0, "prompt_per_second": 100.0 * fresh}
            said |= {} if behaviour.per_request else {"cache_n": evaluated - fresh}  # from b6399 on
            told_ms, took_ms = ms_per_round * rounds * slower, 1000 * (time.monotonic() - begun)
            # on a busy machine it may have taken far longer than the tests expect: then it says so
            told_ms = took_ms if took_ms > 2 * told_ms + 10 else told_ms
            if self.server.stages and drafted:
                said["draft_by_depth"] = [
                    {"depth": place, "draft_n": rounds, "draft_n_accepted": count}
                    for place, count in enumerate(own_places, 1)
                ]
            said |= {"predicted_n": done, "predicted_ms": max(told_ms, 0.001)}
            said["predicted_per_second"] = None if "@null" in prompt else 100.0
            if "@null" in prompt:
                said["predicted_ms"] = None
            return said | ({"draft_n": drafted, "draft_n_accepted": accepted} if drafted else {})

        while done < n:
            time.sleep(behaviour.round_s)
            draft = min(size, n - done - 1) if done and not alternate else 0
            match = draft if recalled else min(draft, 1 + rounds % 3)
            alternate = behaviour.alternates and draft > 0
            done += (match + 1) * behaviour.counts_ahead
            drafted, accepted = drafted + draft, accepted + match
            rounds += done > 0
            for place in range(match):
                own_places[place] += 1
                self.server.places += [0] * (place + 1 - len(self.server.places))
                self.server.places[place] += 1 + self.server.behaviour.miscounts
            for place in range(1 if behaviour.counts_ahead and done >= n else match + 1):
                written += 1
                done += not behaviour.counts_ahead
                word = "\u2028" if "@wide" in prompt else WORDS[(written - 1) % len(WORDS)]
                is_masked = "json_schema" in body and (behaviour.masks_bonus or not draft or place < match)
                if is_masked:
                    word = '{"n": 1' if written == 1 else "}" if written == n else "1"
                if "messages" in body:
                    delta = {"reasoning_content" if written <= 2 else "content": word}
                    self._event({"choices": [{"delta": delta}], "timings": timings()})
                    continue
                told = {} if behaviour.stages else {"tokens": [written + is_masked], "timings": timings()}
                self._event({"content": word, "stop": False, **told})
            for word, number in (("@die", signal.SIGSEGV), ("@kill", signal.SIGKILL)):
                if done >= 3 and word in prompt:
                    os.kill(os.getpid(), number)
                    time.sleep(60)  # this thread may outlive the signal by a moment
            if done >= 3 and "@cut" in prompt:
                return
            if done >= 3 and "@reset" in prompt:
                self._reset()
                return
            for fault, line in CHUNKS.items():
                if fault in prompt:
                    self.wfile.write(line.encode() + b"\n\n")
            if done >= 3 and "@error" in prompt:
                self._event({"error": {"code": 500, "message": "decode: failed to allocate buffer"}})
                return
        _log(_SUMMARY)
        end: dict[str, Any] = {"content": "", "tokens": [], "stop": True, "truncated": False}
        if "messages" in body:
            end = {"choices": [{"delta": {}, "finish_reason": "length"}]}
        self.server.log_drafts(drafted, accepted, rounds)
        self.server.slot += [WORDS[place % len(WORDS)].strip() for place in range(n - 1)]  # not the last one
        counts = {"tokens_evaluated": evaluated, "timings": timings()}
        self._event(end | counts)


def _refuse_flags(argv: list[str]) -> None:
    """Refuse flags of llama.cpp as ik_llama.cpp does, which prints its help after that."""
    for flag in argv:
        if flag.startswith(("--draft-", "--spec-draft-", "--spec-ngram-")):
            _log(f"legacy speculative option '{flag}' is disabled; use --spec-type")
            _log((HELP / "ik" / "llama-server.txt").read_text())
            sys.exit(1)


def _log(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _ranked(prompt: object) -> dict[str, Any]:
    """The likeliest next tokens: " yes" and " no" nearly tie, anything else is far behind."""
    top = [(7, " yes", -0.7), (8, " no", -0.8), (9, " maybe", -6.0), (10, " y", -7.0)]
    ranked = [
        {"id": token, "token": text, "bytes": list(text.encode()), "logprob": logprob}
        for token, text, logprob in top
    ]
    return {"content": " yes", "completion_probabilities": [ranked[0] | {"top_logprobs": ranked}]}


def round_ms(drafted: int) -> float:
    """What a round of a running llama-server takes, by its own account: so little that clocks do not mind."""
    return 0.4 + 0.05 * drafted


@dataclass(kw_only=True)
class FakeServer:
    """What a server is and does; ``requests`` are the paths, headers and bodies that it was sent.

    Attributes:
        software: a key of ``OWNERS``.
        gamma: draft size; 0 for a server that does not draft.
        key: what it asks for; empty for nothing.
        models: the names that it lists.
        n_params: weights, as llama-server reports them.
        token_s: seconds for each round.
        word: what it writes before each piece of its words.
        counts: whether it reports how many tokens it generated.
        has_metrics: whether it has /metrics.
        start: what it tells of its start; empty for nothing.
        redirects_to: where it redirects every request.
        answers: what paths answer in place of what they should.
        right: which tokens the drafter has right, over and over, where llama-server's /completion is asked.
        forgets: whether llama-server loses its cache after each answer.
        slot: the words of the last prompt, of messages all of them.
    """

    software: str = "vLLM"
    gamma: int = 0
    key: str = ""
    models: tuple[str, ...] = (MODEL,)
    n_params: int = 1000
    token_s: float = 0.002
    word: str = ""
    counts: bool = True
    has_metrics: bool = True
    start: str = "1764000000.5"
    redirects_to: str = ""
    answers: dict[str, Any] = field(default_factory=dict)
    right: tuple[bool, ...] = ()
    forgets: bool = False
    slot: list[str] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    url: str = ""
    counters: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def completions(self) -> list[dict[str, Any]]:
        """The bodies of the requests for answers."""
        return [body for path, _, body in self.requests if path.endswith("completions")]

    def count(self, **amounts: int) -> None:
        """Add to the counters of /metrics."""
        with self.lock:
            for name, amount in amounts.items():
                self.counters[name] = self.counters.get(name, 0) + amount

    def metrics(self) -> str:
        """The text of /metrics."""
        names = {
            "vLLM": {
                "generated": "vllm:generation_tokens_total",
                "rounds": "vllm:spec_decode_num_drafts_total",
                "drafted": "vllm:spec_decode_num_draft_tokens_total",
                "accepted": "vllm:spec_decode_num_accepted_tokens_total",
            },
            "SGLang": {
                "generated": "sglang:generation_tokens_total",
                "rounds": "sglang:spec_verify_calls_total",
                "requests": "sglang:num_requests_total",
            },
        }.get(self.software, {})
        drafting = {"rounds", "drafted", "accepted"}
        lines = ["# HELP something else", "process_open_fds 9.0"]
        lines += [f"process_start_time_seconds {self.start}"] if self.start else []
        labels = f'{{engine="0",model_name="{MODEL}"}}'
        lines += [
            f"{metric}{labels} {float(self.counters.get(name, 0))}"
            for name, metric in names.items()
            if self.gamma or name not in drafting
        ]
        if self.gamma and self.software == "vLLM":
            metric, accepted = "vllm:spec_decode_num_accepted_tokens_per_pos", self.counters.get("full", 0)
            lines += [
                f'{metric}_total{{engine="0",position="{place}"}} {accepted}' for place in range(self.gamma)
            ]
        return "\n".join(lines) + "\n"


class _RunningHandler(_Handler):
    fake: FakeServer

    def do_GET(self) -> None:
        if self._is_answered({}):
            return
        fake, drafts = self.fake, self.fake.gamma > 0
        meta = {"meta": {"n_params": fake.n_params, "size": 4 * fake.n_params}}
        listed = [
            {"id": name, "object": "model", "owned_by": OWNERS[fake.software], "root": "/models/tiny"}
            | (meta if fake.software == "llama-server" else {"max_model_len": 512})
            for name in fake.models
        ]
        pages: dict[tuple[str, str], Any] = {
            ("llama-server", "/props"): {
                "build_info": "b9976-1a2b3c4",
                "model_path": "/models/tiny.gguf",
                "total_slots": 2,
                **({"media_marker": f"<__media_{fake.start}__>"} if fake.start else {}),
                "default_generation_settings": {"n_ctx": 512},
            },
            ("llama-server", "/slots"): [{"id": 0, "speculative": drafts}],
            ("vLLM", "/version"): {"version": "0.11.0"},
            ("SGLang", "/server_info"): {
                "version": "0.5.5",
                "speculative_algorithm": "EAGLE" if drafts else None,
                "speculative_num_draft_tokens": fake.gamma + 1 if drafts else None,
            },
        }
        if self.path == "/v1/models":
            self._answer(200, {"object": "list", "data": listed})
        elif self.path == "/metrics" and fake.has_metrics:
            self._answer(200, fake.metrics())
        elif (fake.software, self.path) in pages:
            self._answer(200, pages[fake.software, self.path])
        else:
            self._refuse(404, "no such page")

    def do_POST(self) -> None:
        body = self._body()
        if self._is_answered(body):
            return
        if self.path == "/tokenize":
            self._answer(200, {"tokens": [7 for _ in body["prompt"].split()]})
        elif self.path in {"/v1/completions", "/v1/chat/completions"}:
            self._complete(body)
        elif self.path == "/completion" and self.fake.right:
            self._stream_rounds(body["n_predict"])
        else:
            self._refuse(404, "no such page")

    def _stream_rounds(self, n: int) -> None:
        """Say how many tokens each round drafted and accepted, and what it would have taken."""
        self._begins_stream("")
        done, drafted, accepted, ms = 1, 0, 0, 0.0
        event = {"content": "word", "tokens": [1], "stop": False}
        self._event(event | {"timings": {"predicted_n": 1, "predicted_ms": 0.0}})
        while done < n:
            draft = min(self.fake.gamma, n - done - 1)
            right = [self.fake.right[(done + place) % len(self.fake.right)] for place in range(draft)]
            match = (*right, False).index(False)
            drafted, accepted, ms = drafted + draft, accepted + match, ms + round_ms(draft)
            counts = {"draft_n": drafted, "draft_n_accepted": accepted} if drafted else {}
            for _ in range(match + 1):
                done += 1
                self._event(event | {"timings": {"predicted_n": done, "predicted_ms": ms, **counts}})
        last = {"predicted_n": done, "predicted_ms": ms, **counts}
        self._event({"content": "", "tokens": [], "stop": True, "timings": last})

    def _is_answered(self, body: dict[str, Any]) -> bool:
        """Answer a request without the key, to be redirected, or whose answer is given; return whether."""
        fake = self.fake
        with fake.lock:
            fake.requests.append((self.path, dict(self.headers), body))
        if fake.redirects_to:
            self.send_response(307)
            self.send_header("Location", fake.redirects_to + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self._knows(fake.key):
            if self.path not in fake.answers:
                return False
            self._answer(200, fake.answers[self.path])
        return True

    def _complete(self, body: dict[str, Any]) -> None:
        fake, is_chat = self.fake, "messages" in body
        prompt = body["messages"][-1]["content"] if is_chat else body["prompt"]
        if not self._begins_stream(prompt):
            return
        if is_chat:
            self._event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]})
        n, done, rounds, full = body["max_tokens"], 0, 0, 0
        try:
            while done < n:
                time.sleep(fake.token_s)
                size = min(1 + (fake.gamma if done and rounds % 2 == 0 else 0), n - done)
                words = fake.word + "".join(WORDS[(done + place) % len(WORDS)] for place in range(size))
                piece: dict[str, Any] = {"delta": {"content": words}} if is_chat else {"text": words}
                self._event({"choices": [{"index": 0, "finish_reason": None, **piece}]})
                rounds += done > 0
                full += size == fake.gamma + 1 and done > 0
                done += size
                if done >= 3 and "@cut" in prompt:
                    return
                if done >= 3 and "@garbage" in prompt:
                    self._event("{half")
                    return
                if done >= 3 and "@error" in prompt:
                    self._event({"error": {"code": 500, "message": "out of blocks"}})
                    return
            self._finish(body, prompt, done, rounds, full * fake.gamma, is_chat=is_chat)
        except OSError:
            return  # the client has gone
        finally:
            counted = {"rounds": rounds, "drafted": rounds * fake.gamma, "accepted": full * fake.gamma}
            if fake.software != "SGLang" or done >= n:  # SGLang counts answers that were finished
                fake.count(generated=done, full=full, requests=1, **counted)

    def _finish(
        self, body: dict[str, Any], prompt: str, n: int, rounds: int, accepted: int, *, is_chat: bool
    ) -> None:
        fake = self.fake
        end: dict[str, Any] = {"delta": {}} if is_chat else {"text": ""}
        last: dict[str, Any] = {"choices": [{"index": 0, "finish_reason": "length", **end}]}
        if fake.software == "llama-server":
            messages = body.get("messages", [{"content": prompt}])
            read = [word for message in messages for word in (message.get("content") or "").split()]
            same = takewhile(lambda pair: pair[0] == pair[1], zip(read, fake.slot, strict=False))
            cached = sum(1 for _ in same) if body["cache_prompt"] else 0
            last["timings"] = {"prompt_n": len(read) - cached, "prompt_per_second": 100.0, "cache_n": cached}
            fake.slot = [] if fake.forgets else read
            last["timings"] |= {"predicted_n": n, "predicted_ms": 1000 * fake.token_s * (rounds + 1)}
            if fake.gamma:
                last["timings"] |= {"draft_n": rounds * fake.gamma, "draft_n_accepted": accepted}
        self._event(last)
        if fake.counts and body.get("stream_options", {}).get("include_usage"):
            usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": n}
            self._event({"choices": [], "usage": usage})
        self._event("[DONE]")


@contextmanager
def serve(fake: FakeServer) -> Iterator[FakeServer]:
    """Let a server answer on loopback; its ``url`` says where."""
    from tests.support import loopback  # the program itself has no packages

    with loopback.serving(_RunningHandler, fake=fake) as fake.url:
        yield fake


def main() -> None:
    """Be the program."""
    folder, behaviour, *argv = sys.argv[1:]
    fake = _Program(Path(folder), Behaviour(**json.loads(behaviour)), argv)
    _log(f"main: server is listening on http://127.0.0.1:{fake.server_port}")
    fake.serve_forever()
