"""Absurd numbers on the command line: one line that names the option, at once and never a traceback."""

from __future__ import annotations

from collections.abc import Mapping

import click
import pytest

from ggufspec import units
from ggufspec.options import kinds
from tests.support import command_lines, fakes, shell

DIGITS = "9" * 5000  # more than Python reads as a number
LARGE = str(10**30)
COMMANDS = command_lines.commands()
COSTS = ("whatif", "--target-tps", "2", "--drafter-tps", "80")
SIZES = ("1e400", "1e3000G", "-1G", f"{10**30} GiB", DIGITS, f"{DIGITS}G", "1025T", "1048577T", "nan", "infG")
ABSURD: Mapping[type[kinds.Kind], tuple[str, ...]] = {
    kinds.Count: (DIGITS, LARGE, str(2**31), "-5"),
    kinds.Number: (
        "nan",
        "inf",
        "-inf",
        "1e999",
        "1e308",
        "1e-310",
    ),  # the last two overflow where they are used
    kinds.Axis: (DIGITS, f"0-{DIGITS}", LARGE, "nan"),
    kinds.Depths: (DIGITS, f"0-{DIGITS}", f"{DIGITS}k"),
    kinds.Size: SIZES,
    kinds.Sizes: SIZES,
    kinds.Duration: ("501h", f"{DIGITS}h", "1e400", "0.5", "-5m", "nan"),
    kinds.Latency: (f"{DIGITS}ms", "nan", "1e400s"),
    kinds.Fraction: ("1e-300%", "1e-9", "nan%", "inf", "100%"),
    kinds.PerSecond: (f"{DIGITS}G", f"{LARGE}P", "nan"),
    kinds.Numbers: ("1,nan", "1,1e400", "1,-1"),
    kinds.Splits: ("nan,1", "1e400,1"),
    kinds.Shares: ("nan", "0.7@0", "0.7@65", f"0.7@{DIGITS}", f"0.7@{10**9}"),
    kinds.NgramList: (f"size-n={DIGITS}", "size-n=nan"),
}
"""Kind of values -> what no option of the kind takes."""


@pytest.mark.parametrize("path", COMMANDS)
def test_an_absurd_number_is_refused_by_name(path: str) -> None:
    for field in COMMANDS[path].options.options.values():
        for value in ABSURD.get(type(field.kind), ()) if field.names and not field.is_argument else ():
            with pytest.raises(click.BadParameter) as refused:
                command_lines.read(path, field.name, value)
            assert refused.value.param.get_error_hint(refused.value.ctx).startswith(f"'{field.names[0]}'")
            assert len(refused.value.message.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("bench --seed 4294967295", "'--seed' / '-s': 4294967295 is more than 2,147,483,647"),  # a random one
        ("bench --temp -1", "'--temp': -1.0 is not in the range x>=0."),
        ("bench --top-p 2", "'--top-p': 2.0 is not in the range 0<=x<=1."),
        ("plan --ngl 10000", "'--ngl' / '-ngl': '10000' is out of range: layers are from 0 to 9999"),
        ("sweep --p-min 0-1+0.0001", "'--p-min': '0-1+0.0001' has more than 1000 values"),
        (f"{' '.join(COSTS)} --accept 1.2.3-4", "'1.2.3-4' is not an acceptance"),
        (f"{' '.join(COSTS)} --accept 0-1+0.001", "'0-1+0.001' has 1001 values; at most 101 are allowed"),
        (f"{' '.join(COSTS)} --accept 0.5-0.9+0.0000001", "is not a range of acceptances"),
        (f"{' '.join(COSTS)} --accept 1e400", "an acceptance is from 0 to 1, not inf"),
        (f"{' '.join(COSTS)} --accept 0.7@{10**9}", "a draft has 1 to 1000 tokens, not 1000000000"),
    ],
    ids=lambda text: text[:60],
)
def test_a_number_out_of_range_is_one_line(words: str, message: str) -> None:
    done = shell.here(*words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("digits", [DIGITS, "1" * 40])
def test_absurd_settings_are_refused_where_they_stand(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, digits: str
) -> None:
    folder = tmp_path_factory.mktemp("config")
    monkeypatch.setenv("GGUFSPEC_CONFIG", str(folder))
    words = ("bench", "--pair", "demo", "--llama", str(fakes.install(folder / "llama")), "--dry-run")
    monkeypatch.setenv("GGUFSPEC_THREADS", digits)
    assert shell.here(*words).stderr.startswith("error: GGUFSPEC_THREADS: threads ")
    monkeypatch.delenv("GGUFSPEC_THREADS")
    for text in (f"threads = {digits}\n", f"x = {'[' * 5000}\n"):
        (folder / "config.toml").write_text(text)
        done = shell.here(*words)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"error: {folder / 'config.toml'}:1: ")


def test_the_largest_sensible_numbers_are_taken() -> None:
    assert units.parse_bytes("1024T") == units.MOST_BYTES
    assert units.parse_duration("500h") == units.MOST_SECONDS
    assert [kinds.Number(0).parse(text) for text in ("0", "1e-9", "1e12")] == [0, 1e-9, 1e12]
    assert shell.here("plan", "--pair", "demo", "--vram", "1024T", "--ctx", str(2**31 - 1)).returncode == 0
    assert shell.here("plan", "--pair", "demo", "--vram", "0").returncode == 0
