"""GGUF headers: what is read, what is refused, and at what price."""

from __future__ import annotations

import math
import random
import struct
import time
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest

from ggufspec import paths
from ggufspec.domain import ModelRun, Offload, Program
from ggufspec.errors import ModelFileError
from ggufspec.modelfiles import memory
from ggufspec.modelfiles.compat import judging
from ggufspec.modelfiles.gguf import ModelCard, validate_file
from ggufspec.modelfiles.gguf.reader import FILE_TYPES, GGML_TYPES, TYPES_BY_NAME
from tests.support import models
from tests.support.damage import mutate

PAIR = {"general.architecture": "llama", "llama.block_count": 1}


def _header(n_tensors: int, n_pairs: int, *rest: bytes, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_pairs) + b"".join(rest)


def _key(name: str, kind: int, payload: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind) + payload


def _tensor(name: str, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    sizes = struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
    return struct.pack("<Q", len(name)) + name.encode() + sizes


def _parse(content: bytes) -> ModelCard:
    return models.parse(models.Memory(content))


def test_the_embedded_pair_is_read() -> None:
    card = validate_file(paths.models_dir() / "demo" / "target.gguf")
    assert (card.architecture, card.n_layers, card.tokenizer_model) == ("llama", 8, "llama")
    assert card.vocabulary.add_bos is True
    assert card.vocabulary.tokens[1] == b"<s>"
    assert max(tensor.offset + tensor.size_bytes for tensor in card.tensors) <= card.size_bytes


def test_a_card_says_what_the_header_says(tmp_path: Path) -> None:
    metadata, tensors = models.llama(n_layers=3, n_heads=4, n_heads_kv=2, n_embd=64, context=512)
    metadata |= {"general.file_type": 11, "tokenizer.chat_template": "{{ messages }}"}
    card = validate_file(models.write_model(tmp_path / "m.gguf", metadata, tensors))
    assert card.quant == "Q3_K_S"
    assert (card.context_length, card.chat_template) == (512, "{{ messages }}")
    assert (card.n_heads, card.n_heads_kv) == ((4, 4, 4), (2, 2, 2))
    assert (card.key_length, card.value_length, card.n_embd) == (16, 16, 64)
    vocabulary = card.vocabulary
    assert (vocabulary.n_tokens, vocabulary.add_bos, vocabulary.bos_id) == (64, None, None)
    assert card.size_bytes == (tmp_path / "m.gguf").stat().st_size
    assert not card.is_recurrent
    name, shape, size = "token_embd.weight", (64, 64), 64 * 64 * 2
    assert (card.tensors[0].name, card.tensors[0].shape, card.tensors[0].size_bytes) == (name, shape, size)


def test_layers_may_differ() -> None:
    card = models.card(models.llama(n_layers=2), **{"llama.attention.head_count_kv": [4, 0]})
    assert card.n_heads_kv == (4, 0)
    mixed = models.llama(types=lambda name: "F32" if "attn_k" in name else "Q8_0")
    assert models.card(mixed).quant == "Q8_0"


def test_types_that_a_name_does_not_tell_are_named() -> None:
    """Rows that are no multiple of 256 get other types than the quantization's, and most may do so."""
    mixed = models.llama(types=lambda name: "F16" if "attn_k" in name else "Q8_0")
    cards = {number: models.card(mixed, **{"general.file_type": number}) for number in (7, 10)}
    assert cards[7].described_quant == "Q8_0"
    assert cards[10].quant == "Q2_K"
    shares = dict(cards[10].types)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert cards[10].described_quant.startswith(f"Q2_K ({shares['Q8_0']:.0%} Q8_0, ")


def test_types_are_those_of_the_gguf_package() -> None:
    for kind, sizes in gguf.GGML_QUANT_SIZES.items():
        ggml = GGML_TYPES[kind]
        assert ggml.name == kind.name
        # it has 40 for Q8_1, which llama.cpp stores in 36 (block_q8_1), in no file
        assert (ggml.block_size, ggml.block_bytes) == (sizes if ggml.name != "Q8_1" else (32, 36))
    names = {
        kind.value: kind.name.removeprefix("MOSTLY_").removeprefix("ALL_") for kind in gguf.LlamaFileType
    }
    assert names.items() <= FILE_TYPES.items()


@pytest.mark.parametrize(
    ("name", "n_bytes"), [("Q3_K", 220), ("MXFP4", 272), ("Q2_0", 144), ("IQ4_KS", 276), ("IQ1_S_R4", 98)]
)
def test_rows_take_the_bytes_that_llama_cpp_says(name: str, n_bytes: int) -> None:
    assert TYPES_BY_NAME[name].row_bytes(512) == n_bytes


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is empty"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (b"\n<HTML lang=en>", "a web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "a git-lfs pointer"),
        (b"tjgg" + bytes(60), "older than GGUF"),
        (bytes(64), "an unfinished download"),
        (struct.pack("<Q", 900) + b'{"__metadata__":', "a safetensors file"),
        (b"PK\x03\x04 and so on", "a zip archive"),
        (b"once upon a time", "is not a GGUF"),
    ],
)
def test_other_files_are_named_for_what_they_are(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=what) as caught:
        validate_file(path)
    assert caught.value.hint


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    for path, what in ((tmp_path / "m.gguf", "there is no file"), (tmp_path, "is a folder")):
        with pytest.raises(ModelFileError, match=what):
            validate_file(path)


def test_a_header_that_ends_anywhere_is_refused() -> None:
    header, _ = models.encode(*models.llama(n_layers=1, vocabulary=models.tokens(8)))
    ended = range(4, header.rindex(b"output_norm") + 8)
    for end in ended:
        with pytest.raises(ModelFileError, match="ends within its header"):
            _parse(header[:end])


def test_a_vocabulary_alone_is_no_model(tmp_path: Path) -> None:
    metadata, _ = models.llama()
    with pytest.raises(ModelFileError, match="only a vocabulary"):
        validate_file(models.write_model(tmp_path / "m.gguf", metadata, []))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"llama.block_count": "two"}, "llama.block_count is not of type int"),
        ({"llama.block_count": True}, "llama.block_count is not of type int"),
        ({"llama.block_count": 0}, "claims 0 layers"),
        ({"llama.block_count": 513}, "claims 513 layers"),
        ({"llama.attention.head_count": [4]}, "has 1 entries for 2 layers"),
        ({"llama.attention.head_count": [4, -4]}, "head_count is -4"),
        ({"llama.attention.head_count": [4.0, math.nan]}, "head_count is not of whole numbers"),
        ({"tokenizer.ggml.tokens": [1, 2]}, "tokens is not an array of strings"),
        ({"general.architecture": "\x1b[31m"}, "its architecture is"),
        ({"general.architecture": "qwen2"}, "has no qwen2.block_count"),
        ({"general.architecture": "clip"}, "its type is vision projector"),
        ({"general.type": "adapter"}, "not a language model; its type is adapter"),
        ({"split.count": 3, "split.no": 1}, "part 2 of 3"),
    ],
)
def test_headers_that_make_no_sense_are_refused(changes: dict[str, models.Value], what: str) -> None:
    with pytest.raises(ModelFileError, match=what):
        models.card(models.llama(), **changes)


@pytest.mark.parametrize(
    "content",
    [
        _header(0, 0, version=1),
        _header(0, 0, version=4),
        _header(0, 0, version=0x03000000),  # big-endian
        _header(0, 2**63),
        _header(2**61, 0),
        _header(0, 1, struct.pack("<Q", 2**64 - 1), b"x" * 32),
        _header(0, 1, _key("k", 8, struct.pack("<Q", 2**40)), bytes(32)),
        _header(0, 1, _key("k", 9, struct.pack("<IQ", 6, 2**62)), bytes(32)),
        _header(0, 1, _key("k", 9, struct.pack("<IQ", 8, 2**61)), bytes(32)),
        _header(0, 1, _key("k", 9, struct.pack("<IQQ", 8, 2, 2**64 - 1)), bytes(32)),
        _header(0, 1, _key("k", 9, struct.pack("<IQ", 9, 1)), bytes(32)),  # an array of arrays
        _header(0, 1, _key("k", 13, b""), bytes(32)),
        _header(0, 1, _key("", 0, b"\0"), bytes(32)),
        _header(0, 2, _key("k", 0, b"\0") * 2, bytes(32)),
        _header(0, 1, _key("general.alignment", 4, struct.pack("<I", 0))),
        _header(0, 1, _key("general.alignment", 4, struct.pack("<I", 48))),
        _header(1, 0, _tensor("t", (1, 1, 1, 1, 1))),
        _header(1, 0, _tensor("t", (2**63,))),
        _header(1, 0, _tensor("t", (2**40, 2**40))),
        _header(1, 0, _tensor("t", (33,), kind=8)),  # no whole number of blocks
        _header(1, 0, _tensor("t", (32,), kind=31)),  # Q4_0_4_4, support removed
        _header(1, 0, _tensor("t", (32,), kind=2**31)),
        _header(1, 0, _tensor("t" * 64, (32,))),
        _header(1, 0, _tensor("t", (32,), offset=2**63)),
        _header(2, 0, _tensor("t", (32,)), _tensor("t", (32,), offset=128)),
        _header(2, 0, _tensor("t", (32,)), _tensor("u", (32,), offset=64)),  # overlap
    ],
)
def test_lies_are_refused_before_they_cost_anything(content: bytes) -> None:
    started = time.process_time()
    with pytest.raises(ModelFileError) as caught:
        _parse(content)
    assert time.process_time() - started < 1.0
    assert caught.value.message.isprintable()


def _many(count: int, item: Callable[[int], bytes]) -> bytes:
    return b"".join(item(number) for number in range(count))


@pytest.mark.parametrize(
    ("write", "what"),
    [
        (lambda: _header(0, 99_000, _many(99_000, lambda n: _key(f"{n:05x}", 0, b"\0"))), "99,000 keys"),
        (
            lambda: _header(45_000, 0, _many(45_000, lambda n: _tensor(f"{n:05x}", (8,), offset=32 * n))),
            "45,000 tensors",
        ),
        (
            lambda: _header(0, 1, _key("k", 9, struct.pack("<IQ", 8, 3 << 20)), bytes(24 << 20)),
            "3,145,728 values of 'k'",
        ),
        (
            lambda: _header(0, 1, _key("k", 9, struct.pack("<IQ", 0, 3 << 20)), bytes(3 << 20)),
            "3,145,728 values of 'k'",
        ),
        (lambda: _header(0, 1, _key("k" * 70_000, 0, b"\0")), "70,000 bytes in one text"),
        (
            lambda: _header(0, 1, _key("k", 8, struct.pack("<Q", 41 << 20)), bytes(42 << 20)),
            "bytes in one text",
        ),
    ],
    ids=["keys", "tensors", "texts", "numbers", "long key", "long text"],
)
def test_headers_larger_than_any_models_are_refused(write: Callable[[], bytes], what: str) -> None:
    source = models.Memory(write())
    with pytest.raises(ModelFileError, match=rf"(?m)has .*{what} in its header; models have at most [\d,]+$"):
        models.parse(source)
    assert source.bytes_read <= (1 << 20) + 64


def test_texts_are_limited_in_all_arrays_together() -> None:
    arrays = _many(3, lambda n: _key(f"k{n}", 9, struct.pack("<IQ", 8, 1 << 20)) + bytes(8 << 20))
    with pytest.raises(ModelFileError, match=r"has 3,145,728 texts in its header"):
        _parse(_header(0, 3, arrays))


def test_the_largest_models_are_within_the_limits() -> None:
    vocabulary = models.tokens(262_144) | {"tokenizer.ggml.merges": [f"a {n}" for n in range(600_000)]}
    metadata, _ = models.llama(n_layers=512, vocabulary=vocabulary)
    metadata |= {"tokenizer.chat_template": "x" * (2 << 20)}
    metadata |= {f"general.base_model.{n}.name": "x" for n in range(1000)}
    specs: list[models.TensorSpec] = [
        (f"blk.{n % 512}.part_{n // 512}.weight", (32,), "F32") for n in range(512 * 32)
    ]
    card = models.card((metadata, specs))
    assert (card.vocabulary.n_tokens, len(card.tensors)) == (262_144, 16_384)


def test_headers_damaged_in_a_thousand_ways_give_a_usable_card_or_a_clean_error() -> None:
    whole, _ = models.encode(*models.llama(vocabulary=models.tokens(400)))
    offload = Offload(target=ModelRun(layers=1), drafter=ModelRun(layers="all"))
    messages: list[str] = []
    for case in range(1000):
        try:
            card = _parse(mutate(whole, random.Random(case)))
            judging.check_pair(card, card, judging.rule_for(Program.SIMPLE))
            memory.plan(card, card, offload, memory.MemorySettings(context=4096))
        except ModelFileError as error:
            messages.append(error.message)
    assert 200 < len(messages) < 1000
    assert all(message.isprintable() and len(message) < 300 for message in messages)


def test_a_large_vocabulary_is_read_soon_and_no_further_than_needed() -> None:
    header, data_bytes = models.encode(*models.llama(vocabulary=models.tokens(128_256)))
    source = models.Memory(header + bytes(data_bytes))
    started = time.process_time()
    card = models.parse(source)
    assert time.process_time() - started < 1.0
    assert card.vocabulary.n_tokens == 128_256
    assert card.vocabulary.tokens[128_255] == "▁w127995".encode()
    assert source.bytes_read <= len(header) + (4 << 20)


def test_a_model_in_parts_is_read_as_one(tmp_path: Path) -> None:
    metadata, tensors = models.llama()
    first = models.write_model(
        tmp_path / "m-00001-of-00002.gguf", metadata | {"split.no": 0, "split.count": 2}, tensors[:5]
    )
    second = models.write_model(
        tmp_path / "m-00002-of-00002.gguf", {"split.no": 1, "split.count": 2}, tensors[5:]
    )
    card = validate_file(first)
    assert [tensor.name for tensor in card.tensors] == [name for name, _, _ in tensors]
    assert card.size_bytes == first.stat().st_size + second.stat().st_size
