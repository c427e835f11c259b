"""Absurd numbers on the command line: one line that names the option, at once and never a traceback."""

from __future__ import annotations

import pytest

from ggufspec import units
from tests.support import fakes, shell

DIGITS = "9" * 5000  # more than Python reads as a number
RATES = ("whatif", "--target-tps", "2", "--drafter-tps", "80", "--accept", "0.7")
COSTS = ("whatif", "--target-tps", "2", "--drafter-tps", "80")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        *(
            ((command, "--vram", size), "--vram")
            for command in ("plan", "tune")
            for size in ("1e400", "1e3000G", "-1G", f"{10**30} GiB", f"{DIGITS}G", "1025T", "nan", "inf")
        ),
        (("plan", "--reserve", f"{DIGITS}"), "--reserve"),
        (("plan", "--ctx", str(10**30)), "--ctx"),
        (("plan", "--ubatch-size", str(10**30)), "--ubatch-size"),
        (("plan", "--ngl", DIGITS), "--ngl"),
        (("plan", "--ngl", "10000"), "--ngl"),
        (("plan", "--build", DIGITS), "--build"),
        (("chat", "--ngld", DIGITS, "--once", "x"), "--ngld"),
        (("chat", "-n", str(10**30), "--once", "x"), "--n-predict"),
        (("bench", "-n", str(2**31)), "--n-predict"),
        (("bench", "-n", DIGITS), "--n-predict"),
        (("bench", "-c", str(2**31)), "--ctx"),
        (("bench", "-r", str(10**30)), "--repeats"),
        (("bench", "--warmup", str(10**30)), "--warmup"),
        (("bench", "--seed", str(2**32 - 1)), "--seed"),  # a random one, for llama.cpp
        (("bench", "--top-k", str(10**30)), "--top-k"),
        (("bench", "--per-category", DIGITS), "--per-category"),
        (("bench", "--main-gpu", DIGITS), "--main-gpu"),
        (("bench", "--n-cpu-moe", DIGITS), "--n-cpu-moe"),
        (("bench", "-ts", "1e400,1"), "--tensor-split"),
        (("bench", "-ts", "nan,1"), "--tensor-split"),
        *((("bench", "--temp", number), "--temp") for number in ("nan", "inf", "1e400", "-1")),
        *((("chat", "--once", "x", "--temp", number), "--temp") for number in ("nan", "inf")),
        *((("bench", "--top-p", number), "--top-p") for number in ("nan", "1e400", "2")),
        *((("bench", "--min-p", number), "--min-p") for number in ("nan", "-0.1")),
        *((("bench", "--timeout", time), "--timeout") for time in ("501h", f"{DIGITS}h", "1e400", "0.5")),
        *((("bench", "--max-time", time), "--max-time") for time in (DIGITS, "-5m", "nan")),
        *((("bench", "--precision", share), "--precision") for share in ("1e-300%", "nan%", "inf", "100%")),
        (("bench", "--draft", DIGITS), "--draft"),
        (("bench", "-t", str(10**30)), "--threads"),
        (("bench", "--p-min", "nan"), "--p-min"),
        (("bench", "--synthetic-accept", f"0.7@{DIGITS}"), "--synthetic-accept"),
        (("bench", "--synthetic-accept", f"0.7@{10**9}"), "--synthetic-accept"),
        (("bench", "--synthetic-accept", "nan"), "--synthetic-accept"),
        (("sweep", "--ngl", f"0-{DIGITS}"), "--ngl"),
        (("sweep", "--p-min", "0-1+0.0000000001"), "--p-min"),
        (("sweep", "--p-min", "0-1+0.0001"), "--p-min"),
        (("compare", "a", "b", "--fail-slower", "1e-9"), "--fail-slower"),
        (("compare", "a", "b", "--threshold", "nan"), "--threshold"),
        *(((*RATES, "--overhead", number), "--overhead") for number in ("nan", "inf")),
        *(((*RATES, "--verify-ratio", number), "--verify-ratio") for number in ("nan", "1e400")),
        *(((*RATES, "--verify-cost", costs), "--verify-cost") for costs in ("1,nan", "1,1e400", "1,-1")),
        (("whatif", "--target-tps", "nan", "--drafter-tps", "1", "--accept", "0.7"), "--target-tps"),
        (("whatif", "--target-tps", "1", "--drafter-tps", "inf", "--accept", "0.7"), "--drafter-tps"),
        ((*RATES, "--observed", "inf", "--draft", "3"), "--observed"),
        (("whatif", "--bandwidth", f"{DIGITS}G", "--accept", "0.7"), "--bandwidth"),
        (("whatif", "--bandwidth", "1G", "--flops", f"{10**30}P", "--accept", "0.7"), "--flops"),
        ((*RATES, "--ctx", str(10**30)), "--ctx"),
        (("suggest", "demo:target", "--most", "-5"), "--most"),
        (("check", "demo", "--build", DIGITS), "--build"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_an_absurd_number_is_refused_by_name(words: tuple[str, ...], option: str) -> None:
    done = shell.here(*words)
    assert (done.returncode, done.stdout) == (2, "")
    error = done.stderr.splitlines()[-1]
    assert error.startswith("Error: Invalid value for ")
    assert f"'{option}'" in error


@pytest.mark.parametrize(
    ("accept", "message"),
    [
        ("1.2.3-4", "'1.2.3-4' is not an acceptance"),
        ("0-1+0.001", "'0-1+0.001' has 1001 values; at most 101 are allowed: use a larger step"),
        ("0.5-0.9+0.0000001", "is not a range of acceptances"),
        ("nan", "an acceptance is from 0 to 1, not nan"),
        ("1e400", "an acceptance is from 0 to 1, not inf"),
        (f"0.7@{10**9}", "a draft has 1 to 1000 tokens, not 1000000000"),
        (f"0.7@{DIGITS}", "is not an acceptance"),
    ],
    ids=lambda text: text[:20],
)
def test_an_absurd_acceptance_is_refused_at_once(accept: str, message: str) -> None:
    done = shell.here(*COSTS, "--accept", accept)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("digits", [DIGITS, "1" * 40])
def test_absurd_settings_are_refused_where_they_stand(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, digits: str
) -> None:
    folder = tmp_path_factory.mktemp("config")
    monkeypatch.setenv("GGUFSPEC_CONFIG", str(folder))
    llama = fakes.install(folder / "llama")
    words = ("bench", "--pair", "demo", "--llama", str(llama), "--dry-run")
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
    assert shell.here("plan", "--pair", "demo", "--vram", "1024T", "--ctx", str(2**31 - 1)).returncode == 0
    assert shell.here("plan", "--pair", "demo", "--vram", "0").returncode == 0
