"""What notebooks use: the package's own names."""

from __future__ import annotations

import operator
import re
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ggufspec
from ggufspec.errors import GgufspecError
from tests.support import fakes, hub_client, published, swept, values
from tests.support.hub_server import Hub

pytestmark = pytest.mark.usefixtures("llama")


def test_bench_load_summary_and_runs() -> None:
    results = ggufspec.bench(pair="demo", prompt=("Once upon a time",), n_predict=32, repeats=2, draft=(3, 5))
    assert isinstance(results, ggufspec.ResultSet)
    assert ggufspec.load(results.meta.id) == results
    table = ggufspec.summary(results)
    assert isinstance(table, pd.DataFrame)
    assert list(table["role"]) == ["target", "drafter", "drafting", "drafting"]
    assert table["accept_rate"].dropna().tolist() == [0.75, 0.75]
    first = [run for run in results.runs if not (run.anchor or run.rerun)]  # others may be busy meanwhile
    assert len(first) == 4 * (1 + 2)
    assert len(ggufspec.runs(results)) == len(results.runs)


def test_calls_take_requests_and_text() -> None:
    request = ggufspec.BenchOptions(pair="demo", prompt=("Once",), n_predict=32, repeats=1, warmup=0)
    assert len(ggufspec.bench(request).current) == 3
    sample = ggufspec.parse(fakes.DRAFTING_LOG)
    assert isinstance(sample, ggufspec.Sample)
    assert (sample.n_drafted, sample.n_accepted, sample.accept_rate) == (24, 18, 0.75)


def test_why_says_where_the_time_goes() -> None:
    diagnosis = ggufspec.why(swept.swept())
    assert diagnosis.drafting.arm.draft_size == 4
    page = diagnosis._repr_html_()
    assert all(
        words in page for words in ("What would pay most", "spent on", "verification", "Engine: inprocess")
    )
    assert "Nothing" not in page
    unmeasured = ggufspec.why(values.bench())
    assert unmeasured.drafting is None
    assert "No arm drafts" in unmeasured._repr_html_()


def test_a_bundle_is_published_verified_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published.leave_out_pages(monkeypatch)
    bundle = ggufspec.publish(
        published.bench(name="mine"), out=str(tmp_path / "bundle"), offline=True, author="Ada"
    )
    assert bundle.address is None
    verification = ggufspec.verify(str(bundle.zip), sha256=bundle.sha256)
    assert (verification.findings, verification.sha256) == ((), bundle.sha256)
    assert ggufspec.verify(bundle.folder, sha256="0" * 64).findings != ()
    board = ggufspec.board([bundle.folder, bundle.zip], out=tmp_path / "board.html", verify=True)
    assert [shown.state.value for shown in board.bundles] == ["verified"]
    table = ggufspec.frames.board(board)
    assert table["draft"].tolist() == [3]
    assert "verified" in board._repr_html_()
    assert (tmp_path / "board.html").is_file()


def test_a_hint_stands_below_the_message_of_an_error() -> None:
    with pytest.raises(GgufspecError) as caught:
        ggufspec.load("nowhere")
    shown = "".join(traceback.format_exception_only(caught.value))
    assert shown.endswith(f"{caught.value.message}\nhint: {caught.value.hint}\n")


def test_all_public_names_exist_and_nothing_else() -> None:
    assert dir(ggufspec) == ggufspec.__all__
    assert ggufspec.__version__ == version("ggufspec")
    for name in ggufspec.__all__:
        assert getattr(ggufspec, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        ggufspec.nonsense  # noqa: B018


def test_plan_check_and_whatif_answer_with_values() -> None:
    planned = ggufspec.plan("demo", vram="24G", ngl=3, machine="rtx-3090", host="60G")
    assert planned.shown.target.gpu_layers == 3
    assert planned.best is not None
    assert planned.fits(planned.best)
    rate, best = planned.rate(planned.shown), planned.rate(planned.best)
    assert rate.value < best.value
    assert len(ggufspec.frames.memory_plans(planned)) == len(planned.plans) == len(planned.rates)
    assert ggufspec.check("demo").outcome.value == "accepted"
    assert ggufspec.check(target="demo:target", draft_model="demo:drafter").outcome.value == "accepted"
    answer = ggufspec.whatif(target_tps=2.0, drafter_tps=87.0, alpha=0.8, draft=(2, 4))
    assert [projection.n_max for projection in answer.projections] == [2, 4]
    assert answer.best.n_max == 4
    assert answer.costs.value == "rates"
    assert "best case" in answer.notes[0]
    assert ggufspec.whatif("demo", machine="h100", alpha=0.8, draft=3).costs.value == "headers"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bench", {"dratf": 3}, r"bench\(\) has no option 'dratf'; did you mean 'draft'\?"),
        ("plan", {"vrma": "24G"}, r"plan\(\) has no option 'vrma'; did you mean 'vram'\?"),
        ("fetch", {"zzz": 1}, "its options are pair, target, draft_model"),
        ("verify", {"bundle": "x", "sha": "5"}, "did you mean 'sha256'"),
    ],
)
def test_an_unknown_option_is_a_type_error(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        getattr(ggufspec, name)(**options)


@pytest.mark.parametrize(
    ("name", "arguments", "options", "message", "hint"),
    [
        ("bench", (), {"draft": "2"}, "draft is '2', a str", "it takes tuple[int, ...]"),
        ("bench", (), {"draft": True}, "draft is True, a bool", "it takes tuple[int, ...]"),
        ("bench", (), {"n_predict": 2.5}, "n_predict is 2.5, a float", "it takes int"),
        ("bench", (), {"repeats": 0}, "repeats: 0 is not in the range x>=1", "give another value"),
        (
            "bench",
            (),
            {"draft": (3, 100)},
            "draft: 100 is out of range: draft sizes are from 1 to 64",
            "give",
        ),
        ("bench", (), {"engine": "x"}, "engine: 'x' is not one of 'binary'", "give another value"),
        ("plan", (), {"kv_type": "q9"}, "kv_type: 'q9' is not one of f32", "give another value"),
        ("tune", (), {"max_time": "1m"}, "max_time is '1m', a str", "it takes float"),
        ("publish", ([5],), {}, "benches is [5], a list", "it takes tuple[str | LoadedBench, ...]"),
        ("publish", ("id",), {}, "no bench is stored yet", "ggufspec bench"),
        ("summary", ("id",), {}, "summary(): results is 'id', a str", "ggufspec.load(NAME)"),
        ("compare", ("a", "b"), {}, "compare(): before is 'a', a str", "ggufspec.load(NAME)"),
        ("paste", (3,), {}, "paste(): text is 3, a int", "it takes str | Path"),
        ("tune", (), {"max_time": -1.0}, "max_time: -1.0 is not a number of seconds above 0", "give"),
        ("why", ("id",), {}, "why(): results is 'id', a str", "ggufspec.load(NAME)"),
        ("plan", (5,), {}, "pair is 5, a int", "it takes str"),
        ("frames.origin", ("id",), {}, "origin(): bench is 'id', a str", "ggufspec.load(NAME)"),
    ],
)
def test_a_value_of_the_wrong_type_is_our_error(
    name: str, arguments: tuple[object, ...], options: dict[str, object], message: str, hint: str
) -> None:
    function = operator.attrgetter(name)(ggufspec)
    with pytest.raises(GgufspecError, match=re.escape(message)) as caught:
        function(*arguments, **options)
    assert hint in (caught.value.hint or "")


def test_what_is_meant_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    meant: dict[str, Any] = {"draft": [3, 5], "ngl": np.int64(4), "prompt": "A cat", "prompt_file": str(file)}
    request = ggufspec.BenchOptions(**meant)
    assert request == ggufspec.BenchOptions(draft=(3, 5), ngl=4, prompt=("A cat",), prompt_file=(file,))
    assert type(request.ngl[0]) is int
    bench = values.bench(values.run())
    assert ggufspec.frames.origin(bench) == ggufspec.frames.origin(bench.meta)


def test_fetch_and_suggest_are_single_calls(hub: Hub) -> None:
    pair = ggufspec.fetch(target="me/T-GGUF:Q4_K_M", draft_model="me/D-GGUF").pair
    assert pair.target.path.is_file()
    hub.add("me/Model-3-8B-GGUF", {"m-Q4_K_M.gguf": hub_client.gguf(40 << 20)})
    hub.add("a/Model-3-1B-GGUF", {"d-Q8_0.gguf": hub_client.gguf()})
    (drafter,) = ggufspec.suggest("me/Model-3-8B-GGUF:Q4_K_M")
    assert (drafter.name, drafter.is_refused) == ("a/Model-3-1B-GGUF/d-Q8_0.gguf", False)
