"""A bundle whose figures, logs or hashes were changed does not verify, and a hostile one is refused."""

from __future__ import annotations

import io
import shutil
import stat
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from ggufspec import publishing, results
from ggufspec.analysis import MeasurementWarning
from ggufspec.domain import (
    Conditions,
    Difference,
    Drafting,
    LoadedModel,
    Method,
    Role,
    RunResult,
    Sample,
    Status,
)
from ggufspec.errors import ResultsError, VerificationError
from ggufspec.publishing import Verification, derived, findings as checking_files
from ggufspec.report import frames
from ggufspec.report.text import formats
from ggufspec.results import archive
from tests.support import published, shell
from tests.support.published import IDENTITY, PRIVATE

ENGINES = ("binary", "server", "inprocess")
NAME = "of-user-1"


@dataclass(frozen=True)
class Published:
    """A bundle, and the files that follow from its benches."""

    folder: Path
    derived: dict[str, bytes]

    def verify(self, **options: Any) -> Verification:
        """Verify it without drawing its charts again."""
        return publishing.verify(self.folder, derived=self.derived, **options)

    @property
    def bench(self) -> Path:
        return self.folder / "benches" / NAME

    def rehash(self) -> None:
        archive.write_hashes(self.folder)

    def change_runs(self, change: Callable[[RunResult], RunResult], place: int = 5, **meta: Any) -> None:
        """Change one run, or the bench, and make all checksums and hashes agree with that."""
        stored = results.load(self.bench)
        runs = [change(run) if number == place else run for number, run in enumerate(stored.runs)]
        results.write_bench(self.bench, replace(stored.meta, **meta), runs)
        self.rehash()


_made: dict[str, Published] = {}


@pytest.fixture
def make(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Published]:
    """Return a function that makes a copy of the bundle of an engine; each is published once."""

    def copied(engine: str) -> Published:
        if engine not in _made:
            folder = tmp_path_factory.mktemp(engine) / "bundle"
            publishing.publish(
                [published.bench(engine)], folder, identity=IDENTITY, private=(PRIVATE,), with_texts=True
            )
            _made[engine] = Published(folder, _derived(folder))
        target = tmp_path / f"{engine}-{len(list(tmp_path.iterdir()))}"
        shutil.copytree(_made[engine].folder, target)
        return Published(target, _made[engine].derived)

    return copied


def _derived(folder: Path) -> dict[str, bytes]:
    return {
        name: file.read_bytes()
        for name, file in archive.list_files(folder).items()
        if not name.startswith(("benches/", "verify.txt", "bundle.json"))
    }


@pytest.fixture
def bundle(make: Callable[[str], Published]) -> Published:
    return make("binary")


def changed(value: Any) -> Any:
    """Return another value of the same kind."""
    if isinstance(value, Enum):
        return next(other for other in type(value) if other is not value)
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, LoadedModel):
        return replace(value, offloaded_layers=(value.offloaded_layers or 0) + 1)
    return (changed(value[0]), *value[1:])


def test_a_bundle_verifies_as_a_folder_and_as_a_zip(make: Callable[[str], Published], tmp_path: Path) -> None:
    bundle = make("binary")
    archive.write_zip(bundle.folder, tmp_path / "bundle.zip")
    for place in (bundle.folder, tmp_path / "bundle.zip"):
        verification = publishing.verify(place)
        assert verification.findings == ()
        assert (verification.benches, verification.n_runs) == ((NAME,), 8)
        assert verification.sha256 == archive.hash_file(bundle.folder / "verify.txt")
    text = publishing.describe_verification(verification)
    assert text.startswith("Verifies: all figures follow from the raw logs.\n")
    assert "Not recomputed: times and memory by ggufspec's own clock" in text
    assert (
        publishing.verify(bundle.folder, sha256=verification.sha256.upper(), derived=bundle.derived).findings
        == ()
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_every_figure_of_a_run_follows_from_its_log(engine: str, make: Callable[[str], Published]) -> None:
    bundle = make(engine)
    stored = results.load(bundle.bench)
    places = {Role.TARGET: 4, Role.DRAFTING: 5}
    tried = set()
    for role, place in places.items():
        assert stored.runs[place].spec.role is role
        for name in (field.name for field in fields(Sample)):
            value = getattr(stored.runs[place].sample, name)
            if value is None or value == ():
                continue
            sample = replace(stored.runs[place].sample, **{name: changed(value)})
            bundle.change_runs(lambda run, sample=sample: replace(run, sample=sample), place)  # type: ignore[misc]
            assert bundle.verify().findings, name
            results.write_bench(bundle.bench, stored.meta, stored.runs)
            tried.add(name)
    bundle.rehash()
    assert bundle.verify().findings == ()
    assert tried >= {"status", "gen_tokens", "gen_s", "prompt_tps", "n_drafted", "n_accepted", "text"}
    assert tried >= {"server": {"rounds", "accepted_at", "ttft_s"}, "inprocess": {"draft_s", "verify_s"}}.get(
        engine, {"sampling_s", "target"}
    )


BUSY = MeasurementWarning.BUSY_MACHINE.value
RUN_CHANGES: dict[str, Callable[[RunResult], RunResult]] = {
    "text_identical is": lambda run: replace(run, text_identical=not run.text_identical),
    "1 attempt": lambda run: replace(run, attempts=3),
    f"has the warning {BUSY}": lambda run: replace(run, doubts=(BUSY,)),
    f"lacks the warning {BUSY}": lambda run: replace(run, conditions=Conditions(others_cores=0.9)),
    "counts as w1": lambda run: replace(run, warmup=True),
    "counts as r7": lambda run: replace(run, repeat=7),
    "draft size is 8": lambda run: replace(
        run, spec=replace(run.spec, drafting=run.spec.drafting and replace(run.spec.drafting, n_max=8))
    ),
    "name the content": lambda run: replace(
        run,
        spec=replace(
            run.spec, pair=replace(run.spec.pair, target=replace(run.spec.pair.target, content="c3" * 32))
        ),
    ),
    "two runs have the same log": lambda run: replace(run, log=f"0001-drafting-{published.BUILT_IN.id}-r0"),
    "which is no name of a log": lambda run: replace(run, log="../../../../../etc/passwd"),
    "there is no engine": lambda run: replace(run, engine="magic"),
    "is not one of the bench": lambda run: replace(run, spec=replace(run.spec, build="b9999")),
}


@pytest.mark.parametrize("finding", RUN_CHANGES)
def test_what_a_run_counts_as_follows_too(bundle: Published, finding: str) -> None:
    bundle.change_runs(RUN_CHANGES[finding])
    wanted = "attempts, but logs of 1" if finding == "1 attempt" else finding
    assert any(wanted in sentence for sentence in bundle.verify().findings)


def test_what_each_method_of_a_chain_drafted_follows_from_the_totals_of_a_server(tmp_path: Path) -> None:
    bench = published.bench("server", way=published.CHAIN)
    assert bench.runs[5].sample.by_method == published.BY_METHOD
    accepted = sum(counts.n_accepted for counts in published.BY_METHOD)
    assert bench.runs[5].sample.n_accepted == accepted
    folder = tmp_path / "bundle"
    publishing.publish([bench], folder, identity=IDENTITY, private=(PRIVATE,), with_texts=True)
    bundle = Published(folder, _derived(folder))
    verification = bundle.verify()
    assert verification.findings == ()
    assert any("runs that were repeated: 0001-drafting" in sentence for sentence in verification.unchecked)
    first, second = published.BY_METHOD
    forged = (
        first._replace(n_accepted=first.n_accepted + 2),
        second._replace(n_accepted=second.n_accepted - 2),
    )
    bundle.change_runs(lambda run: replace(run, sample=replace(run.sample, by_method=forged)))
    assert any("by_method is" in finding for finding in bundle.verify().findings)


@pytest.mark.parametrize("method", list(Method))
def test_the_draft_size_of_every_method_is_that_of_its_log(bundle: Published, method: Method) -> None:
    """The log shows γ 3. llama.cpp lowers larger sizes to what a head was trained for."""

    def findings(n_max: int) -> list[str]:
        drafting = Drafting(n_max=n_max, method=method)
        stored = results.load(bundle.bench)
        bundle.change_runs(lambda run: replace(run, spec=replace(run.spec, drafting=drafting)))
        found = [finding for finding in bundle.verify().findings if "draft size" in finding]
        results.write_bench(bundle.bench, stored.meta, stored.runs)
        return found

    assert findings(3) == []
    assert len(findings(2)) == 1
    assert len(findings(8)) == (0 if method.is_head else 1)


def test_a_difference_is_where_the_texts_part(bundle: Published) -> None:
    log = next((bundle.bench / "logs").glob("0005-*.out"))
    log.write_text(log.read_text().replace("please", "quickly"))
    text = results.load(bundle.bench).runs[5].sample.text
    other = text.replace("please", "quickly")

    def change(at_char: int) -> Callable[[RunResult], RunResult]:
        found = Difference(at_char=at_char, at_token=None)
        return lambda run: replace(
            run, sample=replace(run.sample, text=other), text_identical=False, difference=found
        )

    bundle.change_runs(change(0))
    assert bundle.verify().findings == ()
    bundle.change_runs(change(3))
    assert any("differs at character 0, not 3" in finding for finding in bundle.verify().findings)


def _edit(name: str, old: str, new: str) -> Callable[[Published], None]:
    def edit(bundle: Published) -> None:
        file = next(bundle.folder.glob(name))
        content = file.read_text()
        assert old in content
        file.write_text(content.replace(old, new, 1))
        bundle.rehash()

    return edit


def _remove(name: str) -> Callable[[Published], None]:
    def remove(bundle: Published) -> None:
        next(bundle.folder.glob(name)).unlink()
        bundle.rehash()

    return remove


def _add(name: str) -> Callable[[Published], None]:
    def add(bundle: Published) -> None:
        (bundle.folder / name).write_text("x")
        bundle.rehash()

    return add


def _edit_parquet(bundle: Published) -> None:
    file = bundle.folder / "tables" / f"{NAME}-arms.parquet"
    frame = frames.read_parquet(io.BytesIO(file.read_bytes()))
    frame["gen_tps"] = frame["gen_tps"] * 2
    file.write_bytes(bytes(formats.render(frame, "parquet")))  # type: ignore[arg-type]
    bundle.rehash()


def _number(name: str) -> Callable[[Published], None]:
    """Change the first digit of the last number with a fraction in a file."""

    def edit(bundle: Published) -> None:
        file = next(bundle.folder.glob(name))
        content = file.read_text()
        place = max(
            at
            for at in range(1, len(content) - 1)
            if content[at] == "." and content[at + 1].isdigit() and content[at - 1].isdigit()
        )
        digit = "1" if content[place - 1] != "1" else "2"
        file.write_text(content[: place - 1] + digit + content[place:])
        bundle.rehash()

    return edit


def _remove_logs(name: str) -> Callable[[Published], None]:
    def remove(bundle: Published) -> None:
        for ending in ("err", "out"):
            _remove(f"{LOGS}/{name}.{ending}")(bundle)

    return remove


LOGS = "benches/*/logs"
FILE_CHANGES: dict[str, tuple[Callable[[Published], None], str]] = {
    "a log's time": (_edit(f"{LOGS}/0000-*.err", "190.00 ms", "191.00 ms"), "gen_s is 0.19, but"),
    "a log's tokens": (
        _edit(f"{LOGS}/0001-*-r0.err", "n_accept  = 18", "n_accept  = 19"),
        "n_accepted is 18",
    ),
    "a log's text": (_edit(f"{LOGS}/0001-*-r0.out", "please", "quickly"), "text is"),
    "a log that is gone": (_remove(f"{LOGS}/0002-*.err"), "its log shows"),
    "both logs": (_remove_logs("0002-*"), "raw logs are missing"),
    "a lost log": (_remove_logs("0001-*.lost1"), "2 attempts, but logs of 1"),
    "one more lost log": (_add(f"benches/{NAME}/logs/0000-x.lost1.err"), "belongs to no run"),
    "a file in a bench": (_add(f"benches/{NAME}/notes.txt"), "is not a file of a bench"),
    "a file": (_add("virus.exe"), "virus.exe does not follow"),
    "a chart that is gone": (_remove("charts/*-curve.svg"), "curve.svg is missing"),
    "the readme": (_number("README.md"), "README.md does not follow"),
    "the methods": (_edit("methods.md", "2 prompts", "200 prompts"), "methods.md does not follow"),
    "the citation": (_edit("citation.bib", "0.3.36", "0.3.37"), "citation.bib does not follow"),
    "the page": (_number("report.html"), "report.html does not follow"),
    "a table": (_number("tables/*.md"), f"{NAME}.md does not follow"),
    "a table for LaTeX": (_number("tables/*.tex"), f"{NAME}.tex does not follow"),
    "arms": (_edit("tables/*-arms.json", '"gen_tps": 1', '"gen_tps": 2'), "arms.json does not follow"),
    "runs": (_edit("tables/*-runs.json", '"n_accepted": 18', '"n_accepted": 17'), "runs.json does not"),
    "Parquet": (_edit_parquet, "arms.parquet does not follow"),
    "a chart": (_edit("charts/*-curve.svg", 'aria-label="', 'aria-label="9'), "curve.svg does not"),
    "the facts": (_edit("bundle.json", '"with_texts": true', '"with_texts": 1'), "bundle.json cannot be"),
    "the bench's name": (_edit("bundle.json", NAME, "other"), "bench other: "),
    "a path as a bench": (_edit("bundle.json", f'"{NAME}"', '"../../x"'), "'../../x'"),
    "a line of runs": (_edit("benches/*/runs.jsonl", '"repeat":1', '"repeat":2'), "bench of-user-1: "),
    "the machine": (_edit("benches/*/meta.json", "A Processor", "B Processor"), "not match its checksum"),
}


@pytest.mark.parametrize("what", FILE_CHANGES)
def test_a_changed_file_is_found_although_its_hash_agrees(bundle: Published, what: str) -> None:
    change, finding = FILE_CHANGES[what]
    change(bundle)
    findings = bundle.verify().findings
    assert any(finding in sentence for sentence in findings), findings


def _edit_hashes(change: Callable[[str], str]) -> Callable[[Published], None]:
    def edit(bundle: Published) -> None:
        file = bundle.folder / "verify.txt"
        file.write_text(change(file.read_text()))

    return edit


def _touch(name: str) -> Callable[[Published], None]:
    def touch(bundle: Published) -> None:
        with (bundle.folder / name).open("ab") as file:
            file.write(b" ")

    return touch


HASH_CHANGES: dict[str, tuple[Callable[[Published], None], str]] = {
    "a file": (_touch("methods.md"), "methods.md was changed"),
    "a run's log": (_touch(f"benches/{NAME}/runs.jsonl"), "runs.jsonl was changed"),
    "the facts": (_touch("bundle.json"), "bundle.json was changed"),
    "a digit": (_edit_hashes(lambda text: ("1" if text[0] == "0" else "0") + text[1:]), "was changed"),
    "a line that is gone": (_edit_hashes(lambda text: text.partition("\n")[2]), "is not listed"),
    "a line of another file": (_edit_hashes(lambda text: f"{text}{'0' * 64}  ghost\n"), "ghost is missing"),
    "a line twice": (_edit_hashes(lambda text: text + text), "has an invalid line"),
    "a line of nothing": (_edit_hashes(lambda text: f"{text}nothing\n"), "has an invalid line"),
}


@pytest.mark.parametrize("what", HASH_CHANGES)
def test_a_changed_hash_is_found(bundle: Published, what: str) -> None:
    change, finding = HASH_CHANGES[what]
    change(bundle)
    findings = bundle.verify().findings
    assert any(finding in sentence for sentence in findings), findings


def test_a_forgery_that_agrees_with_itself_is_found_by_its_sha256_alone(bundle: Published) -> None:
    sha256 = archive.hash_file(bundle.folder / "verify.txt")
    log = next((bundle.bench / "logs").glob("0005-*.err"))
    log.write_text(log.read_text().replace("0.105", "0.052").replace("314.286", "634.615"))
    bundle.change_runs(lambda run: replace(run, sample=replace(run.sample, gen_s=0.052, gen_tps=634.615)))
    assert not [finding for finding in bundle.verify().findings if "run 5" in finding]
    assert any("it is another bundle" in finding for finding in bundle.verify(sha256=sha256).findings)


def test_a_chart_that_is_drawn_otherwise_is_named(bundle: Published) -> None:
    _edit("charts/*-curve.svg", "<path", "<path ")(bundle)
    verification = bundle.verify()
    assert verification.findings == ()
    assert any("how charts are drawn" in sentence for sentence in verification.unchecked)


def test_files_of_another_version_are_named(bundle: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        checking_files, "library_versions", lambda: {**derived.library_versions(), "numpy": "9"}
    )
    _number("report.html")(bundle)
    _edit("tables/*-arms.json", '"gen_tps": 1', '"gen_tps": 2')(bundle)
    verification = bundle.verify()
    assert [finding for finding in verification.findings if "report.html" in finding] == []
    assert any("arms.json" in finding for finding in verification.findings)
    assert any(
        "other versions" in sentence and "report.html" in sentence for sentence in verification.unchecked
    )


def test_what_cannot_be_recomputed_is_named(make: Callable[[str], Published]) -> None:
    bundle = make("binary")
    failed = replace(results.load(bundle.bench).runs[5].sample, status=Status.CRASHED, text=None)
    bundle.change_runs(lambda run: replace(run, sample=failed, text_identical=None))
    sentences = " ".join(bundle.verify().unchecked)
    assert "whether runs failed whose logs are complete, as only their exit codes say so: 0005-" in sentences
    assert "what the target said of texts" in sentences
    assert "the machine, command lines and settings" in sentences


def test_a_server_whose_load_has_no_log_is_named(make: Callable[[str], Published]) -> None:
    bundle = make("server")
    bundle.change_runs(lambda run: replace(run, load=99))
    assert any("whose load has no log" in sentence for sentence in bundle.verify().unchecked)


# -- what no bundle has


def _zip(file: Path, *entries: tuple[zipfile.ZipInfo | str, bytes]) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in entries:
            packed.writestr(name, content)
    return file


def _link(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry


@pytest.mark.parametrize(
    "name",
    ["../evil", "/etc/evil", "a/../../evil", "a//b", "C:\\evil", "..\\evil", "a/\x1b[31m", ".hidden", "a/ b"],
)
def test_a_path_that_leads_out_of_a_zip_is_refused(tmp_path: Path, name: str) -> None:
    file = _zip(tmp_path / "x.zip", ("b/verify.txt", b""), (name, b"x"))
    with pytest.raises(ResultsError, match="has a file named"):
        publishing.verify(file)
    assert {path.name for path in tmp_path.iterdir()} == {"x.zip", "home"}


def test_a_zip_bomb_is_refused(tmp_path: Path) -> None:
    file = _zip(tmp_path / "x.zip", ("b/verify.txt", bytes(50 << 20)))
    with pytest.raises(ResultsError, match="would unpack to 50"):
        publishing.verify(file)


def test_a_zip_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    file = _zip(tmp_path / "x.zip", ("b/verify.txt", bytes(50 << 20)))
    content = file.read_bytes()
    file.write_bytes(content.replace(struct.pack("<I", 50 << 20), struct.pack("<I", 1000)))
    with pytest.raises(ResultsError):
        publishing.verify(file)


def test_links_and_names_twice_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="is a link"):
        publishing.verify(_zip(tmp_path / "x.zip", (_link("b/verify.txt"), b"/etc/passwd")))
    with pytest.raises(ResultsError, match="twice"):
        publishing.verify(_zip(tmp_path / "y.zip", ("b/verify.txt", b""), ("b/VERIFY.txt", b"")))


def test_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundle: Published) -> None:
    monkeypatch.setattr(archive, "MOST_FILES", 3)
    with pytest.raises(ResultsError, match="more than 3 files"):
        publishing.verify(bundle.folder)
    with pytest.raises(ResultsError, match="more than 3 files"):
        publishing.verify(_zip(tmp_path / "x.zip", *((f"b/{n}", b"") for n in range(4))))


def test_links_in_a_folder_are_refused(bundle: Published) -> None:
    file = bundle.folder / "methods.md"
    file.unlink()
    file.symlink_to("/etc/passwd")
    with pytest.raises(ResultsError, match="link"):
        publishing.verify(bundle.folder)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and then nothing", b"not a zip at all"])
def test_what_is_not_a_bundle_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(ResultsError, match="cannot be unpacked"):
        publishing.verify(tmp_path / "x.zip")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ResultsError, match="is not a bundle"):
        publishing.verify(tmp_path / "empty")
    with pytest.raises(ResultsError, match="there is no bundle"):
        publishing.verify(tmp_path / "nowhere")


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
    assert f"SHA-256: {sha256}\n" in checked.stdout
    wrong = shell.here("verify", "mine-bundle", "--sha256", "0" * 64)
    assert wrong.returncode == VerificationError.exit_code == 36
    assert "Wrong: the SHA-256 of this bundle is" in wrong.stdout
    assert "error: mine-bundle does not verify: 1 finding\n" in wrong.stderr
    monkeypatch.setenv("GGUFSPEC_DATA", str(home / "data"))
    again = shell.here("publish", "--offline")
    assert (again.returncode, "already exists" in again.stderr) == (1, True)
