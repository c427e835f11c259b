"""Suites of public benchmarks: as Parquet, and by the name of a dataset on a loopback Hub."""

from __future__ import annotations

import builtins
import hashlib
import json
import shutil
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import ggufspec
from ggufspec import prompts
from ggufspec.errors import (
    BadReferenceError,
    CorruptDownloadError,
    GatedRepositoryError,
    GgufspecError,
    NotCachedError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from ggufspec.measure import prepare_session
from ggufspec.modelfiles import hub
from ggufspec.options import BenchOptions
from ggufspec.prompts import datasets
from tests.support.hub_server import Hub
from tests.support.shell import run

SUITES = Path(__file__).parents[1] / "suites"
NAME = "nv/SPEED-Bench"
QUALITATIVE: list[dict[str, Any]] = [
    {"question_id": "a1", "category": "coding", "sub_category": "python", "turns": ["Sort a list"]},
    {"question_id": "a2", "category": "roleplay", "sub_category": None, "turns": ["You are a cat", "Meow"]},
]
THROUGHPUT = [
    {"question_id": f"t{number}", "category": entropy, "turns": [f"Long text {number}"]}
    for number, entropy in enumerate(("low_entropy", "mixed", "high_entropy"))
]


@pytest.fixture(autouse=True)
def forget_datasets() -> None:
    datasets.read_dataset.cache_clear()


def _parquet(rows: Sequence[dict[str, Any]]) -> bytes:
    file = BytesIO()
    parquet.write_table(pa.Table.from_pylist(list(rows)), file)
    return file.getvalue()


def _jsonl(rows: Sequence[dict[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


@pytest.fixture
def speed_bench(loopback: Hub) -> Hub:
    loopback.add(
        f"datasets/{NAME}",
        {
            "README.md": b"# a benchmark",
            "qualitative/test-00000-of-00001.parquet": _parquet(QUALITATIVE),
            "throughput_1k/test-00000-of-00002.parquet": _parquet(THROUGHPUT[:2]),
            "throughput_1k/test-00001-of-00002.parquet": _parquet(THROUGHPUT[2:]),
        },
    )
    return loopback


def _as_parquet(name: str, folder: Path) -> Path:
    """Write the rows of a JSONL as Parquet."""
    lines = (SUITES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    file = folder / f"{name}.parquet"
    file.write_bytes(_parquet([json.loads(line) for line in lines if line.strip()]))
    return file


@pytest.mark.parametrize("name", ["speed-bench", "speed-bench-prepared", "spec-bench"])
def test_parquet_is_the_same_suite_as_jsonl(name: str, tmp_path: Path) -> None:
    assert prompts.load(_as_parquet(name, tmp_path)) == prompts.load(SUITES / f"{name}.jsonl")


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_throughput_split_says_how_long_its_prompts_are(ending: str, tmp_path: Path) -> None:
    write = _parquet if ending == "parquet" else _jsonl
    for place in (tmp_path / f"throughput_8k.{ending}", tmp_path / "throughput_8k" / f"test.{ending}"):
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(write(THROUGHPUT))
        suite = prompts.load(place)
        assert suite.categories == ("low_entropy, 8k", "mixed, 8k", "high_entropy, 8k")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"question_id": "a", "answer": "b"}], "row 1: there are no turns, messages, prompt or text"),
        ([{"id": "a", "turns": ["x"]}, {"id": "b", "turns": [" "]}], "row 2: "),
        ([{"id": "a", "prompt": "x"}] * 2, "row 2: the id a is already used in .*row 1"),
    ],
)
def test_bad_rows_are_refused_by_number(rows: list[dict[str, Any]], message: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.parquet"
    file.write_bytes(_parquet(rows))
    with pytest.raises(GgufspecError, match=message):
        prompts.load(file)


def test_placeholders_are_refused_in_parquet_as_well(tmp_path: Path) -> None:
    with pytest.raises(GgufspecError, match="the text is a placeholder, here and in 1 more of 3 rows"):
        prompts.load(_as_parquet("speed-bench-unprepared", tmp_path))


def test_without_pyarrow_its_installation_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.parquet"
    file.write_bytes(_parquet(QUALITATIVE))
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "pyarrow":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(GgufspecError, match="pyarrow") as caught:
        prompts.load(file)
    assert caught.value.hint == "pip install 'ggufspec[parquet]'"


def test_a_part_of_a_dataset_is_a_suite_with_commit_and_checksums(speed_bench: Hub) -> None:
    suite = prompts.suite(f"hf:{NAME}:qualitative")
    assert (suite.name, suite.instructions) == (f"hf:{NAME}:qualitative", True)
    assert [(prompt.id, prompt.category, prompt.followups) for prompt in suite.prompts] == [
        ("a1", "coding", ()),
        ("a2", "roleplay", ("Meow",)),
    ]
    commit = speed_bench.repos[f"datasets/{NAME}"].commit
    sha256 = hashlib.sha256(_parquet(QUALITATIVE)).hexdigest()
    assert suite.origin == f"hf:{NAME}@{commit}:qualitative, SHA-256 {sha256}"
    pinned = prompts.suite(f"hf:{NAME}@{commit}:qualitative")
    assert pinned.prompts == suite.prompts
    assert pinned.origin == suite.origin


def test_shards_are_one_part_and_its_name_has_the_length(speed_bench: Hub) -> None:
    suite = prompts.suite(f"hf:{NAME}:throughput_1k")
    assert [prompt.id for prompt in suite.prompts] == ["t0", "t1", "t2"]
    assert suite.categories == ("low_entropy, 1k", "mixed, 1k", "high_entropy, 1k")
    assert suite.origin.count(", ") == 2  # a checksum for each file


def test_files_are_fetched_once_and_then_taken_from_the_cache(speed_bench: Hub) -> None:
    first = prompts.suite(f"hf:{NAME}:qualitative")
    fetched = len(speed_bench.content_requests())
    assert fetched
    datasets.read_dataset.cache_clear()
    assert prompts.suite(f"hf:{NAME}:qualitative") == first
    assert len(speed_bench.content_requests()) == fetched
    datasets.read_dataset.cache_clear()
    requests = len(speed_bench.seen)
    commit = speed_bench.repos[f"datasets/{NAME}"].commit
    locks = hub.Access().cache_dir / ".locks"
    shutil.rmtree(locks)
    locks.touch()  # as in a cache that cannot be written
    offline = prompts.suite(f"hf:{NAME}@{commit}:qualitative", hub.Access(offline=True))
    assert offline.prompts == first.prompts
    assert len(speed_bench.seen) == requests


def test_jsonl_is_taken_where_a_part_has_both(loopback: Hub) -> None:
    loopback.add(
        "datasets/me/both",
        {"data/test.parquet": b"broken", "data/test.jsonl": _jsonl(QUALITATIVE)},
        lfs=False,
    )
    suite = prompts.suite("hf:me/both")
    assert len(suite.prompts) == 2
    assert suite.name == "hf:me/both:data"


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        (f"hf:{NAME}", GgufspecError, "has several parts: qualitative, throughput_1k"),
        (f"hf:{NAME}:test", GgufspecError, "has several parts"),
        (f"hf:{NAME}:throughput_2k", GgufspecError, "has no part 'throughput_2k'"),
        (f"hf:{NAME}@v9:qualitative", RevisionNotFoundError, "has no revision v9"),
        ("hf:nv/other", RepositoryNotFoundError, "no repository datasets/nv/other"),
        ("hf:SPEED-Bench", BadReferenceError, "not a dataset: 'SPEED-Bench'"),
        ("hf:a b/c", BadReferenceError, "not a dataset"),
    ],
)
def test_what_is_no_suite_of_the_hub_is_refused_in_one_line(
    name: str, error: type[GgufspecError], message: str, speed_bench: Hub
) -> None:
    with pytest.raises(error, match=message) as caught:
        prompts.suite(name)
    assert caught.value.hint
    assert len(caught.value.message.splitlines()) == 1


def test_a_gated_dataset_is_refused_with_what_to_do(loopback: Hub) -> None:
    loopback.add("datasets/nv/gated", {"test.jsonl": _jsonl(QUALITATIVE)}, gated=True)
    with pytest.raises(GatedRepositoryError, match="is gated: its files need permission") as caught:
        prompts.suite("hf:nv/gated")
    page = f"{loopback.url}/datasets/nv/gated"
    assert caught.value.hint == f"accept its terms at {page}, then log in with hf auth login, or pass --token"
    code, _, err = run("prompts", "list", "--suite", "hf:nv/gated")
    assert code == GatedRepositoryError.exit_code
    assert "accept its terms at" in err
    allowed = prompts.suite("hf:nv/gated", hub.Access(token="hf_good"))
    assert len(allowed.prompts) == 2


def test_offline_and_without_a_cache_it_is_refused(speed_bench: Hub) -> None:
    with pytest.raises(NotCachedError, match="not in the cache"):
        prompts.suite(f"hf:{NAME}:qualitative", hub.Access(offline=True))


def test_a_file_that_is_not_what_the_hub_lists_is_refused(loopback: Hub) -> None:
    repo = loopback.add("datasets/me/broken", {"test.jsonl": _jsonl(QUALITATIVE)})
    repo.files["test.jsonl"].content.write_bytes(_jsonl(QUALITATIVE).replace(b"cat", b"dog"))
    with pytest.raises(CorruptDownloadError, match="does not have the hash"):
        prompts.suite("hf:me/broken")


def test_hub_suites_are_measured(speed_bench: Hub, llama_server: Path, tmp_path: Path) -> None:
    asked = BenchOptions(
        engine="server", draft=3, n_predict=8, repeats=1, threads=1, suite=f"hf:{NAME}:qualitative"
    )
    session = prepare_session(asked)
    commit = speed_bench.repos[f"datasets/{NAME}"].commit
    assert any(note.startswith(f"suite: hf:{NAME}@{commit}:qualitative") for note in session.notes)
    stored = ggufspec.load(ggufspec.bench(asked).meta.id)
    assert {spec.prompt.category for spec in stored.current.specs} == {"coding", "roleplay"}
    local = tmp_path / "qualitative.parquet"
    local.write_bytes(_parquet(QUALITATIVE))
    same = asked.replace(prompt_file=local, suite=None)
    other = ggufspec.load(ggufspec.bench(same).meta.id)
    assert stored.meta.suite_sha256 != other.meta.suite_sha256
    again = ggufspec.load(ggufspec.bench(asked).meta.id)
    assert again.meta.suite_sha256 == stored.meta.suite_sha256
