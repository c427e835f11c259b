"""Real builds of tiny trees: what fails, crashes, runs twice at once or is killed on the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from ggufspec import paths
from ggufspec.choices import Backend
from ggufspec.cli import setup
from ggufspec.errors import BuildError, SourceError
from ggufspec.llama.build import toolchain
from ggufspec.llama.build.building import BuildRequest
from ggufspec.llama.build.compilation import FALLBACK, diagnose
from ggufspec.llama.build.ordering import provide_build
from ggufspec.llama.install import store
from ggufspec.llama.install.store import Built
from ggufspec.llama.source.sources import Local
from ggufspec.steps import BuildProgress, BuildStep, finish
from tests.support import cuda_parts, fakes

command = setup.build("build")

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
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {{
        fputs("version: 1 (abcdef0)\\n", stderr);
        return 0;
    }}
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {{
        puts("{HELP}");
        return 0;
    }}
#ifdef NATIVE
    raise(SIGSEGV);
#endif
    return llama_answer() == 42 ? 0 : 1;
}}
""".replace('puts("' + HELP, 'puts("' + HELP.replace("\n", "\\n"))
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
COMPILED = {
    "CMakeLists.txt": CMAKE_OF_C.replace("PRIVATE NATIVE", "PRIVATE OTHER"),
    "main.c": C_PROGRAM,
    "llama.c": C_LIBRARY,
}
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


def request(tree: Path) -> BuildRequest:
    return BuildRequest(source=Local(tree), backend=Backend.CPU, jobs=2)


def run(tree: Path) -> tuple[Built, list[BuildProgress]]:
    seen: list[BuildProgress] = []
    return finish(provide_build(request(tree)), seen.append), seen


@pytest.mark.parametrize("words", [("-DFAKE=2",), ("-DFAKE=2", "-DGGML_NATIVE=OFF")], ids=str)
def test_options_of_cmake_make_another_build(tmp_path: Path, words: tuple[str, ...]) -> None:
    seen = tmp_path / "seen"
    tree = scripts(tmp_path / "tree", cmake=f'file(APPEND {seen} "${{FAKE}} ${{GGML_NATIVE}};")\n')
    common = ["--backend", "cpu", "--source", str(tree)]
    added = [f"--cmake={word}" for word in words]
    first = CliRunner().invoke(command, [*common, *added], catch_exceptions=False)
    assert first.exit_code == 0, first.stderr
    plain = CliRunner().invoke(command, common, catch_exceptions=False)
    again = CliRunner().invoke(command, [*common, *reversed(added)], catch_exceptions=False)
    assert plain.stderr.endswith("\nbuilt: llama.cpp local-tree (cpu)\n")
    assert again.stderr == "already built: llama.cpp local-tree (cpu)\n"
    assert seen.read_text() == f"2 {'OFF' if len(words) > 1 else 'ON'}; ON;"
    (built,) = (built for built in store.installed() if built.added)
    assert built.added == tuple(word.removeprefix("-D") for word in words)
    assert {*built.added} <= {*built.options}
    assert built.command.endswith(f"--backend cpu {' '.join(added)}")
    listed = CliRunner().invoke(command, ["--list"], catch_exceptions=False)
    assert f"    cmake: {' '.join(words)}\n" in listed.stdout
    rows = json.loads(CliRunner().invoke(command, ["--list", "-o", "json"]).stdout)
    assert [row["cmake"] for row in rows if str(built.bin) == row["path"]] == [list(built.added)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--cmake=GGML_BLAS=ON",), "'GGML_BLAS=ON' is not of the form -DNAME=VALUE"),
        (("--cmake", "-DGGML_BLAS"), "'-DGGML_BLAS' is not of the form"),
        (("--cmake=-DGGML_BLAS=ON", "--cmake=-DGGML_BLAS=OFF"), "GGML_BLAS is given twice"),
        (("--cmake=-DGGML_BLAS=ON", "--list"), "take no --cmake"),
        (("--cmake=-DGGML_BLAS=ON", "--remove", "--version", "0.3.36"), "take no --cmake"),
    ],
    ids=str,
)
def test_what_is_no_option_of_cmake_is_refused(words: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(command, words)
    assert result.exit_code == 2
    assert message in result.stderr


def start(tree: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "ggufspec", "build", "--backend", "cpu", "--source", str(tree)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_builds_once_and_then_finds_it(tmp_path: Path) -> None:
    tree = scripts(tmp_path / "tree")
    built, seen = run(tree)
    assert built.programs == ("llama-completion",)
    assert (built.version, built.backend, built.note) == ("local-tree", "cpu", None)
    assert "GGML_NATIVE=ON" in built.options
    assert [step for step in BuildStep if step in {at.step for at in seen}] == [
        BuildStep.UNPACK,
        BuildStep.CONFIGURE,
        BuildStep.COMPILE,
        BuildStep.TEST,
    ]
    assert any((at.done, at.total) == (1, 1) for at in seen if at.step is BuildStep.COMPILE)
    assert run(tree) == (built, [])
    assert store.installed() == [built]


def test_secrets_stay_and_settings_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnop")
    monkeypatch.setenv("CXXFLAGS", "-O1")
    tools, seen = tmp_path / "tools", tmp_path / "seen"
    for name in ("cmake", "ninja"):  # the true ones, behind a script that writes down what it was given
        fakes.script(tools / name, f'env >> {seen}\nexec {toolchain.tool(name, hint="")} "$@"\n')
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    built, _ = run(scripts(tmp_path / "tree", compiler=f"env >> {seen}"))
    assert "CXXFLAGS=-O1" in seen.read_text()
    assert "hf_" not in seen.read_text()
    assert built.environment["CXXFLAGS"] == "-O1"
    assert "HF_TOKEN" not in built.environment
    assert store.find_build(built.path.name) == built


def test_the_command_names_what_is_set_otherwise_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXXFLAGS", raising=False)
    words = ["--backend", "cpu", "--source", str(scripts(tmp_path / "tree"))]
    CliRunner().invoke(command, words, catch_exceptions=False)
    monkeypatch.setenv("CXXFLAGS", "-O1")
    again = CliRunner().invoke(command, words, catch_exceptions=False)
    assert "note: it was built without CXXFLAGS, and now CXXFLAGS is -O1" in again.stderr


def test_a_damaged_build_is_built_again(tmp_path: Path) -> None:
    tree = scripts(tmp_path / "tree")
    built, _ = run(tree)
    (built.bin / "llama-completion").write_bytes(b"")
    words = ["--backend", "cpu", "--source", str(tree)]
    result = CliRunner().invoke(command, words, catch_exceptions=False)
    assert "built again, because llama-completion has 0 bytes instead of" in result.stderr
    assert result.stderr.endswith("built: llama.cpp local-tree (cpu)\n")
    assert store.find_build(built.path.name) is not None
    assert not list((paths.builds_dir() / ".work").iterdir())


def test_a_changed_tree_is_built_beside_the_old_one(tmp_path: Path) -> None:
    tree = scripts(tmp_path / "tree")
    first, _ = run(tree)
    (tree / "include" / "llama.h").write_text("// changed")
    second, _ = run(tree)
    assert {built.path for built in store.installed()} == {first.path, second.path}


@needs_compiler
def test_a_crash_of_the_native_build_leads_to_named_features(tmp_path: Path) -> None:
    files = {"CMakeLists.txt": CMAKE_OF_C, "main.c": C_PROGRAM, "llama.c": C_LIBRARY}
    built, seen = run(plant(tmp_path / "tree", files))
    assert built.note.startswith("built for this processor, the programs crash with SIGSEGV: building again")
    assert [at.line for at in seen if at.notice] == [built.note]
    assert "GGML_NATIVE=OFF" in built.options
    assert any(option.startswith("GGML_AVX2=") for option in built.options)
    assert not any(option.startswith("GGML_AMX") for option in built.options)
    # the program finds its library where both have been moved to
    assert subprocess.call([built.bin / "llama-completion"], env={}) == 0
    assert (built.bin / f"libllama.{'dylib' if sys.platform == 'darwin' else 'so'}").is_file()


@needs_compiler
def test_the_era_of_make(tmp_path: Path) -> None:
    files = {"Makefile": MAKEFILE, "main.c": C_PROGRAM, "llama.c": C_LIBRARY}
    built, seen = run(plant(tmp_path / "tree", files))
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
    assert not list((paths.builds_dir() / ".work").iterdir())


def test_without_source_there_is_no_log_and_no_build(tmp_path: Path) -> None:
    archive = tmp_path / "llama.tar.gz"
    archive.write_bytes(b"no archive")
    with pytest.raises(SourceError, match="cannot be unpacked"):
        run(archive)
    assert not list((paths.builds_dir() / ".logs").iterdir())
    assert not list((paths.builds_dir() / ".work").iterdir())


def test_a_program_that_is_no_llama_is_refused(tmp_path: Path) -> None:
    tree = scripts(tmp_path / "tree")
    (tree / "program.sh.in").write_text("#!/bin/sh\necho hello\n")
    with pytest.raises(BuildError, match="does not print a version"):
        run(tree)


def test_two_builds_at_once_become_one(tmp_path: Path) -> None:
    count = tmp_path / "count"
    tree = scripts(tmp_path / "tree", compiler=f"echo once >> {count}; sleep 2")
    first = start(tree)
    while not count.exists():
        time.sleep(0.02)
        assert first.poll() is None, first.communicate()
    second = start(tree)
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
    child = start(tree)
    while not (pid_file.exists() and pid_file.read_text().strip()):
        time.sleep(0.02)
        assert child.poll() is None, child.communicate()
    compiler = psutil.Process(int(pid_file.read_text()))
    child.send_signal(how)
    child.communicate(timeout=30)
    assert child.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}.get(how, -how)
    assert psutil.wait_procs([compiler], timeout=10)[1] == []
    assert store.installed() == []
    store.sweep()  # what SIGKILL left is for the next build to remove
    assert not list((paths.builds_dir() / ".work").iterdir())
    scripts(tmp_path / "tree")  # the same place, now without the wait
    assert run(tree)[0].programs == ("llama-completion",)


def test_the_command_builds_lists_and_removes(tmp_path: Path) -> None:
    tree = scripts(tmp_path / "tree")
    words = ["--backend", "cpu", "--source", str(tree)]
    first = CliRunner().invoke(command, words, catch_exceptions=False)
    folder = store.installed()[0].bin
    assert first.stdout == f"{folder}\n"
    assert "built: llama.cpp local-tree (cpu)" in first.stderr
    again = CliRunner().invoke(command, words, catch_exceptions=False)
    assert (again.stdout, again.stderr) == (f"{folder}\n", "already built: llama.cpp local-tree (cpu)\n")
    listed = CliRunner().invoke(command, ["--list"], catch_exceptions=False)
    assert "local-tree (abcdef0)  cpu  (own build)" in listed.stdout
    assert "can: plain" in listed.stdout
    removed = CliRunner().invoke(command, ["--remove", "--version", "local-tree"], catch_exceptions=False)
    assert removed.stdout == f"removed {folder.parent}\n"
    assert not folder.parent.exists()
    nothing = CliRunner().invoke(command, ["--list", "-o", "json"], catch_exceptions=False)
    assert nothing.stdout == "[]\n"
    assert nothing.stderr.startswith("no llama.cpp was found")


def test_remove_wants_to_know_what() -> None:
    refused = CliRunner().invoke(command, ["--remove"])
    assert refused.exit_code == 2
    assert "--version, --backend or both" in refused.stderr


def test_an_architecture_is_for_cuda(tmp_path: Path) -> None:
    words = ["--backend", "cpu", "--source", str(scripts(tmp_path / "tree")), "--cuda-arch", "90"]
    refused = CliRunner().invoke(command, words)
    assert refused.exit_code == 2
    assert "--cuda-arch needs --backend cuda" in refused.stderr


def test_a_build_for_cuda_takes_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if toolchain.nvidia() is not None:
        pytest.skip("a GPU is here")
    monkeypatch.setattr(toolchain, "nvcc", lambda: None)  # this machine may have one
    cuda_parts.install(paths.cache_dir() / "cuda" / "13.0")
    known = "".join(f'option({name} "" OFF)\n' for name in ("GGML_CUDA", "GGML_BACKEND_DL"))
    tree = scripts(tmp_path / "tree", cmake=known)
    built = finish(
        provide_build(BuildRequest(source=Local(tree), backend=Backend.CUDA, jobs=1, architectures=("90",)))
    )
    assert built.note == "tested on the CPU only: no NVIDIA driver was found"
    assert {"GGML_CUDA=ON", "GGML_BACKEND_DL=ON", "GGML_NATIVE=OFF"} <= set(built.options)
    assert built.programs == ("llama-completion",)
    assert (built.bin / "libcublas.so.13").read_text() == "cublas"
    assert (built.bin / "licenses" / "nvidia-cublas" / "License.txt").is_file()


def test_progress_elsewhere_than_in_a_terminal_is_a_few_lines(tmp_path: Path) -> None:
    tree = scripts(tmp_path / "tree")
    result = CliRunner().invoke(command, ["--backend", "cpu", "--source", str(tree)], catch_exceptions=False)
    assert result.stderr.splitlines() == [
        "unpack",
        *("configure", "compile", "compile 100 %", "test", "built: llama.cpp local-tree (cpu)"),
    ]


def test_auto_says_what_it_chose_and_why(tmp_path: Path) -> None:
    tree = scripts(tmp_path / "tree")
    fake = tmp_path / "tools"
    fake.mkdir()
    for name in ("sh", "true", "env", "cmake", "ninja"):
        if found := shutil.which(name):
            (fake / name).symlink_to(found)
    environment = os.environ | {"PATH": str(fake)}
    words = [sys.executable, "-m", "ggufspec", "build", "--source", str(tree)]
    result = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert result.stderr.startswith("backend: "), result.stderr
    assert ", because " in result.stderr.splitlines()[0]


@needs_compiler
def test_a_compiler_cache_is_used_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools, calls = tmp_path / "tools", tmp_path / "calls"
    cache = fakes.script(tools / "ccache", f'echo "$@" >>{calls}\nexec "$@"\n')
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    built, _ = run(plant(tmp_path / "tree", COMPILED))
    assert (
        f"CMAKE_C_COMPILER_LAUNCHER={cache}" in json.loads((built.path / "build.json").read_text())["options"]
    )
    assert "main.c" in calls.read_text()


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
