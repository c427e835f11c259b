"""Bundles of benches with several users, replayed requests and running servers: redacted, and verified."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import ggufspec
from ggufspec import prompts, publishing, results
from ggufspec.domain import (
    Endpoint,
    RequestOutcome,
    Role,
    RunningServers,
    RunResult,
    RunSpec,
    Sample,
    Status,
    Traffic,
    TrafficSample,
    UserRequest,
)
from ggufspec.options import BenchOptions
from ggufspec.publishing import Bundle, Identity, Verification, copying
from ggufspec.results import ResultSet, archive
from tests.support import fake_server, fakes, published
from tests.support.fake_server import FakeServer

SECRET = "Dear Mrs. Ocelot, your invoice is overdue"
ADDRESS = "https://gpu7.example.org:8443/team-ocelot"
IDENTITY = Identity()


@pytest.fixture
def llama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = _install(tmp_path)
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(folder))
    return folder


def _install(place: Path) -> Path:
    folder = fakes.install(place / "llama", **fakes.AT_ONCE)
    fake_server.program(folder / "llama-server")
    return folder


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A bundle of a bench with two users, without pages; measured and made once for all tests."""
    folder = tmp_path_factory.mktemp("published")
    with pytest.MonkeyPatch.context() as patch:
        for name, place in (("DATA", "data"), ("CACHE", "cache"), ("CONFIG", "config")):
            patch.setenv(f"GGUFSPEC_{name}", str(folder / place))
        patch.setenv("GGUFSPEC_LLAMA", str(_install(folder)))
        published.leave_out_pages(patch)
        return _publish(_measure_users(repeats=1), folder / "bundle")


@pytest.fixture
def bundle(original: Bundle, tmp_path: Path) -> Bundle:
    """A copy of it, which may be changed."""
    return replace(original, folder=shutil.copytree(original.folder, tmp_path / "bundle"))


@pytest.fixture
def servers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def without_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    published.leave_out_pages(monkeypatch)


def _measure(**options: Any) -> ResultSet:
    asked: dict[str, Any] = {"n_predict": 16, "repeats": 2, "prompt": (SECRET, "hi")}
    return ggufspec.load(ggufspec.bench(BenchOptions(**asked | options)).meta.id)


def _measure_users(**options: Any) -> ResultSet:
    return _measure(**{"engine": "server", "parallel": 2, "draft": 3, "threads": 1} | options)


def _publish(bench: ResultSet, folder: Path, *, with_texts: bool = False) -> Bundle:
    return publishing.publish([bench], folder, identity=IDENTITY, with_texts=with_texts)


def _copy(bundle: Bundle) -> ResultSet:
    (folder,) = (bundle.folder / "benches").iterdir()
    return results.load(folder)


def _verify(bundle: Bundle) -> Verification:
    return publishing.verify(bundle.folder)


def _everything(folder: Path) -> str:
    files = (file for file in folder.rglob("*") if file.is_file())
    return "\n".join(file.read_bytes().decode(errors="replace") for file in files)


def _change_runs(bundle: Bundle, change: Callable[[RunResult], RunResult], place: int) -> None:
    stored = _copy(bundle)
    runs = [change(run) if number == place else run for number, run in enumerate(stored.runs)]
    results.write_bench(stored.folder, stored.meta, runs)
    archive.write_hashes(bundle.folder)


def test_users_are_published_without_their_texts(llama: Path, tmp_path: Path) -> None:
    bench = _measure_users()
    bundle = _publish(bench, tmp_path / "bundle")
    assert "Ocelot" not in _everything(bundle.folder)
    copy = _copy(bundle)
    for run, copied in zip(bench.runs, copy.runs, strict=True):
        assert copied.sample.gen_s == run.sample.gen_s
        assert copied.sample.decode_tps == run.sample.decode_tps
        traffic, of = copied.sample.traffic, run.sample.traffic
        assert traffic.requests == of.requests
        assert {answer.text for answer in traffic.answers} == {""}
        assert copied.text_identical == run.text_identical
        assert {prompt.text for prompt in copied.spec.traffic.prompts} == {""}
    assert bundle.left_out == 2
    assert bundle.verification.findings == ()
    assert bundle.verification.n_runs == len(bench.runs)
    unchecked = " ".join(bundle.verification.unchecked)
    assert "texts that are left out" in unchecked
    assert "when tokens arrived" in unchecked


@pytest.mark.usefixtures("without_pages")
def test_texts_of_users_are_published_on_demand_and_compared(llama: Path, tmp_path: Path) -> None:
    bench = _measure_users()
    bundle = _publish(bench, tmp_path / "bundle", with_texts=True)
    assert SECRET in _everything(bundle.folder)
    assert not any("left out" in sentence for sentence in bundle.verification.unchecked)
    place = next(number for number, run in enumerate(bench.runs) if run.text_identical is not None)
    _change_runs(bundle, lambda run: replace(run, text_identical=not run.text_identical), place)
    assert any("text_identical is" in sentence for sentence in _verify(bundle).findings)


@pytest.mark.usefixtures("without_pages")
def test_built_in_prompts_of_users_are_published(llama: Path, tmp_path: Path) -> None:
    bench = _measure_users(prompt=(), suite=prompts.EMBEDDED, per_category=1, repeats=1)
    bundle = _publish(bench, tmp_path / "bundle")
    assert bundle.left_out == 0
    traffic = _copy(bundle).runs[0].spec.traffic
    assert all(prompt.text for prompt in traffic.prompts)


def changed(value: Any) -> Any:
    """Return another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, RequestOutcome):
        return RequestOutcome.CUT_OFF
    if isinstance(value, Status):
        return Status.SUMMARY_LOST  # which a complete record rules out
    if isinstance(value, str):
        return f"{value}x"
    return value + 1


def _forgeries(sample: Sample) -> Iterator[tuple[str, Sample]]:
    """Yield every figure of a sample, and the sample with that figure changed."""
    traffic = sample.traffic
    of_placement = {"target", "drafter", "devices", "program", "build", "traffic"}
    for field in fields(Sample):
        value = getattr(sample, field.name)
        if value not in (None, ()) and field.name not in of_placement and not field.name.startswith("draft_"):
            yield field.name, replace(sample, **{field.name: changed(value)})
    for field in fields(TrafficSample):
        value = getattr(traffic, field.name)
        if isinstance(value, bool | int | float):
            yield field.name, replace(sample, traffic=replace(traffic, **{field.name: changed(value)}))
    for name in UserRequest._fields:
        first, *others = traffic.requests
        if getattr(first, name) is not None:
            forged = first._replace(**{name: changed(getattr(first, name))})
            yield f"request {name}", replace(sample, traffic=replace(traffic, requests=(forged, *others)))
    fewer = replace(traffic, requests=traffic.requests[1:])
    yield "a request less", replace(sample, traffic=fewer)
    answer, *rest = traffic.answers
    forged_answers = (answer._replace(text="other words"), *rest)
    yield "answer", replace(sample, traffic=replace(traffic, answers=forged_answers))


@pytest.mark.usefixtures("without_pages")
def test_every_figure_of_users_follows_from_their_requests(llama: Path, tmp_path: Path) -> None:
    bundle = _publish(_measure_users(repeats=1), tmp_path / "bundle", with_texts=True)
    stored = _copy(bundle)
    tried = set()
    for role in (Role.TARGET, Role.DRAFTING):
        place = next(number for number, run in enumerate(stored.runs) if run.spec.role is role)
        for name, sample in _forgeries(stored.runs[place].sample):
            _change_runs(bundle, lambda run, sample=sample: replace(run, sample=sample), place)  # type: ignore[misc]
            assert _verify(bundle).findings, name
            results.write_bench(stored.folder, stored.meta, stored.runs)
            tried.add(name)
    archive.write_hashes(bundle.folder)
    assert _verify(bundle).findings == ()
    assert tried >= {"status", "gen_tokens", "gen_s", "n_drafted", "n_accepted", "n_rounds", "n_draft"}
    assert tried >= {"window_tokens", "client_share", "request tokens", "request ttft_s", "request token_s"}


SPEC_CHANGES: dict[str, Callable[[RunSpec], RunSpec]] = {
    "another number of users": lambda spec: replace(
        spec, traffic=spec.traffic and replace(spec.traffic, users=3)
    ),
    "fewer requests that count": lambda spec: replace(
        spec, traffic=spec.traffic and replace(spec.traffic, n_requests=4)
    ),
    "another draft size": lambda spec: replace(
        spec, drafting=spec.drafting and replace(spec.drafting, n_max=5)
    ),
}


@pytest.mark.usefixtures("without_pages")
@pytest.mark.parametrize("what", SPEC_CHANGES)
def test_what_users_were_measured_with_follows_too(what: str, bundle: Bundle) -> None:
    place = next(number for number, run in enumerate(_copy(bundle).runs) if run.spec.role is Role.DRAFTING)
    _change_runs(bundle, lambda run: replace(run, spec=SPEC_CHANGES[what](run.spec)), place)
    assert _verify(bundle).findings


RECORD_CHANGES: dict[str, Callable[[dict[str, Any]], dict[str, Any] | str]] = {
    "sent earlier": lambda record: {**record, "sent_s": record["sent_s"] - 0.5},
    "tokens that came later": lambda record: {
        **record,
        "arrivals": [at_s + 0.5 for at_s in record["arrivals"]],
    },
    "more tokens": lambda record: {
        **record,
        "timings": {**record["timings"], "predicted_n": record["timings"]["predicted_n"] + 1},
    },
    "more accepted": lambda record: {
        **record,
        "timings": {**record["timings"], "draft_n_accepted": record["timings"]["draft_n_accepted"] + 1},
    },
    "a failure": lambda record: {**record, "outcome": "cut off"},
    "nonsense": lambda record: {**record, "number": "one"},
    "a torn line": lambda _: '{"number": 1, "user"',
}


@pytest.mark.usefixtures("without_pages")
@pytest.mark.parametrize("what", RECORD_CHANGES)
def test_a_changed_record_is_found(what: str, bundle: Bundle) -> None:
    stored = _copy(bundle)
    run = next(run for run in stored.runs if run.spec.role is Role.DRAFTING)
    file = stored.folder / "logs" / f"{run.log}.out"
    lines = file.read_text(encoding="utf-8").split("\n")
    place = next(number for number, line in enumerate(lines) if line.startswith('{"number"'))
    forged = RECORD_CHANGES[what](json.loads(lines[place]))
    lines[place] = forged if isinstance(forged, str) else json.dumps(forged)
    file.write_text("\n".join(lines), encoding="utf-8")
    archive.write_hashes(bundle.folder)
    assert _verify(bundle).findings


@pytest.mark.usefixtures("without_pages")
def test_replayed_texts_stay_here_even_where_everybody_knows_them(llama: Path, tmp_path: Path) -> None:
    known = prompts.suite(prompts.EMBEDDED).prompts[0].text
    rows = [
        {"arrival_s": number / 20, "prompt": known if number else SECRET, "max_tokens": 9}
        for number in range(8)
    ]
    file = tmp_path / "requests.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    bundle = _publish(_measure_users(prompt=(), replay=file, repeats=1), tmp_path / "bundle")
    everything = _everything(bundle.folder)
    assert "Ocelot" not in everything
    assert known not in everything
    traffic = _copy(bundle).runs[0].spec.traffic
    assert traffic.arrivals == tuple(number / 20 for number in range(8))
    assert bundle.verification.findings == ()
    assert any("replayed requests" in sentence for sentence in bundle.verification.unchecked)


def _move(stored: ResultSet, url: str) -> ResultSet:
    """Return the bench as if its server had another address and a model of a private folder."""

    def move(endpoint: Endpoint | None) -> Endpoint | None:
        if endpoint is None:
            return None
        return replace(endpoint, url=url, model_path="/srv/ocelot/models/x.gguf")

    def moved(run: RunResult) -> RunResult:
        of = run.spec.servers
        servers = replace(of, alone=move(of.alone), drafting=move(of.drafting), system="You are Agent Ocelot")
        return replace(
            run,
            spec=replace(run.spec, servers=servers),
            argv=("POST", f"{url}/v1/completions"),
            error="no answer from gpu7.example.org:8443",
        )

    meta = replace(
        stored.meta,
        command=("ggufspec", "bench", "--url", url, "--api-key-file", "/home/ocelot/keys/models"),
        build=replace(stored.meta.build, path=url),
    )
    results.write_bench(stored.folder, meta, [moved(run) for run in stored.runs])
    return results.load(stored.folder)


@pytest.mark.usefixtures("without_pages")
def test_running_servers_are_published_without_their_addresses(servers: ExitStack, tmp_path: Path) -> None:
    fake = servers.enter_context(fake_server.serve(FakeServer()))
    bench = _move(_measure(url=fake.url, repeats=1), ADDRESS)
    bundle = _publish(bench, tmp_path / "bundle")
    everything = _everything(bundle.folder)
    for secret in ("gpu7", "example.org", "org:8443", "ocelot", "Ocelot"):
        assert secret not in everything, secret
    copy = _copy(bundle)
    endpoint = copy.runs[0].spec.endpoint
    assert endpoint.url == "https://server-1"
    assert copy.meta.build.path == "https://server-1"
    assert bundle.verification.findings == ()
    assert any("running servers say of themselves" in one for one in bundle.verification.unchecked)
    stored = copy.runs[0].sample
    for name, sample in _forgeries(stored):
        _change_runs(bundle, lambda run, sample=sample: replace(run, sample=sample), 0)  # type: ignore[misc]
        assert _verify(bundle).findings, name


def test_a_page_of_a_running_server_is_made_and_verified(servers: ExitStack, tmp_path: Path) -> None:
    fake = servers.enter_context(fake_server.serve(FakeServer()))
    bundle = _publish(_measure(url=fake.url, repeats=1), tmp_path / "bundle")
    assert (bundle.folder / "report.html").is_file()
    assert "Ocelot" not in _everything(bundle.folder)
    assert _verify(bundle).findings == ()


def test_users_at_a_depth_hide_what_stands_before_their_prompts() -> None:
    known = prompts.suite(prompts.EMBEDDED).prompts[0]
    spec = published.spec(Role.TARGET, known)
    assert copying.find_hidden(spec) == frozenset()
    shallow = replace(spec, traffic=Traffic(users=2, prompts=(known, known)))
    assert copying.find_hidden(shallow) == frozenset()
    deep = replace(spec, traffic=Traffic(users=2, prompts=(known, known), depth=100))
    assert copying.find_hidden(deep) == {0, 1}
    system = replace(shallow, servers=RunningServers(system="You are Agent Ocelot"))
    assert copying.find_hidden(system) == {0, 1}
