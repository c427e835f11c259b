"""A stand-in for llama-server that can behave like any era of it, and misbehave on demand.

Installed as a program, it answers the questions that an install is asked and serves the endpoints that the
engine needs. It writes the same words as the other fakes, accepts one, two and three drafted tokens in
turn, and fails in the way that a word of ``FAULTS`` in a prompt tells. What sets the eras apart was seen on
real servers: b6170 (llama-cpp-python 0.3.16) and today's by hand, b8475 to b9102 by their source.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import struct
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HELP = Path(__file__).parent.parent / "help"
VERSION = "version: 0.5.0-dev (build 10475, commit abc1234)\nbuilt with GNU 12.2.0 for Linux x86_64\n"
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
    round_s: float = 0.0  # what a round takes
    noise: float = 0.0  # share by which loads and answers differ, as no two real ones are equal
    open_to_all: bool = False  # no key is asked for, as by somebody else's server
    ranks: str | None = None  # what is answered in place of a ranking
    answers: dict[str, str] = field(default_factory=dict)  # what paths answer in place of what they should
    hangs: str = ""  # a path that does not answer


SPRING_2026 = Behaviour(per_request=True, counts_ahead=True, remembers=True, counts_places=False)
SUMMER_2025 = replace(SPRING_2026, caches_to_draft=True, alternates=True)


def program(path: Path, behaviour: Behaviour | None = None, *, version: str = "0.3.36") -> Path:
    """Write the program; ``version`` names the build whose help it prints."""
    behaviour = behaviour or Behaviour()
    path.parent.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-S", "-E", __file__, str(path.parent), json.dumps(asdict(behaviour))]
    path.write_text(
        f"""#!/bin/sh
case "$1" in
  --version) printf %s {shlex.quote(VERSION)} >&2; exit 0;;
  --help) cat {shlex.quote(str(HELP / version / "llama-server.txt"))}; exit 0;;
  --list-devices) printf 'Available devices:\\n  (none)\\n'; exit 0;;
esac
{behaviour.at_load}
exec {shlex.join(words)} "$@"
"""
    )
    path.chmod(0o755)
    return path


def starts(folder: Path) -> list[dict[str, Any]]:
    """Return what each start of the program in a folder was given, in order."""
    return _read(folder / "starts.jsonl")


def requests(folder: Path) -> list[dict[str, Any]]:
    """Return the completions that were asked for, in order; short ones are the engine's own probes."""
    return _read(folder / "requests.jsonl")


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, folder: Path, behaviour: Behaviour, argv: list[str]) -> None:
        def option(*names: str) -> str | None:
            return next((argv[argv.index(name) + 1] for name in names if name in argv), None)

        self.folder, self.behaviour = folder, behaviour
        key_file = option("--api-key-file")
        self.key = Path(key_file).read_text().strip() if key_file else ""
        self.slot_context = int(option("--ctx-size") or 0) // int(option("--parallel") or 1)
        self.n_max = int(option("--spec-draft-n-max", "--draft-max") or 0)
        methods = option("--spec-type") or ""
        self.has_drafter = option("--model-draft") is not None or "ngram" in methods or "mtp" in methods
        self.places: list[int] = []
        self.warm = 0  # tokens that the slot remembers
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
        super().__init__(("127.0.0.1", int(option("--port") or 0)), _Handler)
        _log("srv    load_model: loading model")
        _log("load_tensors: offloaded 5/7 layers to GPU")

    def keep(self, name: str, what: dict[str, Any]) -> None:
        with (self.folder / f"{name}.jsonl").open("a") as file:
            file.write(json.dumps(what) + "\n")


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        server = self.server
        if self._misbehaves():
            return
        if self.path == "/health":
            loading = time.monotonic() - server.since < server.behaviour.loading_s
            self._answer(503 if loading else 200, {"status": "ok"})
        elif not self._is_known():
            self._answer(401, {"error": {"code": 401, "message": "Invalid API Key"}})
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
            self._answer(404, {"error": {"code": 404, "message": "no such page"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._misbehaves():
            return
        if not self._is_known():
            self._answer(401, {"error": {"code": 401, "message": "Invalid API Key"}})
        elif self.path == "/slots/0?action=erase":
            self.server.warm = 0
            self._answer(200, {"id_slot": 0, "n_erased": 1})
        elif self.path == "/tokenize":
            self._answer(200, {"tokens": [100 + place for place, _ in enumerate(body["content"].split())]})
        elif self.path == "/completion" and self._is_too_long(body):
            self._answer(400, {"error": {"code": 400, "message": TOO_LONG}})
        elif self.path == "/completion":
            self.server.keep("requests", body)
            self._complete(body)
        else:
            self._answer(200, {"tokens": []})

    def log_message(self, *_: object) -> None:
        pass

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

    def _is_known(self) -> bool:
        if self.server.behaviour.open_to_all or not self.server.key:
            return True
        return self.headers.get("Authorization") == f"Bearer {self.server.key}"

    def _answer(self, status: int, what: object) -> None:
        data = (what if isinstance(what, str) else json.dumps(what)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _event(self, what: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(what, ensure_ascii=False)}\n\n".encode())
        self.wfile.flush()

    def _draft_size(self, body: dict[str, Any]) -> int:
        behaviour, size = self.server.behaviour, self.server.n_max
        if not self.server.has_drafter or not behaviour.drafts:
            return 0
        if behaviour.caches_to_draft and not body["cache_prompt"]:
            return 0
        if behaviour.per_request:
            size = min(body.get("speculative.n_max", size), behaviour.largest)
        return size

    def _complete(self, body: dict[str, Any]) -> None:
        prompt, n = body["prompt"], body["n_predict"]
        if body.get("n_probs"):
            self._answer(200, self.server.behaviour.ranks or _ranked(prompt))
            return
        if not body["stream"]:
            self.server.drafted_for = prompt
            whole = {"prompt_n": len(prompt), "predicted_n": n, "predicted_ms": MS_PER_ROUND * n}
            self._answer(200, {"content": "words", "stop": True, "timings": whole})
            _log(_SUMMARY)
            return
        if "@long" in prompt:
            self._answer(400, {"error": {"code": 400, "message": TOO_LONG}})
            return
        if "@busy" in prompt:
            self._answer(500, {"error": {"code": 500, "message": "something odd"}})
            return
        if "@unavailable" in prompt:
            self._answer(503, {"error": {"code": 503, "message": "no slot is free"}})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        if "@hang" in prompt:
            time.sleep(60)
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
        evaluated = len(prompt.split()) if isinstance(prompt, str) else len(prompt)
        fresh = evaluated - (self.server.warm if body["cache_prompt"] else 0)
        self.server.warm = evaluated
        begun = time.monotonic()
        slower = 1 + behaviour.noise * ((os.getpid() * 7919 + evaluated) % 13) / 13

        def timings() -> dict[str, Any]:
            said: dict[str, Any] = {"prompt_n": fresh, "prompt_ms": 10.0, "prompt_per_second": 100.0 * fresh}
            told_ms, took_ms = ms_per_round * rounds * slower, 1000 * (time.monotonic() - begun)
            # on a busy machine it may have taken far longer than the tests expect: then it says so
            told_ms = took_ms if took_ms > 2 * told_ms + 10 else told_ms
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
                self.server.places += [0] * (place + 1 - len(self.server.places))
                self.server.places[place] += 1 + self.server.behaviour.miscounts
            for _ in range(1 if behaviour.counts_ahead and done >= n else match + 1):
                written += 1
                done += not behaviour.counts_ahead
                word = "\u2028" if "@wide" in prompt else WORDS[(written - 1) % len(WORDS)]
                self._event({"content": word, "tokens": [written], "stop": False, "timings": timings()})
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
        self._event({"content": "", "tokens": [], "stop": True, "truncated": False, "timings": timings()})


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


if __name__ == "__main__":
    _folder, _behaviour, *_argv = sys.argv[1:]
    _fake = _Server(Path(_folder), Behaviour(**json.loads(_behaviour)), _argv)
    _log(f"main: server is listening on http://127.0.0.1:{_fake.server_port}")
    _fake.serve_forever()
