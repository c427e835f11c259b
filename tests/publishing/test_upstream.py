"""``ggufspec issue``: the options that a fault needs are found; what does not show is not reported."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

import ggufspec
from ggufspec import prompts, results
from ggufspec.choices import FindingKind
from ggufspec.domain import Difference, Role, TextVerdict
from ggufspec.engines.reduced import split_options
from ggufspec.errors import GgufspecError, NothingToReportError
from ggufspec.llama.install import installs
from ggufspec.options import BenchOptions
from ggufspec.publishing.upstream import UpstreamIssue
from ggufspec.publishing.upstream.reproducing import reduce_options
from ggufspec.results import ResultSet
from tests.support import builds, fakes, shell

TEXT = prompts.suite("demo").prompts[0].text
PLAIN, DRAFTING = fakes.AT_ONCE["plain"], fakes.AT_ONCE["drafting"]
ASSERTION = "x.cpp:7: GGML_ASSERT(n < 3) failed"
CRASHES = f"echo '{ASSERTION}' >&2; kill -ABRT $$"
WRITES_OTHER = fakes.answer(fakes.drafting_log(0.01)).replace("small", "huge") + "exit"


def _counting(drafted: int, accepted: int, rate: str, decode_s: float = 0.01) -> str:
    """Shell commands that write the text, and a log with other counts of drafts."""
    log = fakes.drafting_log(decode_s)
    for before, now in (("= 24", f"= {drafted}"), ("= 18", f"= {accepted}"), ("75.000%", rate)):
        log = log.replace(before, now)
    return fakes.answer(log) + "exit"


LOST = _counting(93, 1, "1.075%")


def _where(flag: str, does: str) -> str:
    """Shell commands that do something where a flag and its value are given, and else draft."""
    return f'case " $* " in *" {flag} "*)\n{does}\n;; esac\n{DRAFTING}'


def _flags(made: UpstreamIssue) -> dict[str, tuple[str, ...]]:
    """The options of the command of a report, with their values."""
    programs = installs.find_install(Path(made.command[0]).parent).programs.values()
    listed = next(each.options for each in programs if str(each.path) == made.command[0])
    return {option[0]: option[1:] for option in split_options(made.command[1:], listed)}


def _measure(folder: Path, drafting: str = DRAFTING, **options: Any) -> ResultSet:
    fakes.install(folder, plain=PLAIN, drafting=drafting)
    asked: dict[str, Any] = {"llama": folder, "n_predict": 33, "repeats": 1, "prompt": TEXT, "threads": 2}
    asked |= {"draft": 3, "ubatch": 32, "engine": "binary"}
    return ggufspec.bench(BenchOptions(**asked | options))


@pytest.mark.parametrize("needed", [set(), {3}, {0, 9}, {4, 5}, {*range(10)}])
def test_a_reduction_leaves_what_is_needed_and_no_more(needed: set[int]) -> None:
    names = [f"--{number}" for number in range(10)]
    asked = list[frozenset[str]]()

    def shows(dropped: frozenset[str]) -> bool:
        asked.append(dropped)
        return dropped.isdisjoint(names[number] for number in needed)

    assert reduce_options([names[:6], names[6:]], shows) == {*names} - {names[number] for number in needed}
    assert len(asked) < 30


def test_a_crash_is_reported_with_the_option_that_it_needs(tmp_path: Path) -> None:
    bench = _measure(tmp_path / "llama", _where("--ubatch-size 32", CRASHES))
    made = ggufspec.issue(bench, offline=True)
    assert made.finding.kind is FindingKind.CRASH
    flags = _flags(made)
    assert flags.pop("--ubatch-size") == ("32",)
    assert {*flags} == {"--model", "--prompt", "--n-predict"}
    for said in (
        *("### Name and Version\n\nversion: ", "llama-speculative \\\n  --model /models"),
        *("--ubatch-size 32", ASSERTION, "### First Bad Commit\n\nNot searched for.", "SHA-256 `"),
    ):
        assert said in made.report
    assert made.title.startswith("Eval bug: llama-speculative: it crashes: ")
    assert str(tmp_path) not in made.report


def test_another_text_is_reported_with_the_option_that_it_needs(tmp_path: Path) -> None:
    stored = _measure(tmp_path / "llama", _where("--draft-p-min 0.25", WRITES_OTHER), p_min=0.25)
    apart = Difference(at_char=12, at_token=2, margin=3.0, verdict=TextVerdict.DIVERGENCE)
    runs = [
        replace(run, difference=apart, text_identical=False) if run.spec.role is Role.DRAFTING else run
        for run in stored.runs
    ]
    results.write_bench(stored.folder, stored.meta, runs)
    made = ggufspec.issue(stored.meta.id, offline=True)
    assert made.finding.kind is FindingKind.TEXT
    assert "--draft-p-min 0.25" in " ".join(made.command)
    assert not {"--ubatch-size", "--threads", "--draft-min"} & {*made.command}
    assert "--temp" in made.command  # else texts would be drawn
    assert "target alone: once there was a small" in made.report


@pytest.mark.parametrize(
    ("does", "kind", "says"),
    [
        (_counting(0, 0, "-nan%"), FindingKind.OFF, "it is started to draft, and drafts nothing"),
        (LOST, FindingKind.ACCEPTANCE, "1.1% of the drafted tokens are accepted"),
    ],
)
def test_drafts_that_are_lost_are_reported_with_the_option_that_loses_them(
    tmp_path: Path, does: str, kind: FindingKind, says: str
) -> None:
    bench = _measure(tmp_path / "llama", _where("--ubatch-size 32", does), repeats=2)
    made = ggufspec.issue(bench, offline=True)
    assert made.finding.kind is kind
    assert says in made.report
    flags = _flags(made)
    assert flags["--ubatch-size"] == ("32",)
    assert "--model-draft" in flags  # without it nobody asked for drafts
    assert not {"--threads", "--draft-min", "--draft-max"} & {*flags}


@pytest.mark.parametrize(("finding", "benches"), [("slower", 1), ("slower", 2), ("acceptance", 2)])
def test_what_a_comparison_found_is_reported_of_the_second_llama_cpp(
    tmp_path: Path, finding: str, benches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_start = psutil.cpu_times()  # else other programs widen the intervals
    monkeypatch.setattr(psutil, "cpu_times", lambda *_args, **_options: at_start)
    old = fakes.install(tmp_path / "old", plain=PLAIN, drafting=DRAFTING)
    speeds = (_counting(93, 1, "1.075%", decode_s=seconds) for seconds in (0.02, 0.021))
    in_turn = 'echo >> "$0.runs"\nif [ $(($(wc -l < "$0.runs") % 2)) = 0 ]; then\n{}\nfi\n{}'
    worse = _where("--threads-draft 2", in_turn.format(*speeds))  # runs that are all alike have no interval
    if benches == 1:
        compared = [_measure(tmp_path / "new", worse, llama=(old, tmp_path / "new"), repeats=3)]
    else:
        compared = [
            _measure(folder, does, repeats=3) for folder, does in ((old, DRAFTING), (tmp_path / "new", worse))
        ]
    made = ggufspec.issue(tuple(compared), finding=finding, offline=True)
    assert made.finding.kind == finding
    assert {build.path for build in made.finding.builds} == {str(old), str(tmp_path / "new")}
    flags = _flags(made)
    assert flags["--threads-draft"] == ("2",)
    assert not {"--threads", "--draft-min"} & {*flags}
    assert "Not bisected: it shows with" in made.report
    assert ("as fast in 3 pairs of runs" if finding == "slower" else "1.1% of the drafted") in made.report
    assert len(re.findall(r"\| ok +\|", made.report)) == 2  # a row for each llama.cpp


def test_a_bisection_names_the_first_bad_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = ("0.3.1", "0.3.2", "0.3.3")
    builds.serve_index(tmp_path / "index", versions, monkeypatch)
    for version in versions:
        builds.publish(version, drafting_s=0.02 if version == "0.3.3" else 0.01)
    words = ("--pair", "demo", "-n", "33", "-t", "1", "-p", TEXT, "--name", "b", "--max-repeats", "4")
    shell.done("bisect", *versions[::2], *words, "--quantity", "drafting", "--backend", "cpu")
    made = ggufspec.issue("b", offline=True)
    assert (made.finding.kind, made.finding.first_bad) == (FindingKind.SLOWER, versions[1:])
    assert "### First Bad Commit\n\n0.3.3 " in made.report
    assert "the last good one is 0.3.2" in made.report


@pytest.mark.parametrize(
    ("options", "asked", "error", "says"),
    [
        ({}, {"finding": "off"}, NothingToReportError, "no finding of the kind off"),
        ({"prompt": "Dear Mrs. Ocelot"}, {}, GgufspecError, "not built into ggufspec"),
    ],
)
def test_what_cannot_be_reported_is_said(
    tmp_path: Path, options: dict[str, Any], asked: dict[str, Any], error: type[GgufspecError], says: str
) -> None:
    bench = _measure(tmp_path / "llama", _where("--ubatch-size 32", CRASHES), **options)
    with pytest.raises(error, match=says):
        ggufspec.issue(bench, offline=True, **asked)


def test_more_benches_than_can_be_compared_are_refused() -> None:
    with pytest.raises(GgufspecError, match="of one bench or of two, not of 3"):
        ggufspec.issue(("a", "b", "c"))


def test_the_command_line_prints_the_report_and_ends_with_a_code_of_its_own(tmp_path: Path) -> None:
    _measure(tmp_path / "llama", _where("--ubatch-size 32", CRASHES))
    done = shell.done("issue", "--offline")
    assert done.stdout.startswith("### Name and Version\n")
    assert "title: Eval bug: llama-speculative: it crashes" in done.stderr
    fakes.install(tmp_path / "llama", plain=PLAIN, drafting=DRAFTING)
    gone = shell.here("issue", "--offline")
    assert (gone.returncode, gone.stdout) == (NothingToReportError.exit_code, "")
    assert "does not show any more" in gone.stderr
