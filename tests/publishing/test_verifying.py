"""A bundle whose figures, logs or hashes were changed does not verify, and a hostile one is refused."""

from __future__ import annotations

import io
import re
import shutil
import stat
import struct
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path

import pytest

from ggufspec import publishing, results
from ggufspec.analysis import MeasurementWarning
from ggufspec.domain import Conditions, Difference, Drafting, Method, Role, RunResult, RunSpec, Sample, Status
from ggufspec.errors import ResultsError, VerificationError
from ggufspec.publishing import derived, findings as checking_files
from ggufspec.report import frames
from ggufspec.results import archive
from tests.support import published, shell
from tests.support.published import PRIVATE, Published, changed

NAME = "of-user-1"


_made: dict[str, Published] = {}


@pytest.fixture
def make(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Published]:
    """Return a function that makes a copy of the bundle of an engine; each is published once."""

    def copied(engine: str) -> Published:
        if engine not in _made:
            _made[engine] = Published.of(published.bench(engine), tmp_path_factory.mktemp(engine) / "bundle")
        copy = shutil.copytree(_made[engine].folder, tmp_path / engine)
        return replace(_made[engine], folder=copy)

    return copied


@pytest.fixture
def bundle(make: Callable[[str], Published]) -> Published:
    return make("binary")


def test_a_bundle_verifies_as_a_folder_and_as_a_zip(bundle: Published, tmp_path: Path) -> None:
    archive.write_zip(bundle.folder, tmp_path / "bundle.zip")
    for place in (bundle.folder, tmp_path / "bundle.zip"):
        verification = publishing.verify(place)
        assert verification.findings == ()
        assert (verification.benches, verification.n_runs) == ((NAME,), 8)
        assert verification.sha256 == archive.hash_file(bundle.folder / "verify.txt")
    assert bundle.verify(sha256=verification.sha256.upper()).findings == ()


@pytest.mark.parametrize(
    ("engine", "own"),
    [
        ("binary", {"sampling_s", "target"}),
        ("server", {"rounds", "accepted_at", "ttft_s"}),
        ("inprocess", {"draft_s", "verify_s"}),
    ],
)
def test_every_figure_of_a_run_follows_from_its_log(
    engine: str, own: set[str], make: Callable[[str], Published]
) -> None:
    bundle = make(engine)
    tried = set()
    for role, place in {Role.TARGET: 4, Role.DRAFTING: 5}.items():
        run = bundle.runs[place]
        assert run.spec.role is role
        known = {field.name: getattr(run.sample, field.name) for field in fields(Sample)}
        forgeries = [
            (name, replace(run.sample, **{name: changed(value)}))
            for name, value in known.items()
            if value not in (None, ())
        ]
        tried |= {*bundle.finds_each(forgeries, place)}
    assert tried >= {"status", "gen_tokens", "gen_s", "prompt_tps", "n_drafted", "n_accepted", "text", *own}


BUSY = MeasurementWarning.BUSY_MACHINE.value


def _of_spec(change: Callable[[RunSpec], RunSpec]) -> Callable[[RunResult], RunResult]:
    return lambda run: replace(run, spec=change(run.spec))


def _other_content(spec: RunSpec) -> RunSpec:
    return replace(spec, pair=replace(spec.pair, target=replace(spec.pair.target, content="c3" * 32)))


RUN_CHANGES: dict[str, Callable[[RunResult], RunResult]] = {
    "text_identical is": lambda run: replace(run, text_identical=not run.text_identical),
    "3 attempts, but logs of 1": lambda run: replace(run, attempts=3),
    f"has the warning {BUSY}": lambda run: replace(run, doubts=(BUSY,)),
    f"lacks the warning {BUSY}": lambda run: replace(run, conditions=Conditions(others_cores=0.9)),
    "counts as w1": lambda run: replace(run, warmup=True),
    "counts as r7": lambda run: replace(run, repeat=7),
    "draft size is 8": _of_spec(lambda spec: replace(spec, drafting=Drafting(n_max=8))),
    "name the content": _of_spec(_other_content),
    "two runs have the same log": lambda run: replace(run, log=f"0001-drafting-{published.BUILT_IN.id}-r0"),
    "which is no name of a log": lambda run: replace(run, log="../../../../../etc/passwd"),
    "there is no engine": lambda run: replace(run, engine="magic"),
    "is not one of the bench": _of_spec(lambda spec: replace(spec, build="b9999")),
}


@pytest.mark.parametrize("finding", RUN_CHANGES)
def test_what_a_run_counts_as_follows_too(bundle: Published, finding: str) -> None:
    bundle.change_run(RUN_CHANGES[finding])
    assert bundle.finds(finding)


def test_what_each_method_of_a_chain_drafted_follows_from_the_totals_of_a_server(tmp_path: Path) -> None:
    bench = published.bench("server", way=published.CHAIN)
    first, second = published.BY_METHOD
    assert bench.runs[5].sample.by_method == published.BY_METHOD
    assert bench.runs[5].sample.n_accepted == first.n_accepted + second.n_accepted
    bundle = Published.of(bench, tmp_path / "bundle")
    assert bundle.verify().findings == ()
    assert bundle.leaves("runs that were repeated: 0001-drafting")
    forged = (
        first._replace(n_accepted=first.n_accepted + 2),
        second._replace(n_accepted=second.n_accepted - 2),
    )
    bundle.change_run(lambda run: replace(run, sample=replace(run.sample, by_method=forged)))
    assert bundle.finds("by_method is")


@pytest.mark.parametrize("method", list(Method))
def test_the_draft_size_of_every_method_is_that_of_its_log(bundle: Published, method: Method) -> None:
    """The log shows γ 3. llama.cpp lowers larger sizes to what a head was trained for."""
    stored = results.load(bundle.bench)
    for n_max, is_found in ((3, False), (2, True), (8, not method.is_head)):
        drafting = Drafting(n_max=n_max, method=method)
        bundle.change_run(_of_spec(lambda spec, drafting=drafting: replace(spec, drafting=drafting)))  # type: ignore[misc]
        assert bundle.finds("draft size") is is_found, n_max
        results.write_bench(bundle.bench, stored.meta, stored.runs)


def test_a_difference_is_where_the_texts_part(bundle: Published) -> None:
    bundle.edit(f"{LOGS}/0005-*.out", _swap("please", "quickly"))
    text = bundle.runs[5].sample.text.replace("please", "quickly")
    for at_char in (0, 3):
        found = Difference(at_char=at_char, at_token=None)
        bundle.change_run(
            lambda run, found=found: replace(  # type: ignore[misc]
                run, sample=replace(run.sample, text=text), text_identical=False, difference=found
            )
        )
        assert bundle.finds("differs at character 0, not 3") is (at_char == 3)
    assert len(bundle.verify().findings) == 1


def _swap(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new, 1)


def _other_digit(text: str) -> str:
    """Change a digit of the last number with a fraction."""
    *_, digit = re.finditer(r"\d(?=\.\d)", text)
    return f"{text[: digit.start()]}{'2' if digit[0] == '1' else '1'}{text[digit.end() :]}"


def _gone(_: str) -> None:
    return None


def _new(_: str) -> str:
    return "x"


LOGS = "benches/*/logs"
AGREEING: list[tuple[str, Callable[[str], str | None], str]] = [
    (f"{LOGS}/0000-*.err", _swap("190.00 ms", "191.00 ms"), "gen_s is 0.19, but"),
    (f"{LOGS}/0001-*-r0.err", _swap("n_accept  = 18", "n_accept  = 19"), "n_accepted is 18"),
    (f"{LOGS}/0001-*-r0.out", _swap("please", "quickly"), "text is"),
    (f"{LOGS}/0002-*.err", _gone, "its log shows"),
    (f"{LOGS}/0002-*", _gone, "raw logs are missing"),
    (f"{LOGS}/0001-*.lost1.*", _gone, "2 attempts, but logs of 1"),
    (f"benches/{NAME}/logs/0000-x.lost1.err", _new, "belongs to no run"),
    (f"benches/{NAME}/notes.txt", _new, "is not a file of a bench"),
    ("virus.exe", _new, "virus.exe does not follow"),
    ("charts/*-curve.svg", _gone, "curve.svg is missing"),
    ("README.md", _other_digit, "README.md does not follow"),
    ("methods.md", _swap("2 prompts", "200 prompts"), "methods.md does not follow"),
    ("citation.bib", _swap("0.3.36", "0.3.37"), "citation.bib does not follow"),
    ("report.html", _other_digit, "report.html does not follow"),
    ("tables/*.md", _other_digit, f"{NAME}.md does not follow"),
    ("tables/*.tex", _other_digit, f"{NAME}.tex does not follow"),
    ("tables/*-arms.json", _swap('"gen_tps": 1', '"gen_tps": 2'), "arms.json does not follow"),
    ("tables/*-runs.json", _swap('"n_accepted": 18', '"n_accepted": 17'), "runs.json does not"),
    ("charts/*-curve.svg", _swap('aria-label="', 'aria-label="9'), "curve.svg does not"),
    ("bundle.json", _swap('"with_texts": true', '"with_texts": 1'), "bundle.json cannot be"),
    ("bundle.json", _swap(NAME, "other"), "bench other: "),
    ("bundle.json", _swap(f'"{NAME}"', '"../../x"'), "'../../x'"),
    ("benches/*/runs.jsonl", _swap('"repeat":1', '"repeat":2'), "bench of-user-1: "),
    ("benches/*/meta.json", _swap("A Processor", "B Processor"), "not match its checksum"),
]
"""Changed files with hashes that agree -> what is found."""
DISAGREEING: list[tuple[str, Callable[[str], str | None], str]] = [
    *(
        (name, lambda text: f"{text} ", f"{Path(name).name} was changed")
        for name in ("methods.md", f"benches/{NAME}/runs.jsonl", "bundle.json")
    ),
    ("verify.txt", lambda text: ("1" if text[0] == "0" else "0") + text[1:], "was changed"),
    ("verify.txt", lambda text: text.partition("\n")[2], "is not listed"),
    ("verify.txt", lambda text: f"{text}{'0' * 64}  ghost\n", "ghost is missing"),
    ("verify.txt", lambda text: text + text, "has an invalid line"),
    ("verify.txt", lambda text: f"{text}nothing\n", "has an invalid line"),
]
"""Likewise with hashes that do not."""


@pytest.mark.parametrize(("pattern", "change", "finding"), [*AGREEING, *DISAGREEING])
def test_a_changed_file_is_found(
    bundle: Published, pattern: str, change: Callable[[str], str | None], finding: str
) -> None:
    bundle.edit(pattern, change)
    if (pattern, change, finding) in AGREEING:
        bundle.rehash()
    assert bundle.finds(finding), bundle.verify().findings


def test_a_table_of_parquet_may_be_packed_otherwise_but_not_changed(bundle: Published) -> None:
    file = bundle.folder / "tables" / f"{NAME}-arms.parquet"
    frame = frames.read_parquet(io.BytesIO(file.read_bytes()))
    for factor in (1, 2):
        frame.assign(gen_tps=factor * frame["gen_tps"]).to_parquet(file, index=False, compression="gzip")
        bundle.rehash()
        assert bundle.finds("arms.parquet does not follow") is (factor == 2)


def test_a_forgery_that_agrees_with_itself_is_found_by_its_sha256_alone(bundle: Published) -> None:
    sha256 = archive.hash_file(bundle.folder / "verify.txt")
    bundle.edit(f"{LOGS}/0005-*.err", lambda log: log.replace("0.105", "0.052").replace("314.286", "634.615"))
    bundle.change_run(lambda run: replace(run, sample=replace(run.sample, gen_s=0.052, gen_tps=634.615)))
    assert not bundle.finds("run 5")
    assert any("it is another bundle" in finding for finding in bundle.verify(sha256=sha256).findings)


def test_a_chart_that_is_drawn_otherwise_is_named(bundle: Published) -> None:
    bundle.edit("charts/*-curve.svg", _swap("<path", "<path "))
    bundle.rehash()
    assert bundle.verify().findings == ()
    assert bundle.leaves("how charts are drawn")


def test_files_of_another_version_are_named(bundle: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {**derived.library_versions(), "numpy": "9"}
    monkeypatch.setattr(checking_files, "library_versions", lambda: versions)
    bundle.edit("report.html", _other_digit)
    bundle.edit("tables/*-arms.json", _swap('"gen_tps": 1', '"gen_tps": 2'))
    bundle.rehash()
    assert not bundle.finds("report.html")
    assert bundle.finds("arms.json")
    (others,) = [sentence for sentence in bundle.verify().unchecked if "other versions" in sentence]
    assert "report.html" in others


def test_what_cannot_be_recomputed_is_named(bundle: Published) -> None:
    failed = replace(bundle.runs[5].sample, status=Status.CRASHED, text=None)
    bundle.change_run(lambda run: replace(run, sample=failed, text_identical=None))
    for said in (
        "whether runs failed whose logs are complete, as only their exit codes say so: 0005-",
        *("what the target said of texts", "the machine, command lines and settings"),
    ):
        assert bundle.leaves(said)


def test_a_server_whose_load_has_no_log_is_named(make: Callable[[str], Published]) -> None:
    bundle = make("server")
    bundle.change_run(lambda run: replace(run, load=99))
    assert bundle.leaves("whose load has no log")


# -- what no bundle has


LINK = zipfile.ZipInfo("b/verify.txt")
LINK.external_attr = (stat.S_IFLNK | 0o777) << 16
ODD_NAMES = (
    *("../evil", "/etc/evil", "a/../../evil", "a//b", "C:\\evil", "..\\evil"),
    *("a/\x1b[31m", ".hidden", "a/ b"),
)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        *(([("b/verify.txt", b""), (name, b"x")], "has a file named") for name in ODD_NAMES),
        ([("b/verify.txt", bytes(50 << 20))], "would unpack to 50"),
        ([(LINK, b"/etc/passwd")], "is a link"),
        ([("b/verify.txt", b""), ("b/VERIFY.txt", b"")], "twice"),
        ([(f"b/{number}", b"") for number in range(4)], "more than 3 files"),
        *((content, "cannot be unpacked") for content in (b"", b"PK\x03\x04 and then nothing", b"not a zip")),
    ],
)
def test_a_hostile_zip_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    entries: Sequence[tuple[zipfile.ZipInfo | str, bytes]] | bytes,
    said: str,
) -> None:
    if "3 files" in said:
        monkeypatch.setattr(archive, "MOST_FILES", 3)
    file = _zip(tmp_path / "x.zip", entries)
    with pytest.raises(ResultsError, match=said):
        publishing.verify(file)
    assert {path.name for path in tmp_path.iterdir()} == {"x.zip", "home"}


def _zip(file: Path, entries: Sequence[tuple[zipfile.ZipInfo | str, bytes]] | bytes) -> Path:
    if isinstance(entries, bytes):
        file.write_bytes(entries)
        return file
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in entries:
            packed.writestr(name, content)
    return file


def test_a_zip_whose_content_is_damaged_is_refused(tmp_path: Path) -> None:
    file = _zip(tmp_path / "x.zip", [("b/verify.txt", b"x")])
    content = file.read_bytes()
    place = content.index(b"verify.txt") + len(b"verify.txt")  # of the first packed byte
    file.write_bytes(content[:place] + b"\xff" + content[place + 1 :])
    with pytest.raises(ResultsError, match="cannot be unpacked"):
        publishing.verify(file)


def test_a_zip_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    file = _zip(tmp_path / "x.zip", [("b/verify.txt", bytes(50 << 20))])
    content = file.read_bytes()
    file.write_bytes(content.replace(struct.pack("<I", 50 << 20), struct.pack("<I", 1000)))
    with pytest.raises(ResultsError):
        publishing.verify(file)


def test_odd_folders_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundle: Published) -> None:
    (tmp_path / "empty").mkdir()
    for folder, said in (("empty", "is not a bundle"), ("nowhere", "there is no bundle")):
        with pytest.raises(ResultsError, match=said):
            publishing.verify(tmp_path / folder)
    link = bundle.folder / "methods.md"
    link.unlink()
    link.symlink_to("/etc/passwd")
    with pytest.raises(ResultsError, match="link"):
        publishing.verify(bundle.folder)
    link.unlink()
    monkeypatch.setattr(archive, "MOST_FILES", 3)
    with pytest.raises(ResultsError, match="more than 3 files"):
        publishing.verify(bundle.folder)


# -- the command line


def test_publish_and_verify_commands(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("USER", published.USER)
    monkeypatch.setenv("API_TOKEN", published.PASSWORD)
    published.bench(name="mine")
    done = shell.done("publish", "--offline")
    assert f"these repositories are not known to be public: {PRIVATE}" in done.stderr
    written, *_, sha256, _ = done.stdout.splitlines()
    assert written.startswith("Written: mine-bundle and mine-bundle.zip (")
    sha256 = sha256.removeprefix("SHA-256: ")
    monkeypatch.setenv("GGUFSPEC_DATA", str(tmp_path / "elsewhere"))
    checked = shell.here("verify", "mine-bundle.zip", "--sha256", sha256)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert checked.stdout.startswith("Verifies: all figures follow from the raw logs.\n")
    assert f"SHA-256: {sha256}\n" in checked.stdout
    assert "Not recomputed: times and memory by ggufspec's own clock" in checked.stdout
    wrong = shell.here("verify", "mine-bundle", "--sha256", "0" * 64)
    assert wrong.returncode == VerificationError.exit_code == 36
    assert "Wrong: the SHA-256 of this bundle is" in wrong.stdout
    assert "error: mine-bundle does not verify: 1 finding\n" in wrong.stderr
    monkeypatch.setenv("GGUFSPEC_DATA", str(home / "data"))
    again = shell.here("publish", "--offline")
    assert (again.returncode, "already exists" in again.stderr) == (1, True)
