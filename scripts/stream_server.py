"""A stand-in for llama-server that answers at once, with bytes that were built before: to measure clients.

    python scripts/stream_server.py TOKENS blocks|chunks

It prints its port and serves until its standard input ends. With ``blocks``, an answer is one piece of
bytes; with ``chunks``, each event is an HTTP chunk of its own, as llama-server sends it. Every path gets the
same answer: ``/completion`` in llama-server's words, any other in OpenAI's.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress

WORD = " word"


def events(tokens: int) -> list[bytes]:
    """The events of a completion as llama-server words them."""
    timings = {"prompt_n": 8, "prompt_per_second": 1e6, "predicted_n": tokens, "predicted_ms": 1.0}
    said = [{"index": 0, "content": WORD, "tokens": [], "stop": False, "id_slot": 0} for _ in range(tokens)]
    last = {"index": 0, "content": "", "stop": True, "truncated": False, "timings": timings}
    return [f"data: {json.dumps(event)}\n\n".encode() for event in (*said, last)]


def openai_events(tokens: int, *, chat: bool) -> list[bytes]:
    """The events of a completion, or of a chat, as OpenAI words them."""

    def event(text: str, finish: str | None) -> dict[str, object]:
        piece = {"delta": {"content": text}} if chat else {"text": text}
        kind = "chat.completion.chunk" if chat else "text_completion"
        choice = {"index": 0, "finish_reason": finish, **piece}
        return {"id": "x", "object": kind, "created": 1, "model": "fake", "choices": [choice]}

    usage = {"prompt_tokens": 8, "completion_tokens": tokens, "total_tokens": tokens + 8}
    said = [event(WORD, None) for _ in range(tokens)] + [event("", "stop") | {"usage": usage}]
    return [*(f"data: {json.dumps(each)}\n\n".encode() for each in said), b"data: [DONE]\n\n"]


def response(sent: list[bytes], *, chunked: bool) -> bytes:
    """The complete response; its end is the end of the connection."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"
    if not chunked:
        return head + b"\r\n" + b"".join(sent)
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in sent)
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def document(value: object) -> bytes:
    """A response with JSON."""
    body = json.dumps(value).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


async def serve(tokens: int, *, chunked: bool) -> None:
    answers = {
        b"/completion": response(events(tokens), chunked=chunked),
        b"/v1/completions": response(openai_events(tokens, chat=False), chunked=chunked),
        b"/v1/chat/completions": response(openai_events(tokens, chat=True), chunked=chunked),
        b"/v1/models": document({"object": "list", "data": [{"id": "fake", "object": "model"}]}),
    }

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ", 2)[1]
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            if lengths:
                await reader.readexactly(int(lengths[0].partition(b":")[2]))
            writer.write(answers.get(path, document({"status": "ok"})))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=1 << 20, backlog=512)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), chunked=sys.argv[2] == "chunks"))
