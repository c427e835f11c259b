# ruff: noqa: E501  # help texts are as llama.cpp prints them
from __future__ import annotations

from ggufspec.llama.install.options import parse_help
from tests.fakes import HELP

OLD_HELP = """\
usage: ./main [options]

options:
  -h, --help            show this help message and exit
  -s SEED, --seed SEED  RNG seed (default: -1, use random seed for < 0)
  -tb N, --threads-batch N
                        number of threads to use during batch and prompt processing (default: same as --threads)
  -ts SPLIT --tensor-split SPLIT
                        how to split tensors across multiple GPUs, comma-separated list of proportions, e.g. 3,1
  -md FNAME, --model-draft FNAME
                        draft model for speculative decoding (default: unused)
  --draft N             number of tokens to draft for speculative decoding (default: 5)
"""


def test_old_help_is_the_common_parser_only_for_the_plain_program() -> None:
    options = parse_help(OLD_HELP, plain=True)
    assert options.generic
    assert not parse_help(OLD_HELP, plain=False).generic
    assert all(
        flag in options for flag in ("-s", "--seed", "-tb", "--threads-batch", "-ts", "-md", "--draft")
    )
    assert "--threads" not in options  # named only in another flag's text
    assert "-1" not in options


def test_removed_flags_are_not_there() -> None:
    options = parse_help((HELP / "0.3.36" / "llama-speculative.txt").read_text(), plain=False)
    assert "--draft" not in options
    assert "--draft-max" not in options
    assert options.first("--draft", "--spec-draft-n-max") == "--spec-draft-n-max"


def test_values_are_found_in_the_text_of_their_own_flag() -> None:
    options = parse_help((HELP / "0.3.36" / "llama-completion.txt").read_text(), plain=True)
    assert not options.generic
    assert options.mentions("--flash-attn", "auto")
    assert options.mentions("--verbosity", "4: trace")
    assert not options.mentions("--n-predict", "auto")
    assert not options.mentions("--no-such-flag", "auto")


def test_nothing_is_found_in_nothing() -> None:
    assert "--model" not in parse_help("", plain=True)
