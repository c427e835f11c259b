# ruff: noqa: E501  # the logs are as llama.cpp prints them
from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import pytest
from hypothesis import example, given, settings, strategies as st

from ggufspec.domain import Program, Sample, Status
from ggufspec.errors import LogError
from ggufspec.llama.logs.parsing import diagnose, parse

HEAD = """\
build: 4094 (5e1ed95) with cc (Debian 12.2.0) for x86_64-linux-gnu
llama_model_loader: loaded meta data with 25 key-value pairs and 75 tensors from target.gguf
llm_load_tensors: offloading 8 repeating layers to GPU
llm_load_tensors: offloaded 9/9 layers to GPU
llm_load_tensors:   CPU_Mapped model buffer size =     1.06 MiB
llm_load_tensors:        CUDA0 model buffer size =    27.13 MiB
llama_kv_cache_init:      CUDA0 KV buffer size =     4.00 MiB
llama_model_loader: loaded meta data with 25 key-value pairs and 21 tensors from drafter.gguf
llm_load_tensors: offloaded 2/3 layers to GPU
llm_load_tensors:        CUDA1 model buffer size =     1.70 MiB
"""
UNHURRIED = settings(deadline=None, max_examples=60)  # busy machines are no failures
TEXT = "\n\n<s> Once upon a time there was a lantern.\nIt shone: error: 42 = 17.\n\n"
PERF = "llama_perf_context_print: "
EMPTY_EVAL = (
    "       eval time =       0.00 ms /     1 runs   (    0.00 ms per token,      inf tokens per second)"
)


def block(
    load: float = 12.0, prompt: int = 7, prompt_ms: float = 30.0, runs: int = 31, eval_ms: float = 200.0
) -> str:
    """A program's timings, as b3750 to b7114 print them."""
    return f"""\
{PERF}       load time = {load:10.2f} ms
{PERF}prompt eval time = {prompt_ms:10.2f} ms / {prompt:5d} tokens ({prompt_ms / prompt:8.2f} ms per token, {1e3 / prompt_ms * prompt:8.2f} tokens per second)
{PERF}       eval time = {eval_ms:10.2f} ms / {runs:5d} runs   ({eval_ms / runs:8.2f} ms per token, {1e3 / eval_ms * runs:8.2f} tokens per second)
{PERF}      total time = {prompt_ms + eval_ms:10.2f} ms / {prompt + runs:5d} tokens
"""


def numbers(
    prompt: int = 7,
    prompt_s: float = 0.03,
    answer: int = 34,
    answer_s: float = 0.2,
    n_draft: int = 3,
    n_drafted: int = 39,
    n_accept: int = 20,
) -> str:
    """The lines of a summary that carry numbers."""
    accept = f"{100 * n_accept / n_drafted:.3f}" if n_drafted else "-nan"
    return (
        f"encoded {prompt:4d} tokens in {prompt_s:8.3f} seconds, speed: {prompt / prompt_s:8.3f} t/s\n"
        f"decoded {answer:4d} tokens in {answer_s:8.3f} seconds, speed: {answer / answer_s:8.3f} t/s\n"
        f"\nn_draft   = {n_draft}\nn_predict = {answer}\nn_drafted = {n_drafted}\nn_accept  = {n_accept}\n"
        f"accept    = {accept}%\n"
    )


def summary(load: float = 46.5, **values: float) -> str:
    """A drafting program's whole closing statement."""
    return f"{numbers(**values)}\ndraft:\n\n{block(load=5)}\ntarget:\n\n{block(load=load)}\n\n"  # type: ignore[arg-type]


def as_jsonl(log: str, text: str) -> str:
    """What `--log-jsonl` would have written."""
    lines, words = (
        [
            json.dumps({"type": "log", "time": 1, "level": level, "msg": line})
            for line in part.splitlines(True)
        ]
        for level, part in (("info", log), ("none", text))
    )
    head = len(HEAD.splitlines())
    return "\n".join([*lines[:head], *words, *lines[head:], ""])


def each_line(log: str, form: str) -> str:
    """Put something before each line; ``{0}`` and ``{1}`` are its number, in thousands and below."""
    return "".join(
        form.format(f"{n // 1000:03d}", f"{n % 1000:03d}") + line
        for n, line in enumerate(log.splitlines(True))
    )


def prefixed(log: str) -> str:
    return each_line(log, "0.00.{0}.{1} I ")


def coloured(log: str) -> str:
    return each_line(log, "\x1b[34m0.00.{0}.{1}\x1b[0m \x1b[32mI \x1b[0m")


DIALECTS: Mapping[str, Callable[[str], str]] = {
    "plain": lambda log: HEAD + TEXT + log,
    "prefixed": lambda log: prefixed(HEAD) + TEXT + prefixed(log),
    "levels only": lambda log: each_line(HEAD + log, "I "),
    "coloured": lambda log: coloured(HEAD) + TEXT + coloured(log),
    "jsonl": lambda log: as_jsonl(HEAD + log, TEXT),
    "crlf": lambda log: (HEAD + TEXT + log).replace("\n", "\r\n"),
    "docker": lambda log: each_line(HEAD + TEXT + log, "2024-05-01T12:00:00.123456789Z "),
    "compose": lambda log: each_line(HEAD + TEXT + log, "llama-1  | "),
    "stderr alone": lambda log: HEAD + log,
    "summary alone": lambda log: log,
    "text on the first line": lambda log: f"{HEAD}Once upon a time{log}",
    "stdout behind stderr": lambda log: HEAD + log + TEXT,
    "stdout before stderr": lambda log: TEXT + HEAD + log,
}

VALUES = st.fixed_dictionaries(
    {
        "prompt": st.integers(1, 9999),
        "prompt_s": st.floats(0.001, 500),
        "answer": st.integers(1, 9999),
        "answer_s": st.floats(0.001, 500),
        "n_draft": st.integers(0, 64),
    }
)
COUNTS = st.integers(0, 5000).flatmap(lambda drafted: st.tuples(st.just(drafted), st.integers(0, drafted)))


@pytest.mark.parametrize("dialect", DIALECTS)
@UNHURRIED
@given(values=VALUES, counts=COUNTS)
def test_every_dialect_gives_the_numbers_back(
    dialect: str, values: dict[str, float], counts: tuple[int, int]
) -> None:
    drafted, accepted = counts
    sample = parse(DIALECTS[dialect](summary(**values, n_drafted=drafted, n_accept=accepted)))
    assert sample.status is (Status.OK if drafted else Status.DRAFTING_INACTIVE)
    assert (sample.prompt_tokens, sample.gen_tokens) == (values["prompt"], values["answer"])
    assert sample.gen_tps == pytest.approx(values["answer"] / values["answer_s"], abs=0.001)
    assert (sample.n_draft, sample.n_drafted, sample.n_accepted) == (values["n_draft"], drafted, accepted)
    assert sample.accept_rate == (accepted / drafted if drafted else None)
    assert sample.load_ms == 46.5


def test_the_head_is_the_targets() -> None:
    sample = parse(HEAD + TEXT + summary())
    assert (sample.target.offloaded_layers, sample.target.total_layers) == (9, 9)
    assert sample.devices == ("CPU", "CUDA0")
    assert sample.build == "4094 (5e1ed95)"
    head = HEAD.replace("CPU_Mapped", "CUDA_Host ").replace("      CUDA0 model", "CUDA0_Split model")
    assert parse(head + summary()).devices == ("CPU", "CUDA0")  # host memory of a device is the processor's


FAKES = {
    "numbers": numbers(answer=99, n_drafted=10, n_accept=9),
    "whole statement": summary(load=1.0, answer=99, n_drafted=10, n_accept=9),
    "whole log": HEAD + summary(load=1.0, answer=99, n_drafted=10, n_accept=9),
    "with a prefix": prefixed(summary(load=1.0, answer=99, n_drafted=10, n_accept=9)),
    "timings": block(load=1.0),
    "server": "slot print_timing: id 0 | task 0 | \n       eval time =  9.00 ms / 9 tokens ( 1.00 ms per token, 1000.00 tokens per second)\n",
    "wrong arithmetic": summary(load=1.0).replace("51.282", "99.000"),
}


@pytest.mark.parametrize("place", ["before", "inside", "on one line", "behind"])
@pytest.mark.parametrize("fake", FAKES)
@pytest.mark.parametrize("style", ["plain", "prefixed", "jsonl"])
def test_generated_text_never_wins(fake: str, place: str, style: str) -> None:
    fake_text = FAKES[fake]
    text = {
        "before": fake_text + TEXT,
        "inside": TEXT + fake_text + TEXT,
        "on one line": f"Once upon a time {fake_text}and so on\n\n",
        "behind": "",  # stdout put behind stderr
    }[place]
    behind = f"{TEXT}{fake_text}\nand so on\n" if place == "behind" else ""
    log = {
        "plain": HEAD + text + summary() + behind,
        "prefixed": prefixed(HEAD) + text + prefixed(summary()) + behind,
        "jsonl": as_jsonl(HEAD + summary(), text + behind),
    }[style]
    sample = parse(log)
    assert (sample.status, sample.gen_tokens, sample.n_drafted) == (Status.OK, 34, 39)
    assert sample.load_ms == 46.5


@pytest.mark.parametrize("fake", FAKES)
def test_plain_programs_are_not_fooled_either(fake: str) -> None:
    sample = parse(f"{HEAD}{TEXT}{FAKES[fake]}\nand so on\n\n{block(load=77.0)}")
    assert (sample.program, sample.load_ms, sample.gen_tokens) == (Program.PLAIN, 77.0, 31)


@pytest.mark.parametrize("fake", ["numbers", "whole statement", "wrong arithmetic"])
def test_a_fake_does_not_stand_in_for_a_lost_summary(fake: str) -> None:
    head = prefixed(HEAD) if fake == "whole statement" else HEAD
    sample = parse(f"{head}{TEXT}{FAKES[fake]}and so on\n")
    assert sample.status is Status.SUMMARY_LOST
    assert sample.gen_tokens is None


def test_odd_timings_are_absent() -> None:
    log = block(runs=1, eval_ms=1.0).splitlines()
    log[2] = PERF + EMPTY_EVAL
    sample = parse("\n".join(log) + "\n")
    assert sample.status is Status.OK
    assert (sample.gen_tokens, sample.gen_tps, sample.gen_s) == (None, None, None)
    assert sample.prompt_tps == pytest.approx(7 / 0.03, abs=0.01)
    torn = numbers().replace("   0.030 seconds, speed:  233.333", "   0.000 seconds, speed:      inf")
    sample = parse(torn)
    assert (sample.prompt_tokens, sample.prompt_tps) == (7, None)
    sampling = (
        "common_perf_print:    sampling time =       1.57 ms\n"
        "common_perf_print:    samplers time =       0.94 ms /    39 tokens\n"
    )
    assert parse(sampling + block().replace(PERF, "common_perf_print: ")).sampling_s == pytest.approx(0.00157)


def test_a_message_in_pieces_is_one_message() -> None:
    diagnosis = diagnose(
        "0.00.078.458 E main: draft model vocab must match target model to use speculation but 0.00.078.460 E "
        "token 600 content differs - target 'ool', draft '~~~'\n"
    )
    assert diagnosis.status is Status.DRAFTER_REFUSED
    assert diagnosis.line.endswith(
        "to use speculation but token 600 content differs - target 'ool', draft '~~~'"
    )


def test_a_log_of_two_runs_is_the_last_run() -> None:
    log = prefixed(HEAD + summary(answer=99) + HEAD + summary(answer=34))
    assert parse(log).gen_tokens == 34
    assert parse(HEAD + block(load=1.0) + HEAD + block(load=2.0)).load_ms == 2.0


def test_which_drafting_program_it_was_shows_in_the_counts() -> None:
    for n_drafted, program in {39: Program.TREE, 30: Program.SIMPLE}.items():
        assert parse(HEAD + TEXT + summary(n_drafted=n_drafted)).program is program


def request(prompt: int, answer: int, ms: float) -> str:
    """What a server logs of one request whose prompt and answer take the same time."""
    return (
        f"slot print_timing: id  0 | task 0 | \n"
        f"prompt eval time = {ms:10.2f} ms / {prompt:5d} tokens (    1.00 ms per token, {prompt / ms * 1e3:8.2f} tokens per second)\n"
        f"       eval time = {ms:10.2f} ms / {answer:5d} tokens (    1.00 ms per token, {answer / ms * 1e3:8.2f} tokens per second)\n"
        f"      total time = {2 * ms:10.2f} ms / {prompt + answer:5d} tokens\n"
    )


def test_requests_of_a_server_add_up() -> None:
    drafts = "slot print_timing: id  0 | task 0 | \ndraft acceptance rate = 0.50000 (   {} accepted / {} generated)\n"
    both = request(10, 20, 100.0) + drafts.format(10, 20) + request(30, 40, 300.0) + drafts.format(20, 40)
    sample = parse(HEAD + both)
    assert (sample.program, sample.status) == (Program.SERVER, Status.OK)
    assert (sample.prompt_tokens, sample.gen_tokens, sample.gen_s) == (40, 60, 0.4)
    assert sample.gen_tps == pytest.approx(150, rel=1e-3)
    assert (sample.n_drafted, sample.n_accepted) == (60, 30)
    cannot = "0.00.180.354 E srv    load_model: failed to initialize speculative decoding context\n"
    sample = parse(cannot + HEAD + request(10, 20, 100.0))
    assert (sample.status, sample.gen_tokens, sample.gen_tps) == (Status.DRAFTING_INACTIVE, 20, 200.0)


def test_a_known_program_is_believed() -> None:
    assert parse(HEAD + summary(), program=Program.SIMPLE).program is Program.SIMPLE
    assert parse(HEAD + TEXT + numbers() + "\n\n" + block(), program=Program.PLAIN).gen_tokens == 31
    assert parse(HEAD + TEXT + FAKES["server"], program=Program.PLAIN).status is Status.SUMMARY_LOST


FAILURES = {
    "llama_load_model_from_file: failed to load model": Status.LOAD_FAILED,
    "main: error: prompt is too long (641 tokens, max 252)": Status.PROMPT_TOO_LONG,
    "main: error: draft model vocab must match target model to use speculation but ": Status.DRAFTER_REFUSED,
    "0.00.078.460 E spec common_specu: the target and draft vocabs are not compatible": Status.DRAFTER_REFUSED,
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9 MiB on device 0: cudaMalloc failed: out of memory": Status.OUT_OF_MEMORY,
    "ggml_vulkan: Device memory allocation of size 9 failed.\nggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory": Status.OUT_OF_MEMORY,
    "alloc_tensor_range: failed to allocate RPC0[127.0.0.1:44025] buffer of size 28444672": Status.OUT_OF_MEMORY,
    "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc": Status.OUT_OF_MEMORY,
    "llama_state_save_file: No space left on device": Status.DISK_FULL,
    "/src/llama.cpp:1: GGML_ASSERT(n_tokens <= n_batch) failed": Status.CRASHED,
    "error: invalid argument: -ngld": Status.FAILED,
}


@pytest.mark.parametrize("message", FAILURES)
def test_a_failure_names_its_cause(message: str) -> None:
    # what fails to load comes before a crash
    later = "llama_init_from_gpt_params: error: failed to create context\n"
    is_last = FAILURES[message] in {Status.CRASHED, Status.FAILED}
    diagnosis = diagnose(f"{HEAD}{message}\n{'' if is_last else later}")
    assert diagnosis.status is FAILURES[message]
    assert diagnosis.line in message
    assert parse(f"{HEAD}{message}\n").status is FAILURES[message]


@pytest.mark.parametrize(
    "text",
    [
        "He said: failed to load model, out of memory.",
        "WARNING: failed to allocate 512.00 MB of pinned memory",
        "the draft model 'd.gguf' is not compatible with the target model 't.gguf'. tokens will be translated",
    ],
)
def test_text_and_warnings_are_no_causes(text: str) -> None:
    assert diagnose(f"{HEAD}{text}\n") is None


def test_a_good_run_is_not_diagnosed() -> None:
    log = f"{HEAD}llama_x: failed to allocate a little\n{TEXT}{summary()}"
    assert parse(log).status is Status.OK


@pytest.mark.parametrize(
    "text", ["", "\n", "hello", "Traceback (most recent call last):\nerror: x\n", "{}\n", "\0" * 99]
)
def test_foreign_text_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(LogError) as caught:
        parse(text)
    assert caught.value.hint


@UNHURRIED
@given(data=st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
@example(data=b"encoded 9 tokens in 9 seconds, speed: 9..9 t/s\n")
@example(data=b"encoded 99999999999999999999 tokens in 0 seconds, speed: inf t/s\n")
@example(data=b'{"msg":' * 50 + b" load time = \n")
@example(data=b'{"type":"log","msg":["encoded "]}\n')
def test_bytes_of_any_kind_do_no_harm(data: bytes) -> None:
    for log in (data, (HEAD + TEXT + summary()).encode()[: len(data) * 9] + data + summary().encode()):
        with suppress(LogError):
            assert isinstance(parse(log), Sample)


HOSTILE = {
    "beginnings": b"encoded    1 tokens in    1.000 seconds, speed:    1.000 t/s\n",
    "blocks": b"llama_print_timings:        load time =       1.00 ms\n",
    "blank": b"\n",
    "one line": b"encoded  load time = eval time 0.00.000.000 I ",
    "spaces": b" " * 50,
    "digits": b"0.00.",
    "requests": b"prompt eval time = 1.00 ms / 1 tokens ( 1.00 ms per token, 1.00 tokens per second)\n",
    "json": b'{"type":"log","level":"info","msg":"encoded 1 tokens in\\n\\n load time = "}\n',
}


@pytest.mark.parametrize("piece", HOSTILE)
def test_time_grows_with_the_length_and_not_faster(piece: str) -> None:
    def seconds(size: int) -> float:
        data = HEAD.encode() + HOSTILE[piece] * (size // len(HOSTILE[piece]))
        started = time.process_time()
        parse(data)
        return time.process_time() - started

    small = min(seconds(1 << 16) for _ in range(3))
    assert min(seconds(1 << 19) for _ in range(2)) < 8 * 4 * small + 0.1
