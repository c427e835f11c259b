"""The real library, copied to where this ggufspec did not build it, and bindings that do not fit it."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec import engines, paths, prompts, tuning
from ggufspec.domain import Drafting, Offload, Role, RunSpec, Status
from ggufspec.engines.inprocess import InprocessEngine
from ggufspec.errors import NoInstallError
from ggufspec.llama.install import installs, releases
from ggufspec.llama.install.installs import Install
from ggufspec.modelfiles import catalog, hub

ARCHIVES = sorted(paths.cache_dir().glob("sources/*/llama_cpp_python-*.tar.gz"))  # tests have their own
HIDDEN = {"no_host", "no_alloc", "load_mtp", "kv_unified"}
"""False like what would take their places, a boolean or padding: only the commit can tell."""

WITHOUT_A_FIELD = """
import ctypes, json, sys
from pathlib import Path
from ggufspec.engines.library.binding import import_binding
from ggufspec.engines.library.messages import Library
from ggufspec.engines.library.shapes import find_difference
folder = Path(sys.argv[1])
binding = import_binding(Library(folder=folder, binding=folder / "llama_cpp"))
unnoticed = []
for function, struct in (
    ("llama_model_default_params", binding.llama_model_params),
    ("llama_context_default_params", binding.llama_context_params),
):
    assert find_difference(binding._lib, {function: struct}) is None
    for name, _ in struct._fields_:
        fields = [field for field in struct._fields_ if field[0] != name]
        other = type(struct.__name__, (ctypes.Structure,), {"_fields_": fields})
        if find_difference(binding._lib, {function: other}) is None:
            unnoticed.append(name)
print(json.dumps(unnoticed))
"""


@pytest.fixture
def copied(llama: Install, tmp_path: Path) -> Install:
    """The programs and libraries of today's build in another folder, without its manifest."""
    folder = shutil.copytree(llama.root, tmp_path / "my llama.cpp" / "bin", symlinks=True)
    return installs.find_install(folder)


def test_a_complete_llama_that_we_did_not_build_can_be_measured_with(copied: Install, tmp_path: Path) -> None:
    assert (copied.release, copied.library) == (None, copied.root)
    spec = RunSpec(
        pair=hub.resolve(catalog.find_pair("demo"), offline=True),
        role=Role.DRAFTING,
        prompt=prompts.suite("demo").prompts[0],
        n_predict=20,
        context=512,
        threads=1,
        offload=Offload().on_processor,
        drafting=Drafting(n_max=3),
    )
    with InprocessEngine(install=copied, timeout_s=120) as engine:
        assert engine.measure(spec, tmp_path / "log").sample.status is Status.OK


def test_a_complete_llama_that_we_did_not_build_can_be_tuned(copied: Install) -> None:
    asked = tuning.TuneRequest()
    plan = tuning.prepare_tuning(
        replace(asked, request=replace(asked.request, pair="demo", llama=copied.root))
    )
    assert plan.session.install.root == copied.root


def test_an_older_llama_is_refused_by_name(legacy: Install, tmp_path: Path) -> None:
    folder = shutil.copytree(legacy.root, tmp_path / "legacy", symlinks=True)
    with pytest.raises(NoInstallError, match="it is from commit 0e4802b, the binding from") as caught:
        engines.check_library(installs.find_install(folder))
    assert "--engine server" in str(caught.value.hint)


def test_a_binding_that_lacks_any_field_does_not_fit(copied: Install) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("the size of a struct is seen on x86-64 only")
    words = [sys.executable, "-c", WITHOUT_A_FIELD, str(copied.library)]
    unnoticed = json.loads(subprocess.check_output(words, text=True))
    assert set(unnoticed) == HIDDEN


def calls_of(*names: str) -> set[str]:
    """Return the functions of llama.cpp that files of the engine call through the binding."""
    folder = Path(engines.__file__).parent / "library"
    return {call for name in names for call in re.findall(r"\blib\.(llama_\w+)", (folder / name).read_text())}


def defined_in(archive: Path) -> set[str]:
    """Return what the binding in a source archive defines."""
    with tarfile.open(archive) as tar:
        names = (member for member in tar if member.name.endswith("/llama_cpp/llama_cpp.py"))
        binding = tar.extractfile(next(names))
        assert binding is not None
        return set(re.findall(r"^(?:def |class )?(llama_\w+)", binding.read().decode(), re.MULTILINE))


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_the_oldest_binding_is_the_first_with_all_that_the_engine_calls(archive: Path) -> None:
    folder = Path(engines.__file__).parent / "library"
    calls = calls_of(*(file.name for file in folder.glob("*.py") if file.name != "heads.py"))
    release = archive.name.removeprefix("llama_cpp_python-").removesuffix(".tar.gz")
    assert "llama_get_memory" in calls
    assert (calls <= defined_in(archive)) == releases.has_binding(release)


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_a_binding_that_heads_accept_has_all_that_they_call(archive: Path) -> None:
    calls, defined = calls_of("heads.py"), defined_in(archive)
    assert "llama_batch_ext_init" in calls
    assert (calls <= defined) == ("llama_process" in defined)
