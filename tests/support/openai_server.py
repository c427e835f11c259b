"""A stand-in for servers that run already, in a thread: llama-server, vLLM, SGLang or another one.

It streams the same words as the other fakes in OpenAI's format, and accepts all drafted tokens in one round
and none in the next. A word of ``FAULTS`` in a prompt makes it fail.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.fake_server import WORDS

MODEL = "tiny-model"
OWNERS = {"llama-server": "llamacpp", "vLLM": "vllm", "SGLang": "sglang", "other": "someone"}
FAULTS = ("@busy", "@unavailable", "@cut", "@garbage", "@error", "@hang")


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


class _Handler(BaseHTTPRequestHandler):
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
            self._send(200, {"object": "list", "data": listed})
        elif self.path == "/metrics" and fake.has_metrics:
            self._send(200, fake.metrics())
        elif (fake.software, self.path) in pages:
            self._send(200, pages[fake.software, self.path])
        else:
            self._send(404, {"error": {"code": 404, "message": "no such page"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._is_answered(body):
            return
        if self.path == "/tokenize":
            self._send(200, {"tokens": [7 for _ in body["prompt"].split()]})
        elif self.path in {"/v1/completions", "/v1/chat/completions"}:
            self._complete(body)
        else:
            self._send(404, {"error": {"code": 404, "message": "no such page"}})

    def log_message(self, *_: object) -> None:
        pass

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
        elif fake.key and self.headers.get("Authorization") != f"Bearer {fake.key}":
            self._send(401, {"error": {"code": 401, "message": "Invalid API Key"}})
        elif self.path in fake.answers:
            self._send(200, fake.answers[self.path])
        else:
            return False
        return True

    def _send(self, status: int, what: object) -> None:
        data = (what if isinstance(what, str) else json.dumps(what)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _event(self, what: object) -> None:
        self.wfile.write(f"data: {what if isinstance(what, str) else json.dumps(what)}\n\n".encode())
        self.wfile.flush()

    def _complete(self, body: dict[str, Any]) -> None:
        fake, is_chat = self.fake, "messages" in body
        prompt = body["messages"][-1]["content"] if is_chat else body["prompt"]
        if "@busy" in prompt:
            self._send(500, {"error": {"code": 500, "message": "something odd"}})
            return
        if "@unavailable" in prompt:
            self._send(503, {"error": {"code": 503, "message": "no room"}})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        if "@hang" in prompt:
            time.sleep(60)
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
            last["timings"] = {"prompt_n": len(prompt.split()), "prompt_per_second": 100.0}
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
    handler = type("Handler", (_Handler,), {"fake": fake})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
