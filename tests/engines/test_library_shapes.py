"""Libraries whose structs have another shape than the binding's are found field by field, and refused."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from ggufspec import engines
from ggufspec.engines.library import belonging
from ggufspec.engines.library.messages import Library
from ggufspec.engines.library.shapes import CONTEXT, MODEL, Default, find_difference
from ggufspec.errors import NoInstallError
from ggufspec.llama.install import binding_files, releases
from ggufspec.llama.install.installs import Install
from tests.support.builds import make_build

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
sees_size = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="a struct's size is seen on x86-64 only"
)

Field = tuple[str, str, Default]  # name, type in C, default

_IN_C = {"int32_t": ctypes.c_int32, "float": ctypes.c_float, "void *": ctypes.c_void_p, "bool": ctypes.c_bool}
_FLOATS = {
    "rope_freq_base",
    "rope_freq_scale",
    "defrag_thold",
    *(name for name in CONTEXT if "yarn_" in name),
}
_SIZES = {"n_samplers"}


def _fields(defaults: dict[str, Default]) -> list[Field]:
    """Return the fields of a struct as llama.h has them."""

    def c_type(name: str, default: Default) -> str:
        if isinstance(default, bool):
            return "bool"
        if default is None:
            return "void *"
        return "size_t" if name in _SIZES else "float" if isinstance(default, float) else "int32_t"

    return [(name, c_type(name, default), default) for name, default in defaults.items()]


MODEL_FIELDS, CONTEXT_FIELDS = _fields(dict(MODEL)), _fields(dict(CONTEXT))


def _struct(name: str, fields: Sequence[Field]) -> type[ctypes.Structure]:
    types = {**_IN_C, "size_t": ctypes.c_size_t}
    members = [(field, types[c_type]) for field, c_type, _ in fields]
    return type(name, (ctypes.Structure,), {"_fields_": members})


STRUCTS = {
    "llama_model_default_params": _struct("llama_model_params", MODEL_FIELDS),
    "llama_context_default_params": _struct("llama_context_params", CONTEXT_FIELDS),
}


def _c(name: str, fields: Sequence[Field]) -> str:
    declared = "".join(f"    {c_type} {field};\n" for field, c_type, _ in fields)
    values = "".join(f"        .{field} = {_literal(default)},\n" for field, _, default in fields)
    return (
        f"struct {name}_params {{\n{declared}}};\n"
        f"struct {name}_params {name}_default_params(void) {{\n"
        f"    return (struct {name}_params) {{\n{values}    }};\n}}\n"
    )


def _literal(default: Default) -> str:
    return "0" if default is None else str(default).lower()


def _library(folder: Path, model: Sequence[Field], context: Sequence[Field], more: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    text = _c("llama_model", model) + _c("llama_context", context) + more
    source, library = folder / "llama.c", folder / "libllama.so"
    source.write_text(
        f"#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <stdlib.h>\n{text}"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return library


def _difference(folder: Path, model: Sequence[Field], context: Sequence[Field]) -> str | None:
    return find_difference(ctypes.CDLL(str(_library(folder, model, context))), STRUCTS)


def _without(fields: Sequence[Field], name: str) -> list[Field]:
    return [field for field in fields if field[0] != name]


def _with(fields: Sequence[Field], before: str | None, field: Field) -> list[Field]:
    place = next((i for i, (name, *_) in enumerate(fields) if name == before), len(fields))
    return [*fields[:place], field, *fields[place:]]


def _changed(
    fields: Sequence[Field], name: str, c_type: str | None = None, default: Any = ...
) -> list[Field]:
    return [
        (field, (c_type or was_type), was if default is ... else default)
        if field == name
        else (field, was_type, was)
        for field, was_type, was in fields
    ]


def test_a_library_of_the_bindings_shape_agrees(tmp_path: Path) -> None:
    assert _difference(tmp_path, MODEL_FIELDS, CONTEXT_FIELDS) is None


@pytest.mark.parametrize(
    ("model", "context", "reason"),
    [
        (
            _without(MODEL_FIELDS, "lazy_mode"),
            CONTEXT_FIELDS,
            "llama_model_default_params has a different lazy_mode",
        ),
        (_without(MODEL_FIELDS, "devices"), CONTEXT_FIELDS, "different tensor_buft_overrides"),
        (_without(MODEL_FIELDS, "vocab_only"), CONTEXT_FIELDS, "different check_tensors"),
        (_with(MODEL_FIELDS, "devices", ("rpc", "void *", None)), CONTEXT_FIELDS, "different n_gpu_layers"),
        (
            _with(MODEL_FIELDS, "vocab_only", ("new", "bool", False)),
            CONTEXT_FIELDS,
            "different use_extra_bufts",
        ),
        (_with(MODEL_FIELDS, "main_gpu", ("new", "int32_t", 7)), CONTEXT_FIELDS, "different main_gpu"),
        (_changed(MODEL_FIELDS, "n_gpu_layers", default=999), CONTEXT_FIELDS, "different n_gpu_layers"),
        (_changed(MODEL_FIELDS, "no_host", default=True), CONTEXT_FIELDS, "different no_host"),
        (
            MODEL_FIELDS,
            _without(CONTEXT_FIELDS, "n_rs_seq"),
            "llama_context_default_params has a different n_",
        ),
        pytest.param(MODEL_FIELDS, CONTEXT_FIELDS[:-3], "different samplers", marks=sees_size),
        (MODEL_FIELDS, _changed(CONTEXT_FIELDS, "n_ctx", default=4096), "different n_ctx"),
        (MODEL_FIELDS, _changed(CONTEXT_FIELDS, "yarn_ext_factor", c_type="double"), "different yarn_"),
        (MODEL_FIELDS, _changed(CONTEXT_FIELDS, "offload_kqv", c_type="int32_t"), "different "),
        (MODEL_FIELDS, _with(CONTEXT_FIELDS, "type_k", ("new", "int32_t", 0)), "different type_k"),
        (MODEL_FIELDS, _with(CONTEXT_FIELDS, "n_threads", ("new", "int32_t", 0)), "different n_threads"),
    ],
)
def test_a_struct_of_another_shape_is_found(
    tmp_path: Path, model: Sequence[Field], context: Sequence[Field], reason: str
) -> None:
    difference = _difference(tmp_path, model, context)
    assert difference is not None
    assert reason in difference


def test_a_field_where_the_binding_has_padding_is_found(tmp_path: Path) -> None:
    library = ctypes.CDLL(str(_library(tmp_path, MODEL_FIELDS, CONTEXT_FIELDS)))
    for name in ("type_k", "defrag_thold"):
        older = _struct("llama_context_params", _without(CONTEXT_FIELDS, name))
        structs = STRUCTS | {"llama_context_default_params": older}
        assert find_difference(library, structs) == "llama_context_params has more fields in the library"


@sees_size
@pytest.mark.parametrize("function", STRUCTS)
def test_a_larger_struct_is_found_although_every_known_field_agrees(tmp_path: Path, function: str) -> None:
    more: Field = ("new", "void *", None)
    model = [*MODEL_FIELDS, more] if "model" in function else MODEL_FIELDS
    context = [*CONTEXT_FIELDS, more] if "context" in function else CONTEXT_FIELDS
    assert _difference(tmp_path, model, context) == f"{STRUCTS[function].__name__} is larger in the library"


def test_a_field_of_the_binding_that_nobody_knows_is_refused_by_name(tmp_path: Path) -> None:
    library = ctypes.CDLL(str(_library(tmp_path, MODEL_FIELDS, CONTEXT_FIELDS)))
    newer = _struct("llama_model_params", _with(MODEL_FIELDS, None, ("load_later", "bool", False)))
    structs = STRUCTS | {"llama_model_default_params": newer}
    reason = "llama_model_params.load_later is a field that this ggufspec does not know"
    assert find_difference(library, structs) == reason


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """An install of the binding's commit, with something that is called a library beside its programs."""
    (tmp_path / "libllama.so").write_bytes(b"no library")
    return Install(
        root=tmp_path,
        origin="test",
        programs={},
        version="0.5.0-dev",
        build_number=None,
        commit=releases.COMMITS["0.3.36"][:9],
        backend="cpu",
    )


def install_binding(monkeypatch: pytest.MonkeyPatch, site: Path, release: str) -> None:
    """Let the only binding be that of an installed llama-cpp-python of this release."""
    source = metadata.distribution("llama-cpp-python").locate_file("llama_cpp")
    for name in binding_files.FILES:
        (site / "llama_cpp").mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(str(source)) / name, site / "llama_cpp" / name)
    facts = site / f"llama_cpp_python-{release}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Name: llama-cpp-python\nVersion: {release}\n")
    monkeypatch.setattr(metadata, "distribution", lambda _: metadata.Distribution.at(facts))


@pytest.fixture(autouse=True)
def binding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Install a binding of a release whose commit is known."""
    install_binding(monkeypatch, tmp_path / "site", "0.3.36")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"commit": "0123456"}, "it is from commit 0123456, the binding from 0c1e57098"),
        ({"commit": "0123456-dirty"}, "it is from commit 0123456-dirty"),
        ({"commit": "0c1e570-dirty"}, "it does not load"),
        ({"commit": "0"}, "it is from commit 0,"),
        ({"commit": None}, "its programs report neither a commit nor a build number"),
        (
            {"commit": None, "version": "0.5.0-dev b10475"},
            "it is llama.cpp b10475, the binding is for",
        ),
        ({"version": "0.3.35", "commit": None}, "its programs report neither a commit nor a build number"),
        ({"version": "0.3.36", "commit": None}, "its programs report neither a commit nor a build number"),
    ],
)
def test_only_the_bindings_own_source_is_tried(
    install: Install, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(NoInstallError, match="does not match the Python binding") as caught:
        engines.check_library(replace(install, **changes))
    assert reason in caught.value.message
    assert str(install.root) in caught.value.message
    assert "--engine server" in str(caught.value.hint)


def test_a_build_number_tells_where_the_release_is_known(
    install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install_binding(monkeypatch, tmp_path / "other", "0.3.35")
    for version, reason in (("b10454", "it does not load"), ("b10455", "it is llama.cpp b10455")):
        with pytest.raises(NoInstallError, match=reason):
            engines.check_library(replace(install, commit=None, version=version))


def test_a_build_number_tells_nothing_where_the_release_is_not_known(
    install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install_binding(monkeypatch, tmp_path / "other", "0.3.99")
    with pytest.raises(NoInstallError, match=r"0\.3\.99: the llama.cpp of the binding's release is unknown"):
        engines.check_library(replace(install, commit=None, version="0.5.0-dev b10475"))


def test_what_is_no_library_is_refused_in_one_line(install: Install) -> None:
    with pytest.raises(NoInstallError, match=r"it does not load: .*libllama\.so") as caught:
        engines.check_library(install)
    assert "\n" not in caught.value.message


def test_a_library_that_lacks_a_function_is_refused(install: Install) -> None:
    _library(install.root, MODEL_FIELDS, CONTEXT_FIELDS)
    with pytest.raises(NoInstallError, match="it lacks llama_"):
        engines.check_library(install)


def test_a_library_that_crashes_is_refused_and_harms_nobody(install: Install) -> None:
    _library(
        install.root,
        MODEL_FIELDS,
        CONTEXT_FIELDS,
        "__attribute__((constructor)) static void end(void) { abort(); }\n",
    )
    with pytest.raises(NoInstallError, match="it ended with SIGABRT when it was loaded"):
        engines.check_library(install)


def test_a_copy_of_a_build_is_compared_with_the_binding_in_it(install: Install, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "site" / "llama_cpp", install.root / "llama_cpp")
    with pytest.raises(NoInstallError, match=r"the Python binding in .*: it does not load"):
        engines.check_library(replace(install, commit=None))


def test_a_library_of_another_commit_takes_the_binding_of_a_build_of_that_commit(install: Install) -> None:
    commit = "9" * 40
    built = make_build("a", version="9.8.7", commit=commit, binding=True)
    with pytest.raises(NoInstallError, match=f"the Python binding in {built.bin}"):
        engines.check_library(replace(install, commit=commit[:9]))


def test_a_build_of_our_own_is_taken_with_its_own_binding(install: Install, tmp_path: Path) -> None:
    own = replace(install, release="0.3.36", binding=tmp_path / "llama_cpp")
    assert belonging.check_library(own).binding == tmp_path / "llama_cpp"


def test_a_build_of_our_own_of_the_bindings_release_is_taken_as_it_is(install: Install) -> None:
    engines.check_library(replace(install, release="0.3.36"))


@pytest.mark.parametrize("folder", ["bin", "lib"])
def test_the_library_is_looked_for_beside_the_programs(install: Install, tmp_path: Path, folder: str) -> None:
    root = tmp_path / "prefix" / "bin"
    root.mkdir(parents=True)
    bare = replace(install, root=root, release="0.3.36")
    with pytest.raises(NoInstallError, match="has no shared library beside its programs"):
        engines.check_library(bare)
    place = tmp_path / "prefix" / folder
    place.mkdir(exist_ok=True)
    (tmp_path / "libllama.so").rename(place / "libllama.so")
    assert belonging.check_library(bare) == Library(folder=place, binding=tmp_path / "site" / "llama_cpp")
