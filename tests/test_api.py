"""What notebooks use: the package's own names."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pytest

import ggufspec
from ggufspec.errors import GgufspecError
from tests.support import fakes


@pytest.fixture(autouse=True)
def llama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(fakes.install(tmp_path / "llama")))


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


def test_bench_takes_a_request_too() -> None:
    request = ggufspec.Request(pair="demo", prompt=("Once",), n_predict=32, repeats=1, warmup=0)
    assert len(ggufspec.bench(request).current) == 3


def test_parse_reads_text() -> None:
    sample = ggufspec.parse(fakes.DRAFTING_LOG)
    assert isinstance(sample, ggufspec.Sample)
    assert (sample.n_drafted, sample.n_accepted, sample.accept_rate) == (24, 18, 0.75)


def test_mistakes_are_our_errors() -> None:
    with pytest.raises(GgufspecError, match="no pair is called 'dmo'"):
        ggufspec.bench(pair="dmo")


def test_all_public_names_exist_and_nothing_else() -> None:
    assert dir(ggufspec) == ggufspec.__all__
    assert ggufspec.__version__ == version("ggufspec")
    for name in ggufspec.__all__:
        assert getattr(ggufspec, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        ggufspec.nonsense  # noqa: B018
