"""An installed llama-cpp-python with a library of its own is a llama.cpp; what cannot be used is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ggufspec import engines
from ggufspec.doctor import FindingStatus, programs
from ggufspec.engines.library import selftest
from ggufspec.errors import GgufspecError, NoInstallError
from ggufspec.llama.install import Install, installs
from ggufspec.machine import Gpu
from ggufspec.measure import prepare_session
from ggufspec.options import BenchOptions
from ggufspec.report.text.provenance import table
from tests.support import fakes
from tests.support.libraries import CONTEXT, compile_source, library_source
from tests.support.packages import DEVICES, compile_library, write_package

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
MACH_O = bytes.fromhex("cffaedfe0c000001") + bytes(4096)


@pytest.fixture
def library(tmp_path: Path) -> bytes:
    """A library that lists no GPU."""
    return compile_library(tmp_path)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of packages, the first that Python looks into; no llama.cpp is on PATH."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return folder


def test_a_package_with_a_library_is_used_where_there_is_nothing_else(site: Path, library: bytes) -> None:
    package = write_package(site, {"libllama.so": library, "libggml.so": library})
    install = installs.find_install()
    assert (install.root, install.origin, install.programs) == (package, "llama-cpp-python", {})
    assert (install.version, install.build_number, install.backend) == ("0.3.36", 11312, "cpu")
    assert install.commit == "0c1e57098bba43ac29e6e3b677cdceebdd22334f"
    assert (install.library, install.devices, install.gpu) == (package / "lib", (), False)
    for place in (package, package / "lib"):
        assert installs.find_install(place) == replace(install, origin="--llama")


def test_programs_come_first(
    site: Path, library: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = write_package(site, {"libllama.so": library})
    monkeypatch.setenv("PATH", f"{fakes.install(tmp_path / 'llama')}:/usr/bin:/bin")
    assert [install.origin for install in installs.survey_installs()[0]] == ["PATH", "llama-cpp-python"]
    assert installs.find_install(package).root == package


def test_its_gpus_are_those_that_the_library_lists(site: Path, tmp_path: Path) -> None:
    write_package(site, {"libllama.so": compile_library(tmp_path, has_gpu=True)}, version="0.3.36+cu124")
    install = installs.find_install()
    assert (install.backend, install.devices, install.gpu) == ("cuda", ("CUDA0: NVIDIA L4",), True)
    assert install.gpus == (Gpu(name="NVIDIA L4", total_bytes=24 << 30, free_bytes=20 << 30),)
    assert (install.version, install.commit) == ("0.3.36", None)


def test_doctor_and_builds_show_it(site: Path, library: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    package = write_package(site, {"libllama.so": library})
    monkeypatch.setattr(selftest, "_examine", lambda file: (None, ()))
    usable, skipped = installs.survey_installs()
    (finding,) = programs.installs(usable, ())
    assert finding.status is FindingStatus.OK
    assert finding.text == f"0.3.36 cpu: the library alone, llama-cpp-python ({package})"
    assert programs.library(usable).text == f"--engine inprocess uses {package / 'lib'}"
    assert "    the library alone: --engine inprocess\n" in table(usable, "text", skipped)
    (row,) = json.loads(table(usable, "json", skipped))
    assert (row["found"], row["can"], row["library"]) == ("llama-cpp-python", [], str(package / "lib"))


LLAMA, GGML = "libllama.so", "libggml.so"
REFUSED: dict[str, Callable[[Path, bytes], object]] = {
    r"llama-cpp-python 0\.3\.36 was installed without its library": lambda site, _: write_package(site, {}),
    r"0\.3\.36 is only half installed: llama_cpp/lib/libggml\.so is missing": lambda site, library: (
        write_package(site, {LLAMA: library, GGML: library}) / "lib" / GGML
    ).unlink(),
    r"0\.3\.36 is only half installed: libllama\.so is cut short": lambda site, library: (
        write_package(site, {LLAMA: library}) / "lib" / LLAMA
    ).write_bytes(library[: len(library) // 2]),
    r"0\.3\.9 is older than 0\.3\.10, the first that can be used with its own library": (
        lambda site, library: write_package(site, {LLAMA: library}, version="0.3.9")
    ),
    r"0\.3\.36 has a library that does not load here: .*libllama\.dylib": lambda site, _: write_package(
        site, {"libllama.dylib": MACH_O}
    ),
    r"0\.3\.36 has a library that does not load here: .*undefined symbol": lambda site, library: (
        write_package(site, {LLAMA: library.replace(b"ggml_backend_dev_", b"other_backend_dev")})
    ),
    "llama-cpp-python without its metadata is only half installed": lambda site, library: shutil.rmtree(
        next(write_package(site, {LLAMA: library}).parent.glob("*.dist-info"))
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_package_that_cannot_be_used_is_refused_and_listed(site: Path, library: bytes, reason: str) -> None:
    REFUSED[reason](site, library)
    with pytest.raises(NoInstallError, match=rf"--llama names .*cannot be used: .*{reason}") as caught:
        installs.find_install(site / "llama_cpp")
    assert "pip install" in str(caught.value.hint)
    if "without its" in reason:  # it was never meant to be used, or nothing says that it is there
        return
    with pytest.raises(NoInstallError, match=f"no llama.cpp was found; .*{reason}") as caught:
        installs.find_install()
    assert "ggufspec build" in str(caught.value.hint)
    usable, (skipped,) = installs.survey_installs()
    assert usable == ()
    assert (skipped.path, skipped.origin) == (site / "llama_cpp", "llama-cpp-python")
    (finding,) = programs.skipped((skipped,))
    assert finding.status is FindingStatus.REMARK
    assert "installs it again" in table((), "text", (skipped,))
    assert json.loads(table((), "json", (skipped,)))[0]["found"] == "llama-cpp-python"


def test_a_package_that_only_has_python_files_is_no_llama(site: Path) -> None:
    write_package(site, {})
    with pytest.raises(NoInstallError, match=r"^no llama\.cpp was found\n"):
        installs.find_install()
    assert installs.survey_installs() == ((), ())


@pytest.fixture
def package(site: Path, library: bytes, monkeypatch: pytest.MonkeyPatch) -> Install:
    """A package whose library, which computes nothing, counts as one that passes its test."""
    write_package(site, {"libllama.so": library})
    monkeypatch.setattr(selftest, "_examine", lambda file: (None, ()))
    return installs.find_install()


def test_a_package_with_the_library_of_an_unknown_llama_is_refused(site: Path, tmp_path: Path) -> None:
    source = library_source(context=[("n_cells", "int32_t", 1), *CONTEXT], more=DEVICES)
    write_package(site, {"libllama.so": compile_source(source, tmp_path).read_bytes()})
    with pytest.raises(NoInstallError, match=r"llama\.h is unknown"):
        engines.check_library(installs.find_install())


ALONE = "it is a library alone; `ggufspec build` makes a complete one"


@pytest.mark.parametrize(
    ("asked", "why", "way_out"),
    [
        *(({"engine": name}, "has no llama-", ALONE) for name in ("binary", "server")),
        (
            {"method": "ngram-mod", "draft": 8},
            "the engine inprocess drafts only with a draft model, not by ngram-mod",
            "`ggufspec build` makes a llama.cpp with programs that can",
        ),
    ],
)
def test_what_a_library_alone_cannot_do_is_refused(
    package: Install, asked: dict[str, Any], why: str, way_out: str
) -> None:
    with pytest.raises(GgufspecError, match=why) as caught:
        prepare_session(BenchOptions(pair="demo", **asked))
    assert caught.value.hint == way_out
