"""A library is taken by the layout of its parameters; one whose structs are unknown is refused by a field."""

from __future__ import annotations

import ctypes
import platform
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ggufspec import engines, proc
from ggufspec.domain import Failure
from ggufspec.engines.library import selftest
from ggufspec.engines.library.llama_h import (
    NEEDED,
    Default,
    StructLayout,
    find_difference,
    find_header,
    find_layout,
    layouts,
    load_library,
)
from ggufspec.errors import NoInstallError
from ggufspec.llama.install.installs import Install
from tests.support import scripted
from tests.support.libraries import CONTEXT, MODEL, Field, compile_source, fields_of, library_source

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
sees_size = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="a struct's size is seen on x86-64 only"
)

NEWEST = layouts()[0]
WITHOUT_MEMORY = [name for name in NEEDED if name != "llama_get_memory"]


def _load(folder: Path, model: Sequence[Field] = MODEL, context: Sequence[Field] = CONTEXT) -> ctypes.CDLL:
    return ctypes.CDLL(str(compile_source(library_source(model, context), folder)))


def _without(fields: Sequence[Field], name: str) -> list[Field]:
    return [field for field in fields if field[0] != name]


def _with(fields: Sequence[Field], before: str | None, field: Field) -> list[Field]:
    at = next((i for i, (name, *_) in enumerate(fields) if name == before), len(fields))
    return [*fields[:at], field, *fields[at:]]


def _changed(
    fields: Sequence[Field], name: str, c_type: str | None = None, default: Any = ...
) -> list[Field]:
    return [
        (field, (c_type or was_type), was if default is ... else default)
        if field == name
        else (field, was_type, was)
        for field, was_type, was in fields
    ]


@pytest.mark.parametrize("layout", layouts(), ids=lambda layout: f"b{layout.since}")
def test_each_layout_is_told_from_all_others(tmp_path: Path, layout: StructLayout) -> None:
    library = _load(tmp_path, fields_of(layout, layout.model), fields_of(layout, layout.context))
    found = find_layout(library)
    assert isinstance(found, StructLayout)
    assert _shape(found) == _shape(layout)  # the same one, or a newer one in which a field has another name


def _shape(layout: StructLayout) -> list[tuple[str, Default]]:
    structs = (layout.model, layout.context)
    return [(c_type, default) for struct in structs for _, c_type, default in fields_of(layout, struct)]


def test_layouts_are_in_the_order_of_their_builds() -> None:
    builds = [layout.since for layout in layouts()]
    assert builds == sorted(set(builds), reverse=True)


@pytest.mark.parametrize(
    ("model", "context", "reason"),
    [
        (_without(MODEL, "load_mode"), CONTEXT, "llama_model_default_params has a different load_mode"),
        (_without(MODEL, "devices"), CONTEXT, "different tensor_buft_overrides"),
        (_without(MODEL, "vocab_only"), CONTEXT, "different check_tensors"),
        (_with(MODEL, "devices", ("rpc", "void *", None)), CONTEXT, "different n_gpu_layers"),
        (_with(MODEL, "vocab_only", ("new", "bool", False)), CONTEXT, "different use_extra_bufts"),
        (_with(MODEL, "main_gpu", ("new", "int32_t", 7)), CONTEXT, "different main_gpu"),
        (_changed(MODEL, "n_gpu_layers", default=998), CONTEXT, "different n_gpu_layers"),
        (_changed(MODEL, "no_host", default=True), CONTEXT, "different no_host"),
        (MODEL, _without(CONTEXT, "n_rs_seq"), "llama_context_default_params has a different n_"),
        pytest.param(MODEL, CONTEXT[:-3], "different samplers", marks=sees_size),
        (MODEL, _changed(CONTEXT, "n_ctx", default=4096), "different n_ctx"),
        (MODEL, _changed(CONTEXT, "yarn_ext_factor", c_type="double"), "different yarn_"),
        (MODEL, _changed(CONTEXT, "offload_kqv", c_type="int32_t"), "different "),
        (MODEL, _with(CONTEXT, "type_k", ("new", "int32_t", 0)), "different type_k"),
        (MODEL, _with(CONTEXT, "n_threads", ("new", "int32_t", 0)), "different n_threads"),
    ],
)
def test_a_struct_of_another_shape_is_found(
    tmp_path: Path, model: Sequence[Field], context: Sequence[Field], reason: str
) -> None:
    library = _load(tmp_path, model, context)
    difference = find_layout(library)
    assert isinstance(difference, str)
    assert reason in difference


def test_a_field_where_a_layout_has_padding_is_found(tmp_path: Path) -> None:
    library = _load(tmp_path)
    for name in ("type_k", "defrag_thold"):
        kept = [item for item in NEWEST.context._fields_ if item[0] != name]
        older = type("llama_context_params", (ctypes.Structure,), {"_fields_": kept})
        defaults = {NEWEST.model: NEWEST.defaults[NEWEST.model], older: NEWEST.defaults[NEWEST.context]}
        layout = replace(NEWEST, context=older, defaults=defaults)
        assert find_difference(library, layout) == "llama_context_params has more fields in the library"


@sees_size
@pytest.mark.parametrize("struct", ["llama_model_params", "llama_context_params"])
def test_a_larger_struct_is_found_although_every_known_field_agrees(tmp_path: Path, struct: str) -> None:
    more: Field = ("new", "void *", None)
    model = [*MODEL, more] if "model" in struct else MODEL
    context = [*CONTEXT, more] if "context" in struct else CONTEXT
    assert find_layout(_load(tmp_path, model, context)) == f"{struct} is larger in the library"


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """An install of an unknown llama.cpp, with something that is called a library beside its programs."""
    (tmp_path / "libllama.so").write_bytes(b"no library")
    return replace(scripted.INSTALL, root=tmp_path, version=None)


def test_a_library_of_an_unknown_llama_is_refused_by_the_first_field(install: Install) -> None:
    newer = _with(CONTEXT, "n_threads", ("new", "int32_t", 0))
    compile_source(library_source(context=newer), install.root)
    with pytest.raises(NoInstallError, match=r"llama\.h is unknown: .* has a different n_threads") as caught:
        engines.check_library(install)
    assert "--engine server" in str(caught.value.hint)
    with pytest.raises(Failure, match="has a different n_threads"):
        load_library(install.root)


@pytest.mark.parametrize("place", ["lib", "lib/x86_64-linux-gnu", "build/bin"])
def test_the_header_of_a_newer_library_tells_its_layout(tmp_path: Path, place: str) -> None:
    fields = _with(CONTEXT, "abort_callback", ("moe_cache_size_2", "size_t", 7))
    folder = tmp_path / place
    folder.mkdir(parents=True)
    file = compile_source(library_source(context=fields), folder)
    library = ctypes.CDLL(str(file))
    assert find_header(file) is None
    assert isinstance(find_layout(library, None), str)
    header = tmp_path / "include" / "llama.h"
    header.parent.mkdir()
    header.write_text(_declared("llama_model_params", MODEL) + _declared("llama_context_params", fields))
    found = find_layout(library, find_header(file))
    assert isinstance(found, StructLayout)
    assert [name for name, *_ in found.context._fields_] == [name for name, *_ in fields]
    header.write_text(_declared("llama_model_params", MODEL) + _declared("llama_context_params", CONTEXT))
    assert "has a different" in str(find_layout(library, header))  # of another library
    header.write_text("no header")
    assert "has a different" in str(find_layout(library, header))


def _declared(struct: str, fields: Sequence[Field]) -> str:
    lines = "".join(f"        {c_type} {name}; // its {name}, if any\n" for name, c_type, _ in fields)
    return f"    struct {struct} {{\n{lines}    }};\n"


def test_what_cannot_be_used_is_refused_in_one_line_and_harms_nobody(install: Install) -> None:
    crash = "__attribute__((constructor)) static void end(void) { abort(); }\n"
    for source, reason in (
        (None, r"it does not load: .*libllama\.so"),
        (library_source(functions=WITHOUT_MEMORY), "it lacks llama_get_memory"),
        (library_source(more=crash), "its test ended with SIGABRT while loading it and comparing"),
    ):
        selftest._examine.cache_clear()
        if source is not None:
            compile_source(source, install.root)
        with pytest.raises(NoInstallError, match=reason) as caught:
            engines.check_library(install)
        assert "\n" not in caught.value.message


def test_the_answer_is_kept_with_the_librarys_digest(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_source(library_source(functions=WITHOUT_MEMORY), install.root)
    with pytest.raises(NoInstallError, match="it lacks llama_get_memory"):
        engines.check_library(install)
    selftest._examine.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(proc, "capture", lambda *_, **__: pytest.fail("it was tested again"))
        with pytest.raises(NoInstallError, match="it lacks llama_get_memory"):
            engines.check_library(install)
        copy = install.root / "copy" / "libllama.so"
        copy.parent.mkdir()
        shutil.copy(install.root / copy.name, copy)
        with pytest.raises(NoInstallError) as caught:
            engines.check_library(replace(install, root=copy.parent))
        assert caught.value.message == f"the engine inprocess cannot use {copy}: it lacks llama_get_memory"
    selftest._examine.cache_clear()
    compile_source(library_source(functions=WITHOUT_MEMORY[1:]), install.root)
    with pytest.raises(NoInstallError, match=f"it lacks {WITHOUT_MEMORY[0]}"):
        engines.check_library(install)


@pytest.mark.parametrize("folder", ["bin", "lib"])
def test_the_library_is_looked_for_beside_the_programs(
    install: Install, tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selftest, "_examine", lambda file: (None, ()))
    root = tmp_path / "prefix" / "bin"
    root.mkdir(parents=True)
    bare = replace(install, root=root, release="0.3.36")
    with pytest.raises(NoInstallError, match="has no shared library beside its programs"):
        engines.check_library(bare)
    beside = tmp_path / "prefix" / folder
    beside.mkdir(exist_ok=True)
    (tmp_path / "libllama.so").rename(beside / "libllama.so")
    assert selftest.check_library(bare).folder == beside
