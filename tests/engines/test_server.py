"""llama-server over HTTP: servers of every era behave or are dealt with."""

from __future__ import annotations

import json
import os
import signal
import stat
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec import engines
from ggufspec.domain import Drafting, Method, Prompt, Request, Role, RunSpec, Sample, Status
from ggufspec.engines import Measurement
from ggufspec.engines.server.engine import ServerEngine
from ggufspec.llama.install import installs
from ggufspec.llama.server import launching
from ggufspec.prompts import PromptTurns
from tests.support import fake_server, shell, values
from tests.support.fake_server import SPRING_2026, SUMMER_2025, Behaviour

DRAFTING = values.spec(Role.DRAFTING, draft=3)
LONGER = values.spec(Role.DRAFTING, draft=5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "llama"


def _engine(folder: Path, behaviour: Behaviour | None = None, *, capacity: int | None = 9) -> ServerEngine:
    fake_server.program(folder / "llama-server", behaviour)
    engine = engines.make("server", installs.find_install(folder), timeout_s=20, capacity=capacity)
    assert isinstance(engine, ServerEngine)
    return engine


def _samples(engine: ServerEngine, *specs: RunSpec, log: Path) -> Iterator[Sample]:
    for number, spec in enumerate(specs):
        yield engine.measure(spec, log / str(number)).sample


def _measured(folder: Path, spec: RunSpec = DRAFTING, behaviour: Behaviour | None = None) -> Measurement:
    """What one run of a server of its own gives."""
    with _engine(folder, behaviour) as engine:
        return engine.measure(spec, folder / "log")


def _alive(folder: Path) -> list[bool]:
    return [shell.still_runs(start["pid"], start["at"]) for start in fake_server.starts(folder)]


def test_models_are_loaded_once_for_many_prompts(folder: Path, tmp_path: Path) -> None:
    specs = [values.spec(Role.DRAFTING, prompt=f"p{i}", draft=3) for i in range(4)]
    with _engine(folder) as engine:
        samples = [*_samples(engine, *specs, log=tmp_path)]
    assert {sample.status for sample in samples} == {Status.OK}
    assert [sample.load_ms is not None for sample in samples] == [True, False, False, False]
    assert _alive(folder) == [False]


def test_a_request_asks_for_what_the_binaries_are_told(folder: Path) -> None:
    _measured(folder, values.spec())
    (asked,) = fake_server.requests(folder)
    assert asked["prompt"] == "Text of p1"
    sampling = {name: asked[name] for name in ("n_predict", "temperature", "top_k", "top_p", "min_p", "seed")}
    assert sampling == {"n_predict": 32, "temperature": 0, "top_k": 1, "top_p": 1, "min_p": 0, "seed": 1}
    assert (asked["cache_prompt"], asked["ignore_eos"], asked["stream"]) == (False, False, True)


def test_a_chat_is_sent_as_it_is_and_its_answer_keeps_rounds(folder: Path) -> None:
    fields = {"messages": [{"role": "user", "content": "Go"}], "stop": ["."]}
    prompt = Prompt(id="chat", text="Go", request=Request.of(fields))
    sample = _measured(folder, replace(DRAFTING, prompt=prompt)).sample
    asked = fake_server.requests(folder)[-1]
    assert {name: asked.get(name) for name in (*fields, "prompt")} == {**fields, "prompt": None}
    assert (sample.status, sample.gen_tokens, bool(sample.n_accepted)) == (Status.OK, 32, True)
    assert (sample.text or "").startswith("<think>")
    assert sum(one.accepted for one in sample.rounds or ()) == sample.n_accepted


def test_the_key_stays_between_us_and_the_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = folder / "scratch"
    scratch.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with _engine(folder) as engine:
        measured = engine.measure(DRAFTING, folder / "log")
        (start,) = fake_server.starts(folder)
        files = [path for path in scratch.glob("ggufspec-*/**/*") if path.is_file()]
        assert files
        assert not any(
            start["key"].encode() in path.read_bytes() for path in files
        )  # it is removed once read
    assert not any(scratch.iterdir())
    assert len(start["key"]) > 32
    assert start["key_mode"] == stat.S_IRUSR | stat.S_IWUSR
    written = [(folder / f"log.{ending}").read_text() for ending in ("out", "err")]
    for text in (*start["argv"], *measured.argv, str(measured), *written):
        assert start["key"] not in text
    assert measured.argv[measured.argv.index("--port") + 1] == "PORT"


def test_today_every_draft_size_needs_a_load_of_its_own(folder: Path, tmp_path: Path) -> None:
    with _engine(folder) as engine:
        samples = [*_samples(engine, values.spec(), DRAFTING, LONGER, DRAFTING, log=tmp_path)]
        assert engine.load_key(DRAFTING) != engine.load_key(LONGER)
    assert [sample.n_draft for sample in samples] == [None, 3, 5, 3]
    assert [max(one.drafted for one in sample.rounds or ()) for sample in samples[1:]] == [3, 5, 3]
    assert len(fake_server.starts(folder)) == 3
    assert not any("speculative.n_max" in asked for asked in fake_server.requests(folder)[-1:])


@pytest.mark.parametrize("era", [SPRING_2026, SUMMER_2025])
def test_one_load_serves_all_draft_sizes_of_requests(folder: Path, tmp_path: Path, era: Behaviour) -> None:
    alone = values.spec()
    with _engine(folder, era) as engine:
        before = [engine.load_key(spec) for spec in (alone, DRAFTING, LONGER)]
        samples = [*_samples(engine, alone, DRAFTING, LONGER, alone, DRAFTING, log=tmp_path)]
        after = [engine.load_key(spec) for spec in (alone, DRAFTING, LONGER)]
        assert _alive(folder) == [False, True]
    assert (len(set(before)), len(set(after))) == (3, 1)
    assert {sample.status for sample in samples} == {Status.OK}
    assert [sample.n_drafted is None for sample in samples] == [True, False, False, True, False]
    assert [max(one.drafted for one in samples[i].rounds or ()) for i in (1, 2, 4)] == [3, 5, 3]
    assert {sample.prompt_tokens for sample in samples} == {3}  # cold, whatever the cache is allowed
    kept = json.loads((tmp_path / "1.out").read_text().splitlines()[0])["run"]["capabilities"]
    assert kept == {
        "slot_drafts": True,
        "drafts": True,
        "per_request": True,
        "caches_to_draft": era.caches_to_draft,
        "remembers": True,
    }


def _talk(spec: RunSpec, n_turns: int = 3, name: str = "talk") -> list[RunSpec]:
    """The turns of a warm conversation, each after what the fake answers."""
    first = Prompt(id=name, text="one two three four ", followups=("more",) * (n_turns - 1))
    turns = PromptTurns(first, None, warm=True)
    while not turns.is_complete:
        turns.add_answer("".join(fake_server.WORDS[place % 13] for place in range(spec.n_predict)) + " ")
    return [replace(spec, prompt=prompt) for prompt in turns.made]


@pytest.mark.parametrize("era", [Behaviour(), SPRING_2026, SUMMER_2025])
def test_later_turns_find_the_conversation_in_the_cache(folder: Path, tmp_path: Path, era: Behaviour) -> None:
    turns = _talk(replace(DRAFTING, n_predict=11))
    with _engine(folder, era) as engine:
        samples = [*_samples(engine, *turns, log=tmp_path)]
        # the last turn once more, and a turn after another conversation: the slot reads the history first
        again, later = _samples(engine, turns[2], *_talk(turns[0], name="other")[1:2], log=tmp_path)
    assert [(one.cached_tokens, one.kept_tokens) for one in samples] == [(0, None), (14, 4), (26, 16)]
    assert [one.prompt_tokens for one in samples] == [4, 2, 2]
    assert (again.prompt_tokens, again.cached_tokens, again.kept_tokens) == (1, 27, 27)
    assert later.cached_tokens == 15
    asked = [one for one in fake_server.requests(folder) if one["n_predict"] == 11]
    assert [one["cache_prompt"] for one in asked] == [era.caches_to_draft, True, True, True, True]


def test_each_arm_of_a_shared_server_has_the_cache_of_its_own_turns(folder: Path, tmp_path: Path) -> None:
    alone, drafting = (_talk(replace(spec, n_predict=11), 2) for spec in (values.spec(), DRAFTING))
    with _engine(folder, SPRING_2026) as engine:
        engine.measure(drafting[0], tmp_path / "first")
        (first, last) = _samples(engine, alone[0], drafting[1], log=tmp_path)
    assert first.cached_tokens == 0
    assert last.kept_tokens == 15  # the history was read by this arm


def test_a_method_that_learns_has_a_load_for_each_conversation(folder: Path, tmp_path: Path) -> None:
    drafting = Drafting(n_max=8, method=Method.NGRAM_CACHE)
    spec = replace(values.spec(), role=Role.DRAFTING, drafting=drafting, n_predict=11)
    runs = [*_talk(spec), *_talk(spec, name="other"), spec]
    with _engine(folder) as engine:
        samples = [*_samples(engine, *runs, log=tmp_path)]
    assert [one.load_ms is not None for one in samples] == [True, False, False] * 2 + [True]
    assert [one.cached_tokens for one in samples] == [0, 14, 26] * 2 + [0]
    assert len(fake_server.starts(folder)) == 3


@pytest.mark.parametrize("era", [SPRING_2026, SUMMER_2025])
def test_a_repeated_prompt_is_drafted_anew(folder: Path, tmp_path: Path, era: Behaviour) -> None:
    with _engine(folder, era) as engine:
        first, again, longer = _samples(engine, DRAFTING, DRAFTING, LONGER, log=tmp_path)
    assert first.rounds == again.rounds
    assert longer.n_drafted
    assert (longer.n_accepted or 0) < longer.n_drafted
    assert (tmp_path / "1.err").read_text().count("total time") == 1  # what was asked in between is not there


@pytest.mark.parametrize("era", [SPRING_2026, SUMMER_2025])
def test_an_end_within_a_round_costs_only_text(folder: Path, tmp_path: Path, era: Behaviour) -> None:
    lengths = range(9, 17)
    with _engine(folder, era) as engine:
        specs = [replace(spec, n_predict=n) for n in lengths for spec in (values.spec(), LONGER)]
        samples = [*_samples(engine, *specs, log=tmp_path)]
    unsent = set()
    for n, alone, drafting in zip(lengths, samples[::2], samples[1::2], strict=True):
        assert alone.gen_tokens == drafting.gen_tokens == len(alone.tokens or ()) == n
        assert drafting.tokens
        assert drafting.rounds
        assert drafting.text
        assert (alone.tokens or ())[: len(drafting.tokens)] == drafting.tokens
        assert (alone.text or "").startswith(drafting.text)
        assert len(drafting.rounds) == drafting.n_rounds == n - 1 - (drafting.n_accepted or 0)
        assert not era.alternates or {one.drafted for one in drafting.rounds[1::2]} == {0}
        unsent.add(n - len(drafting.tokens))
    assert len(unsent) > 1
    assert max(unsent) <= 5


def test_a_shared_load_that_ended_is_not_taken_for_the_target_alone(folder: Path, tmp_path: Path) -> None:
    alone, drafter = values.spec(), values.spec(Role.DRAFTER)
    order = (DRAFTING, alone, drafter, alone, LONGER, alone, DRAFTING)
    with _engine(folder, Behaviour(per_request=True), capacity=1) as engine:
        samples = [*_samples(engine, *order, log=tmp_path)]
    assert {sample.status for sample in samples} == {Status.OK}
    assert [sample.n_draft for sample in samples if sample.n_drafted] == [3, 5, 3]
    loaded = ["--model-draft" in start["argv"] for start in fake_server.starts(folder)]
    assert loaded == [True, False, False, True]  # both, the drafter alone, the target alone, both


@pytest.mark.parametrize("era", [SPRING_2026, SUMMER_2025, Behaviour()])
def test_each_arm_can_have_a_load_of_its_own(folder: Path, tmp_path: Path, era: Behaviour) -> None:
    alone = values.spec()
    twin = replace(alone, sampling=replace(alone.sampling, seed=2))
    other = replace(DRAFTING, prompt=Prompt(id="p2", text="Text of p2"))
    fake_server.program(folder / "llama-server", era)
    install = installs.find_install(folder)
    with engines.make("server", install, timeout_s=20, capacity=9, per_arm=True) as engine:
        order = (alone, DRAFTING, twin, LONGER, other, alone)
        runs = [engine.measure(spec, tmp_path / str(number)) for number, spec in enumerate(order)]
        assert [run.sample.status for run in runs] == [Status.OK] * 6
        assert [run.load for run in runs] == [0, 1, 2, 3, 1, 0]
        engine.close()
        assert engine.measure(alone, tmp_path / "new").load == 4
    assert len(fake_server.starts(folder)) == 5


def test_a_draft_size_that_is_capped_is_not_taken_for_free_choice(folder: Path, tmp_path: Path) -> None:
    with _engine(folder, Behaviour(per_request=True, largest=3)) as engine:
        samples = [*_samples(engine, DRAFTING, LONGER, log=tmp_path)]
    assert len(fake_server.starts(folder)) == 2
    assert [sample.n_draft for sample in samples] == [3, 5]


def test_a_silently_idle_drafter_is_found_before_anything_is_measured(folder: Path) -> None:
    assert _measured(folder, DRAFTING, Behaviour(drafts=False)).sample.status is Status.DRAFTING_INACTIVE
    assert "Text of p1" not in {asked["prompt"] for asked in fake_server.requests(folder)}


def test_a_server_that_hides_its_slots_is_judged_by_its_counts(folder: Path) -> None:
    sample = _measured(folder, DRAFTING, Behaviour(slots=False, counts_places=False)).sample
    assert (sample.status, sample.accepted_at) == (Status.OK, (11, 6, 3))


def test_the_server_used_longest_ago_makes_room(folder: Path, tmp_path: Path) -> None:
    alone = values.spec()
    with _engine(folder, capacity=2) as engine:
        assert {
            sample.status for sample in _samples(engine, alone, DRAFTING, alone, LONGER, log=tmp_path)
        } == {Status.OK}
        assert _alive(folder) == [True, False, True]
    assert _alive(folder) == [False, False, False]


FAILING = {
    "@die": (Status.CRASHED, "died of SIGSEGV"),
    "@kill": (Status.OUT_OF_MEMORY, "killed by SIGKILL"),
    "@long": (Status.PROMPT_TOO_LONG, "exceeds the available context"),
    "@busy": (Status.FAILED, "HTTP 500: something odd"),
    "@error": (Status.OUT_OF_MEMORY, "failed to allocate"),
    "@cut": (Status.SUMMARY_LOST, "no end"),
    "@garbage": (Status.SUMMARY_LOST, "no end"),
    "@null": (Status.SUMMARY_LOST, "no usable timings"),
    "@reset": (Status.FAILED, "the connection to the server broke"),
    "@notjson": (Status.FAILED, "the server's answer cannot be read: JSON is malformed"),
    "@list": (Status.FAILED, "the server sent a line that is not JSON: data: ["),
    "@word": (Status.FAILED, "the server sent a line that is not JSON: data: nothing"),
    "@timings": (Status.FAILED, "got `array` - at `$.chunk.timings`"),
    "@counts": (Status.FAILED, "got `str` - at `$.chunk.timings.draft_n`"),
    "@content": (Status.FAILED, "got `array` - at `$.chunk.content`"),
    "@tokens": (Status.FAILED, "got `object` - at `$.chunk.tokens`"),
    "@string": (Status.OUT_OF_MEMORY, "HTTP 500: decode: failed to allocate buffer"),
}
"""What makes a request fail -> how, and why."""


def test_failing_requests_are_typed_and_the_next_ones_work(folder: Path, tmp_path: Path) -> None:
    with _engine(folder) as engine:
        for fault, (status, reason) in FAILING.items():
            measured = engine.measure(values.spec(prompt=fault), tmp_path / "bad")
            assert measured.sample.status is status, fault
            assert reason in (measured.error or ""), fault
            assert (measured.sample.text, measured.sample.decode_tps) == (None, None)
            assert engine.measure(values.spec(), tmp_path / "good").sample.status is Status.OK, fault
    assert len(fake_server.starts(folder)) == 3  # once more behind each that ends the server


def test_comments_and_line_breaks_of_other_scripts_break_no_answer(folder: Path, tmp_path: Path) -> None:
    specs = [values.spec(), *(values.spec(prompt=word) for word in ("@comment", "@wide"))]
    with _engine(folder) as engine:
        plain, commented, wide = _samples(engine, *specs, log=tmp_path)
    assert (commented.status, commented.text, wide.text) == (Status.OK, plain.text, "\u2028" * 32)


ODD = ("[]", "{}", "null", "5", '"word"', '[["a list"]]', '[{"speculative": "yes"}]', "<html>", "[" * 5000)
PLACES = "llamacpp:spec_decode_num_drafts_total 1\nllamacpp:spec_decode_num_accepted_tokens_per_pos_total"


@pytest.mark.parametrize(
    ("behaviour", "status", "error"),
    [
        *((Behaviour(answers={"/slots": answer}), Status.OK, "") for answer in ODD),
        *(
            (replace(SUMMER_2025, answers=dict.fromkeys(paths, answer)), Status.OK, "")
            for paths in [("/metrics", "/health", "/slots/0?action=erase")]
            for answer in ODD
        ),
        *(
            (Behaviour(answers={"/metrics": f'{PLACES}{{position="{place}"}} 4\n'}), Status.OK, "")
            for place in ("1", "9999999999")  # counts of some places are counts of none
        ),
        *((Behaviour(answers={"/completion": answer}), Status.SUMMARY_LOST, "no end") for answer in ODD[::2]),
        (Behaviour(slots=False, drafts=False), Status.DRAFTING_INACTIVE, ""),
        (Behaviour(miscounts=True), Status.OK, "/metrics counts"),
    ],
)
def test_odd_answers_change_nothing_or_are_typed(
    folder: Path, behaviour: Behaviour, status: Status, error: str
) -> None:
    measured = _measured(folder, DRAFTING, behaviour)
    assert measured.sample.status is status
    assert error in (measured.error or "")


@pytest.mark.parametrize("path", ["/health", "/tokenize", "/slots", "/metrics", "/completion"])
def test_an_endpoint_that_does_not_answer_is_a_time_out(folder: Path, path: str) -> None:
    with _engine(folder, Behaviour(hangs=path)) as engine:
        engine.timeout_s = 1.0
        sample = engine.measure(DRAFTING, folder / "log").sample
        assert (sample.status, sample.n_draft) == (Status.TIMED_OUT, 3)
        assert not any(_alive(folder))


@pytest.mark.parametrize(("fault", "error"), [("@trickle", "killed after "), ("@hang", "no answer in time")])
def test_an_answer_without_an_end_is_cut_off_and_its_server_killed(
    folder: Path, fault: str, error: str
) -> None:
    with _engine(folder) as engine:
        engine.measure(values.spec(), folder / "first")
        engine.timeout_s = 0.5
        measured = engine.measure(values.spec(prompt=fault), folder / "log")
        assert (measured.sample.status, (measured.error or "").startswith(error)) == (Status.TIMED_OUT, True)
        assert _alive(folder) == [False]
        engine.timeout_s = 20
        assert engine.measure(values.spec(), folder / "again").sample.status is Status.OK


def test_a_server_that_died_between_two_runs_is_started_again(folder: Path, tmp_path: Path) -> None:
    with _engine(folder) as engine:
        engine.measure(values.spec(), tmp_path / "log")
        pid = fake_server.starts(folder)[0]["pid"]
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert engine.measure(values.spec(), tmp_path / "log").sample.status is Status.OK


def test_loading_is_waited_for(folder: Path) -> None:
    sample = _measured(folder, values.spec(), Behaviour(loading_s=0.3)).sample
    assert sample.status is Status.OK
    assert sample.load_ms >= 300


def test_whoever_answers_without_our_key_is_not_our_server(folder: Path) -> None:
    measured = _measured(folder, values.spec(), Behaviour(open_to_all=True))
    assert measured.sample.status is Status.FAILED
    assert "no free port" in (measured.error or "")
    assert _alive(folder) == [False] * 3


def test_a_reserved_port_is_given_to_nobody_else() -> None:
    with launching._reserved_port() as first, launching._reserved_port() as second:
        assert first != second


def test_each_run_keeps_its_own_part_of_the_servers_log(folder: Path, tmp_path: Path) -> None:
    with _engine(folder) as engine:
        for sample in _samples(engine, values.spec(), values.spec(), log=tmp_path):
            assert values.models_of(sample)[0].total_layers == 7
    first, second = ((tmp_path / f"{name}.err").read_text() for name in "01")
    assert first.count("loading model") == first.count("total time") == 1
    assert (second.count("loading model"), second.count("total time")) == (0, 1)


def test_after_an_interrupt_nothing_goes_on_computing(folder: Path, tmp_path: Path) -> None:
    with _engine(folder) as engine:
        engine.measure(values.spec(), tmp_path / "log")
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            engine.measure(values.spec(prompt="@hang"), tmp_path / "log")
        timer.join()
        assert _alive(folder) == [False]
        assert engine.measure(values.spec(), tmp_path / "log").sample.status is Status.OK


def _lookup(method: Method, n_max: int = 16) -> RunSpec:
    drafting = Drafting(n_max=n_max, method=method)
    return replace(DRAFTING, pair=replace(DRAFTING.pair, draft=None), drafting=drafting)


@pytest.mark.parametrize(
    ("method", "starts"), [(Method.NGRAM_SIMPLE, 1), (Method.NGRAM_MOD, 3), (Method.NGRAM_MAP_K, 3)]
)
def test_methods_forget_with_their_server(folder: Path, tmp_path: Path, method: Method, starts: int) -> None:
    with _engine(folder) as engine:
        samples = [*_samples(engine, *[_lookup(method)] * 3, log=tmp_path)]
        assert len(_alive(folder)) == starts
        assert sum(_alive(folder)) == (1 if starts == 1 else 0)
    assert {(sample.status, sample.n_draft) for sample in samples} == {(Status.OK, 16)}
    asked = fake_server.requests(folder)
    assert [one["prompt"] for one in asked] == ["Text of p1"] * 3  # and nothing is tried out on it before
    assert not any("speculative.n_max" in one for one in asked)


def test_each_run_of_a_layer_for_mtp_follows_the_same_request(folder: Path, tmp_path: Path) -> None:
    """The layer's first state is that of the request before, which no endpoint clears."""
    with _engine(folder) as engine:
        samples = [*_samples(engine, *[_lookup(Method.DRAFT_MTP, 3)] * 2, values.spec(), log=tmp_path)]
        assert len(_alive(folder)) == 2  # the target alone has a server of its own
    assert [sample.status for sample in samples] == [Status.OK] * 3
    asked = fake_server.requests(folder)[-5:]
    assert [one["prompt"] for one in asked] == [[100, 100], "Text of p1"] * 2 + ["Text of p1"]
    assert [one["n_predict"] for one in asked[:3:2]] == [1, 1]
    assert asked[0]["cache_prompt"] is False


def test_methods_and_draft_sizes_have_a_load_each(folder: Path) -> None:
    with _engine(folder) as engine:
        sizes = {engine.load_key(_lookup(Method.NGRAM_SIMPLE, size)) for size in (16, 48)}
        assert len(sizes | {engine.load_key(DRAFTING), engine.load_key(values.spec())}) == 4
        assert engine.load_key(_lookup(Method.NGRAM_CACHE, 8)) is None


def test_a_method_that_the_server_does_not_take_up_is_found(folder: Path) -> None:
    sample = _measured(folder, _lookup(Method.NGRAM_MOD), Behaviour(drafts=False)).sample
    assert sample.status is Status.DRAFTING_INACTIVE
