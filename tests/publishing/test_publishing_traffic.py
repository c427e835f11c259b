"""Bundles of benches with several users, replayed requests and running servers: redacted, and verified."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import ggufspec
from ggufspec import prompts, publishing, results
from ggufspec.domain import (
    Endpoint,
    Role,
    RunningServers,
    RunResult,
    RunSpec,
    Sample,
    Traffic,
    TrafficSample,
    UserRequest,
)
from ggufspec.options import BenchOptions
from ggufspec.publishing import Bundle, Identity, copying
from ggufspec.results import ResultSet
from tests.support import fake_server, fakes, published
from tests.support.fake_server import FakeServer
from tests.support.published import Published, changed

SECRET = "Dear Mrs. Ocelot, your invoice is overdue"
ADDRESS = "https://gpu7.example.org:8443/team-ocelot"
KNOWN = prompts.suite(prompts.EMBEDDED).prompts[0]


@pytest.fixture
def without_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    published.leave_out_pages(monkeypatch)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A bundle of a bench with two users, without pages; measured and made once for all tests."""
    folder = tmp_path_factory.mktemp("published")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("data", "cache", "config"):
            patch.setenv(f"GGUFSPEC_{name.upper()}", str(folder / name))
        fake_server.program(fakes.install(folder / "llama", **fakes.AT_ONCE) / "llama-server")
        patch.setenv("GGUFSPEC_LLAMA", str(folder / "llama"))
        published.leave_out_pages(patch)
        return _publish(_measure_users(repeats=1), folder / "bundle", with_texts=True)


@pytest.fixture
def bundle(original: Bundle, tmp_path: Path, without_pages: None) -> Published:
    """A copy of it, which may be changed."""
    return Published(shutil.copytree(original.folder, tmp_path / "bundle"))


def _measure(**options: Any) -> ResultSet:
    asked: dict[str, Any] = {"n_predict": 16, "repeats": 2, "prompt": (SECRET, "hi")}
    return ggufspec.load(ggufspec.bench(BenchOptions(**asked | options)).meta.id)


def _measure_users(**options: Any) -> ResultSet:
    return _measure(**{"engine": "server", "parallel": 2, "draft": 3, "threads": 1} | options)


def _publish(bench: ResultSet, folder: Path, *, with_texts: bool = False) -> Bundle:
    return publishing.publish([bench], folder, identity=Identity(), with_texts=with_texts)


def _copy(bundle: Bundle) -> ResultSet:
    return results.load(Published(bundle.folder).bench)


def _everything(folder: Path) -> str:
    files = (file for file in folder.rglob("*") if file.is_file())
    return "\n".join(file.read_bytes().decode(errors="replace") for file in files)


def _place_of(bundle: Published, role: Role) -> int:
    return [run.spec.role for run in bundle.runs].index(role)


def test_users_are_published_without_their_texts(llama_server: Path, tmp_path: Path) -> None:
    bench = _measure_users()
    bundle = _publish(bench, tmp_path / "bundle")
    assert "Ocelot" not in _everything(bundle.folder)
    for run, copied in zip(bench.runs, _copy(bundle).runs, strict=True):
        traffic = copied.sample.traffic
        assert (copied.sample.gen_s, traffic.requests) == (run.sample.gen_s, run.sample.traffic.requests)
        assert copied.text_identical == run.text_identical
        assert {prompt.text for prompt in copied.spec.traffic.prompts} == {""}
        assert {answer.text for answer in traffic.answers} == {""}
    assert bundle.left_out == 2
    assert (bundle.verification.findings, bundle.verification.n_runs) == ((), len(bench.runs))
    unchecked = " ".join(bundle.verification.unchecked)
    assert "texts that are left out" in unchecked
    assert "when tokens arrived" in unchecked


def test_texts_of_users_are_published_on_demand_and_compared(bundle: Published) -> None:
    assert SECRET in _everything(bundle.folder)
    assert not bundle.leaves("left out")
    place = next(number for number, run in enumerate(bundle.runs) if run.text_identical is not None)
    bundle.change_run(lambda run: replace(run, text_identical=not run.text_identical), place)
    assert bundle.finds("text_identical is")


def test_built_in_prompts_of_users_are_published(
    llama_server: Path, without_pages: None, tmp_path: Path
) -> None:
    bench = _measure_users(prompt=(), suite=prompts.EMBEDDED, per_category=1, repeats=1)
    bundle = _publish(bench, tmp_path / "bundle")
    assert bundle.left_out == 0
    assert all(prompt.text for prompt in _copy(bundle).runs[0].spec.traffic.prompts)


def _forgeries(sample: Sample) -> Iterator[tuple[str, Sample]]:
    """Yield every figure of a sample, and the sample with that figure changed."""
    traffic = sample.traffic
    of_placement = {"target", "drafter", "devices", "program", "build", "traffic"}
    for name in (field.name for field in fields(Sample)):
        value = getattr(sample, name)
        if value not in (None, ()) and name not in of_placement and not name.startswith("draft_"):
            yield name, replace(sample, **{name: changed(value)})
    first, *others = traffic.requests
    answer, *rest = traffic.answers
    forged: dict[str, dict[str, Any]] = {
        field.name: {field.name: changed(getattr(traffic, field.name))}
        for field in fields(TrafficSample)
        if isinstance(getattr(traffic, field.name), bool | int | float)
    }
    forged |= {
        f"request {name}": {"requests": (first._replace(**{name: changed(getattr(first, name))}), *others)}
        for name in UserRequest._fields
        if getattr(first, name) is not None
    }
    forged["a request less"] = {"requests": tuple(others)}
    forged["answer"] = {"answers": (answer._replace(text="other words"), *rest)}
    for name, changes in forged.items():
        yield name, replace(sample, traffic=replace(traffic, **changes))


def test_every_figure_of_users_follows_from_their_requests(bundle: Published) -> None:
    tried = set()
    for place in (_place_of(bundle, Role.TARGET), _place_of(bundle, Role.DRAFTING)):
        tried |= {*bundle.finds_each(_forgeries(bundle.runs[place].sample), place)}
    assert tried >= {"status", "gen_tokens", "gen_s", "n_drafted", "n_accepted", "n_rounds", "n_draft"}
    assert tried >= {"window_tokens", "client_share", "request tokens", "request ttft_s", "request token_s"}


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: replace(spec, traffic=replace(spec.traffic, users=3)),
        lambda spec: replace(spec, traffic=replace(spec.traffic, n_requests=4)),
        lambda spec: replace(spec, drafting=replace(spec.drafting, n_max=5)),
    ],
    ids=["users", "n_requests", "n_max"],
)
def test_what_users_were_measured_with_follows_too(
    change: Callable[[RunSpec], RunSpec], bundle: Published
) -> None:
    bundle.change_run(lambda run: replace(run, spec=change(run.spec)), _place_of(bundle, Role.DRAFTING))
    assert bundle.finds()


def _timing(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Count one more token."""
    return lambda record: {"timings": {**record["timings"], name: record["timings"][name] + 1}}


@pytest.mark.parametrize(
    "change",
    [
        lambda record: {"sent_s": record["sent_s"] - 0.5},
        lambda record: {"arrivals": [at_s + 0.5 for at_s in record["arrivals"]]},
        *(_timing("predicted_n"), _timing("draft_n_accepted")),
        lambda _: {"outcome": "cut off"},
        lambda _: {"number": "one"},
        lambda _: '{"number": 1, "user"',
    ],
    ids=["sent_s", "arrivals", "predicted_n", "draft_n_accepted", "outcome", "nonsense", "torn"],
)
def test_a_changed_record_is_found(
    change: Callable[[dict[str, Any]], dict[str, Any] | str], bundle: Published
) -> None:
    def edit(log: str) -> str:
        line = next(line for line in log.split("\n") if line.startswith('{"number"'))
        forged = change(json.loads(line))
        return log.replace(line, forged if isinstance(forged, str) else json.dumps(json.loads(line) | forged))

    bundle.edit(f"benches/*/logs/{bundle.runs[_place_of(bundle, Role.DRAFTING)].log}.out", edit)
    bundle.rehash()
    assert bundle.finds()


def test_replayed_texts_stay_here_even_where_everybody_knows_them(
    llama_server: Path, without_pages: None, tmp_path: Path
) -> None:
    rows = [
        {"arrival_s": number / 20, "prompt": KNOWN.text if number else SECRET, "max_tokens": 9}
        for number in range(8)
    ]
    file = tmp_path / "requests.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    bundle = _publish(_measure_users(prompt=(), replay=file, repeats=1), tmp_path / "bundle")
    everything = _everything(bundle.folder)
    assert "Ocelot" not in everything
    assert KNOWN.text not in everything
    assert _copy(bundle).runs[0].spec.traffic.arrivals == tuple(number / 20 for number in range(8))
    assert bundle.verification.findings == ()
    assert any("replayed requests" in sentence for sentence in bundle.verification.unchecked)


def _move(stored: ResultSet, url: str) -> ResultSet:
    """Return the bench as if its server had another address and a model of a private folder."""

    def move(endpoint: Endpoint | None) -> Endpoint | None:
        return endpoint and replace(endpoint, url=url, model_path="/srv/ocelot/models/x.gguf")

    def moved(run: RunResult) -> RunResult:
        of = run.spec.servers
        servers = replace(of, alone=move(of.alone), drafting=move(of.drafting), system="You are Agent Ocelot")
        spec = replace(run.spec, servers=servers)
        error = "no answer from gpu7.example.org:8443"
        return replace(run, spec=spec, argv=("POST", f"{url}/v1/completions"), error=error)

    command = ("ggufspec", "bench", "--url", url, "--api-key-file", "/home/ocelot/keys/models")
    meta = replace(stored.meta, command=command, build=replace(stored.meta.build, path=url))
    results.write_bench(stored.folder, meta, [moved(run) for run in stored.runs])
    return results.load(stored.folder)


def test_running_servers_are_published_without_their_addresses(without_pages: None, tmp_path: Path) -> None:
    with fake_server.serve(FakeServer()) as fake:
        bench = _move(_measure(url=fake.url, repeats=1), ADDRESS)
    bundle = _publish(bench, tmp_path / "bundle")
    everything = _everything(bundle.folder)
    for secret in ("gpu7", "example.org", "org:8443", "ocelot", "Ocelot"):
        assert secret not in everything, secret
    copy = _copy(bundle)
    assert {copy.runs[0].spec.endpoint.url, copy.meta.build.path} == {"https://server-1"}
    assert bundle.verification.findings == ()
    assert any("running servers say of themselves" in one for one in bundle.verification.unchecked)
    assert {*Published(bundle.folder).finds_each(_forgeries(copy.runs[0].sample), 0)}


def test_a_page_of_a_running_server_is_made_and_verified(tmp_path: Path) -> None:
    with fake_server.serve(FakeServer()) as fake:
        bundle = _publish(_measure(url=fake.url, repeats=1), tmp_path / "bundle")
    assert (bundle.folder / "report.html").is_file()
    assert "Ocelot" not in _everything(bundle.folder)
    assert not Published(bundle.folder).finds()


def test_users_at_a_depth_hide_what_stands_before_their_prompts() -> None:
    spec = published.spec(Role.TARGET, KNOWN)
    shallow = replace(spec, traffic=Traffic(users=2, prompts=(KNOWN, KNOWN)))
    deep = replace(spec, traffic=Traffic(users=2, prompts=(KNOWN, KNOWN), depth=100))
    system = replace(shallow, servers=RunningServers(system="You are Agent Ocelot"))
    hidden = [copying.find_hidden(each) for each in (spec, shallow, deep, system)]
    assert hidden == [frozenset(), frozenset(), {0, 1}, {0, 1}]
