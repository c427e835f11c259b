"""Real builds of tiny trees: what fails, crashes, runs twice at once or is killed on the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from ggufspec import paths
from ggufspec.choices import Backend
from ggufspec.errors import BuildError, SourceError
from ggufspec.llama.build import toolchain
from ggufspec.llama.build.building import BuildRequest
from ggufspec.llama.build.compilation import FALLBACK, diagnose
from ggufspec.llama.build.ordering import provide_build
from ggufspec.llama.install import store
from ggufspec.llama.install.store import Built
from ggufspec.llama.source.sources import Local
from ggufspec.steps import BuildProgress, BuildStep, finish
from tests.support import cuda_parts, fakes, shell

HELP = """\
  -m, --model FNAME      model path
  -p, --prompt PROMPT    prompt
  -n, --n-predict N      tokens
  -c, --ctx-size N       context
  -t, --threads N        threads
  --temp N               temperature
  -s, --seed SEED        seed
"""
SCRIPT = f"""#!/bin/sh
case "$1" in
--version) echo 'version: 1 (abcdef0)' >&2 ;;
--help) echo '{HELP}' ;;
*) @ENDING@ ;;
esac
"""
CMAKE_OF_SCRIPTS = """
cmake_minimum_required(VERSION 3.14)
project(fake LANGUAGES NONE)
option(GGML_NATIVE "as the real one" ON)
set(ENDING "@ENDING@")
configure_file(program.sh.in ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/llama-completion)
add_custom_target(llama-completion COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/compile.sh)
add_custom_target(llama-tests COMMAND false)
"""
C_LIBRARY = "int llama_answer(void) { return 42; }\n"
C_PROGRAM = f"""
#include <signal.h>
#include <stdio.h>
#include <string.h>
int llama_answer(void);
int main(int argc, char ** argv) {{
    const char * word = argc > 1 ? argv[1] : "";
    if (strcmp(word, "--version") == 0) return fputs("version: 1 (abcdef0)\\n", stderr) < 0;
    if (strcmp(word, "--help") == 0) return puts({json.dumps(HELP)}) < 0;
#ifdef NATIVE
    raise(SIGSEGV);
#endif
    return llama_answer() == 42 ? 0 : 1;
}}
"""
CMAKE_OF_C = """
cmake_minimum_required(VERSION 3.14)
project(fake C)
option(GGML_NATIVE "as the real one" ON)
option(GGML_AVX2 "as the real one" OFF)
option(GGML_AMX_TILE "as the real one" OFF)
add_library(llama llama.c)
add_executable(llama-completion main.c)
target_link_libraries(llama-completion llama)
if (GGML_NATIVE)
    target_compile_definitions(llama-completion PRIVATE NATIVE)
endif()
"""
SOURCE = {"main.c": C_PROGRAM, "llama.c": C_LIBRARY}
MAKEFILE = """
CFLAGS = -fPIC
llama.o: llama.c
\t$(CC) $(CFLAGS) -c $< -o $@
libllama.so: llama.o
\t$(CC) -shared $^ -o $@
main: main.c llama.o
\t$(CC) $^ -o $@
quantize: main
\tcp main quantize
"""
BUILT = "built: llama.cpp local-tree (cpu)"
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def plant(root: Path, files: Mapping[str, str]) -> Path:
    for name, content in {"include/llama.h": "", "CMakeLists.txt": "", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def scripts(root: Path, *, ending: str = "exit 0", compiler: str = "true", cmake: str = "") -> Path:
    """Plant a tree whose only program is a shell script, so that its build takes no time."""
    text = CMAKE_OF_SCRIPTS.replace("@ENDING@", ending) + cmake
    plant(root, {"CMakeLists.txt": text, "program.sh.in": SCRIPT, "compile.sh": compiler})
    (root / "program.sh.in").chmod(0o755)
    return root


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return scripts(tmp_path / "tree")


def words(tree: Path, *more: str) -> tuple[str, ...]:
    return ("build", "--backend", "cpu", "--source", str(tree), *more)


def run(tree: Path) -> tuple[Built, list[BuildProgress]]:
    seen: list[BuildProgress] = []
    request = BuildRequest(source=Local(tree), backend=Backend.CPU, jobs=2)
    return finish(provide_build(request), seen.append), seen


def leftovers() -> list[Path]:
    return list((paths.builds_dir() / ".work").iterdir())


def test_a_tree_is_built_once_listed_and_removed(tree: Path) -> None:
    first = shell.done(*words(tree))
    (built,) = store.installed()
    assert first.stdout == f"{built.bin}\n"
    assert first.stderr.splitlines() == [
        *("unpack", "configure", "compile", "compile 100 %", "test", BUILT)
    ]  # elsewhere than in a terminal
    assert built.programs == ("llama-completion",)
    assert (built.version, built.backend, built.note) == ("local-tree", "cpu", None)
    assert "GGML_NATIVE=ON" in built.options
    again = shell.done(*words(tree))
    assert (again.stdout, again.stderr) == (first.stdout, f"already {BUILT}\n")
    listed = shell.done("build", "--list").stdout
    assert "local-tree (abcdef0)  cpu  (own build)" in listed
    assert "can: plain" in listed
    (tree / "include" / "llama.h").write_text("// changed")
    second, _ = run(tree)
    assert {build.path for build in store.installed()} == {built.path, second.path}
    shell.done("cache", "prune", "builds", "--yes")
    assert not built.path.exists()
    assert not second.path.exists()
    nothing = shell.done("build", "--list", "-o", "json")
    assert nothing.stdout == "[]\n"
    assert nothing.stderr.startswith("no llama.cpp was found")


def test_options_of_cmake_make_another_build(tmp_path: Path) -> None:
    seen, added = tmp_path / "seen", ("--cmake=-DFAKE=2", "--cmake=-DGGML_NATIVE=OFF")
    tree = scripts(tmp_path / "tree", cmake=f'file(APPEND {seen} "${{FAKE}} ${{GGML_NATIVE}};")\n')
    shell.done(*words(tree, *added))
    assert shell.done(*words(tree)).stderr.endswith(f"\n{BUILT}\n")
    assert shell.done(*words(tree, *reversed(added))).stderr == f"already {BUILT}\n"
    assert seen.read_text() == "2 OFF; ON;"
    (built,) = (built for built in store.installed() if built.added)
    assert built.added == ("FAKE=2", "GGML_NATIVE=OFF")
    assert {*built.added} <= {*built.options}
    assert built.command.endswith(f"--backend cpu {' '.join(added)}")
    assert "    cmake: -DFAKE=2 -DGGML_NATIVE=OFF\n" in shell.done("build", "--list").stdout
    rows = json.loads(shell.done("build", "--list", "-o", "json").stdout)
    assert [row["cmake"] for row in rows if str(built.bin) == row["path"]] == [list(built.added)]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--cmake=GGML_BLAS=ON",), "'GGML_BLAS=ON' is not of the form -DNAME=VALUE"),
        (("--cmake", "-DGGML_BLAS"), "'-DGGML_BLAS' is not of the form"),
        (("--cmake=-DGGML_BLAS=ON", "--cmake=-DGGML_BLAS=OFF"), "GGML_BLAS is given twice"),
        (("--cmake=-DGGML_BLAS=ON", "--list"), "--list takes no --cmake"),
        (("--backend", "cpu", "--cuda-arch", "90"), "--cuda-arch needs --backend cuda"),
    ],
    ids=str,
)
def test_words_that_do_not_go_together_are_refused(more: tuple[str, ...], message: str) -> None:
    code, _, err = shell.run("build", *more)
    assert code == 2
    assert message in err


def test_secrets_stay_and_settings_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnop")
    monkeypatch.setenv("CXXFLAGS", "-O1")
    tools, seen = tmp_path / "tools", tmp_path / "seen"
    for name in ("cmake", "ninja"):  # the true ones, behind a script that writes down what it was given
        fakes.script(tools / name, f'env >> {seen}\nexec {toolchain.tool(name, hint="")} "$@"\n')
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    tree = scripts(tmp_path / "tree", compiler=f"env >> {seen}")
    built, _ = run(tree)
    assert "CXXFLAGS=-O1" in seen.read_text()
    assert "hf_" not in seen.read_text()
    assert built.environment["CXXFLAGS"] == "-O1"
    assert "HF_TOKEN" not in built.environment
    assert store.find_build(built.path.name) == built
    monkeypatch.setenv("CXXFLAGS", "-O2")
    said = shell.done(*words(tree)).stderr
    assert "note: it was built with CXXFLAGS=-O1, and now CXXFLAGS is -O2" in said
    assert f"`ggufspec cache prune builds/{built.path.name}` and `ggufspec build` use what" in said


def test_a_damaged_build_is_built_again(tree: Path) -> None:
    built, _ = run(tree)
    (built.bin / "llama-completion").write_bytes(b"")
    said = shell.done(*words(tree)).stderr
    assert "built again, because llama-completion has 0 bytes instead of" in said
    assert said.endswith(f"{BUILT}\n")
    assert store.find_build(built.path.name) is not None
    assert not leftovers()


@needs_compiler
def test_a_crash_of_the_native_build_leads_to_named_features(tmp_path: Path) -> None:
    built, seen = run(plant(tmp_path / "tree", {"CMakeLists.txt": CMAKE_OF_C, **SOURCE}))
    assert built.note.startswith("built for this processor, the programs crash with SIGSEGV: building again")
    assert [at.line for at in seen if at.notice] == [built.note]
    assert "GGML_NATIVE=OFF" in built.options
    assert any(option.startswith("GGML_AVX2=") for option in built.options)
    assert not any(option.startswith("GGML_AMX") for option in built.options)
    # the program finds its library where both have been moved to
    assert subprocess.call([built.bin / "llama-completion"], env={}) == 0
    assert (built.bin / f"libllama.{'dylib' if sys.platform == 'darwin' else 'so'}").is_file()


@needs_compiler
def test_a_compiler_cache_is_used_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools, calls = tmp_path / "tools", tmp_path / "calls"
    cache = fakes.script(tools / "ccache", f'echo "$@" >>{calls}\nexec "$@"\n')
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    built, _ = run(plant(tmp_path / "tree", {"CMakeLists.txt": CMAKE_OF_C, **SOURCE}))
    assert f"CMAKE_C_COMPILER_LAUNCHER={cache}" in built.options
    assert "main.c" in calls.read_text()


@needs_compiler
def test_the_era_of_make(tmp_path: Path) -> None:
    built, seen = run(plant(tmp_path / "tree", {"Makefile": MAKEFILE, **SOURCE}))
    assert built.programs == ("main", "quantize")
    assert (built.bin / "libllama.so").is_file()
    assert built.options == ("LLAMA_NO_METAL=1",)
    assert seen[-2].step is BuildStep.COMPILE
    assert (seen[-2].done, seen[-2].total) == (3, 3)


@pytest.mark.parametrize(
    ("tree", "message", "hint"),
    [
        ({"ending": "kill -SEGV $$"}, "crash with SIGSEGV", "another --version"),
        ({"ending": "exit 3"}, r"llama-completion fails on the embedded pair \(exit 3\)", "end of the log"),
        ({"compiler": "echo 'fatal error: Killed signal terminated'; false"}, "did not compile", "--jobs"),
        ({"cmake": 'message(FATAL_ERROR "Could NOT find CURL")'}, "did not configure", "libcurl"),
    ],
)
def test_a_failed_build_leaves_its_log(tmp_path: Path, tree: dict[str, str], message: str, hint: str) -> None:
    with pytest.raises(BuildError, match=message) as caught:
        run(scripts(tmp_path / "tree", **tree))
    assert hint in str(caught.value.hint)
    (log,) = (paths.builds_dir() / ".logs").iterdir()
    assert str(log) in caught.value.message
    assert log.stat().st_size > 0
    assert store.installed() == []
    assert not leftovers()


def test_without_source_there_is_no_log_and_no_build(tmp_path: Path) -> None:
    archive = tmp_path / "llama.tar.gz"
    archive.write_bytes(b"no archive")
    with pytest.raises(SourceError, match="cannot be unpacked"):
        run(archive)
    assert not list((paths.builds_dir() / ".logs").iterdir())
    assert not leftovers()


def test_a_program_that_is_no_llama_is_refused(tree: Path) -> None:
    (tree / "program.sh.in").write_text("#!/bin/sh\necho hello\n")
    with pytest.raises(BuildError, match="does not print a version"):
        run(tree)


def test_two_builds_at_once_become_one(tmp_path: Path) -> None:
    count = tmp_path / "count"
    tree = scripts(tmp_path / "tree", compiler=f"echo once >> {count}; sleep 2")
    first = shell.start(*words(tree))
    shell.wait_until(count.exists)
    second = shell.start(*words(tree))
    for child in (first, second):
        out, err = child.communicate(timeout=60)
        assert child.returncode == 0, err
        assert out == f"{store.installed()[0].bin}\n"
    assert count.read_text() == "once\n"
    assert "is being built by another process: waiting" in err


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_killed_build_leaves_no_process_and_no_build(tmp_path: Path, how: signal.Signals) -> None:
    pid_file = tmp_path / "pid"
    tree = scripts(tmp_path / "tree", compiler=f"echo $$ > {pid_file}; exec sleep 600")
    child = shell.start(*words(tree))
    shell.wait_until(lambda: pid_file.exists() and pid_file.read_text().strip())
    compiler = psutil.Process(int(pid_file.read_text()))
    child.send_signal(how)
    child.communicate(timeout=30)
    assert child.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}.get(how, -how)
    assert psutil.wait_procs([compiler], timeout=10)[1] == []
    assert store.installed() == []
    store.sweep()  # what SIGKILL left is for the next build to remove
    assert not leftovers()
    scripts(tmp_path / "tree")  # the same place, now without the wait
    assert run(tree)[0].programs == ("llama-completion",)


def test_a_build_for_cuda_takes_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if toolchain.nvidia() is not None:
        pytest.skip("a GPU is here")
    monkeypatch.setattr(toolchain, "nvcc", lambda: None)  # this machine may have one
    cuda_parts.install(paths.cache_dir() / "cuda" / "13.0")
    known = "".join(f'option({name} "" OFF)\n' for name in ("GGML_CUDA", "GGML_BACKEND_DL"))
    source = Local(scripts(tmp_path / "tree", cmake=known))
    request = BuildRequest(source=source, backend=Backend.CUDA, jobs=1, architectures=("90",))
    built = finish(provide_build(request))
    assert built.note == "tested on the CPU only: no NVIDIA driver was found"
    assert {"GGML_CUDA=ON", "GGML_BACKEND_DL=ON", "GGML_NATIVE=OFF"} <= set(built.options)
    assert built.programs == ("llama-completion",)
    assert (built.bin / "libcublas.so.13").read_text() == "cublas"
    assert (built.bin / "licenses" / "nvidia-cublas" / "License.txt").is_file()


def test_auto_says_what_it_chose_and_why(tree: Path, tmp_path: Path) -> None:
    for name in ("sh", "true", "env", "cmake", "ninja"):
        if found := shutil.which(name):
            fakes.script(tmp_path / "tools" / name, f'exec {found} "$@"\n')
    said = shell.ggufspec("build", "--source", str(tree), env={"PATH": str(tmp_path / "tools")}).stderr
    assert said.startswith("backend: "), said
    assert ", because " in said.splitlines()[0]


# The ends of failed builds' logs, and what they mean


@pytest.mark.parametrize(
    ("log", "advice"),
    [
        ("fatal error: error writing to /tmp/ccAB.s: No space left on device", "GGUFSPEC_CACHE"),
        ("c++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.", "--jobs"),
        ("cc1plus: out of memory allocating 65536 bytes", "--jobs"),
        ("CMake Error: CMAKE_CXX_COMPILER not set\nNo CMAKE_CXX_COMPILER could be found.", "C++ compiler"),
        ("make: g++: command not found\nmake: *** [Makefile:700: unicode.o] Error 127", "C++ compiler"),
        ("/bin/sh: 1: g++: not found", "C++ compiler"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_52'", "CUDAARCHS"),
        ("#error -- unsupported GNU version! gcc versions later than 12 are not supported!", "CUDAHOSTCXX"),
        ("No CMAKE_CUDA_COMPILER could be found.", "nvcc"),
        ("/usr/bin/ld: cannot find -lcuda: No such file or directory", "driver"),
        ("Could NOT find CURL (missing: CURL_LIBRARY CURL_INCLUDE_DIR)", "libcurl"),
        ("Could NOT find Vulkan (missing: Vulkan_LIBRARY glslc)", "Vulkan SDK"),
        ('Could not find a package configuration file provided by "hip" with', "ROCm"),
        ('xcrun: error: unable to find utility "metal", not a developer tool', "xcode-select"),
        ("something that nobody has seen before", FALLBACK),
    ],
)
def test_a_failure_has_a_hint(log: str, advice: str) -> None:
    assert advice in diagnose(f"[3/9] Building CXX object\n{log}\nninja: build stopped: subcommand failed.")
