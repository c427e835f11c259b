"""Which llama.cpp is found, where, and what it can do; what is passed over, and why."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from ggufspec.domain import Program
from ggufspec.errors import NoInstallError
from ggufspec.llama.install import find_library, installs as install, store
from ggufspec.llama.install.environment import program_environment, switches
from ggufspec.report.text.provenance import table
from tests.support import fakes
from tests.support.builds import make_build


@pytest.fixture(autouse=True)
def without_llama(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no llama.cpp be on PATH."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")


own_build = functools.partial(make_build, version="1.0.0", works=True)


def test_find_reads_version_commit_and_devices(tmp_path: Path) -> None:
    found = install.find_install(fakes.install(tmp_path / "llama"))
    assert (found.version, found.build_number, found.commit) == ("0.5.0-dev b10475", 10475, "abc1234")
    assert (found.backend, found.devices, found.gpu) == ("cpu", (), False)
    assert set(found.programs) == {Program.PLAIN, Program.TREE, Program.SIMPLE}


@pytest.mark.parametrize("place", ["bin", "build/bin", "bin/llama-completion"])
def test_find_looks_where_builds_put_programs(tmp_path: Path, place: str) -> None:
    folder = tmp_path / place if "llama" not in place else tmp_path / "bin"
    fakes.install(folder)
    named = tmp_path / place if "llama" in place else tmp_path
    assert install.find_install(named).root == folder.resolve()


def test_the_library_of_a_systems_packages_is_the_one_that_programs_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "lib" / "x86_64-linux-gnu"
    folder.mkdir(parents=True)
    library = folder / "libllama.so.0.7.0"
    library.touch()
    (folder / "libllama.so.0").symlink_to(library.name)
    said = f"libc.so.6 => /lib/libc.so.6 (0x7f00)\nlibllama.so.0 => {folder}/libllama.so.0 (0x7f01)"
    fakes.script(tmp_path / "tools" / "ldd", f"echo '{said}'\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}:/usr/bin:/bin")
    fakes.program(tmp_path / "bin" / "llama-server", fakes.PLAIN, help_from="llama-server")
    found = install.find_install(tmp_path / "bin")
    assert found.library == folder
    assert find_library(folder) == folder / "libllama.so.0"


def test_deprecated_stubs_are_not_picked(tmp_path: Path) -> None:
    fakes.program(tmp_path / "llama-cli", fakes.PLAIN, version="version: 3642 (abc)\nbuilt with cc\n")
    fakes.script(tmp_path / "main", "echo 'WARNING: The binary is deprecated.'\nexit 1\n")
    assert install.find_install(tmp_path).programs[Program.PLAIN].path.name == "llama-cli"
    (tmp_path / "llama-cli").unlink()
    fakes.program(tmp_path / "chats" / "llama-cli", fakes.PLAIN, help_from="llama-cli")
    for folder in (tmp_path, tmp_path / "chats"):
        with pytest.raises(NoInstallError, match=r"contains no working llama.cpp program"):
            install.find_install(folder)


def test_gpus_are_read_from_the_device_list(tmp_path: Path) -> None:
    devices = "  CUDA0: NVIDIA H200 (143771 MiB, 143117 MiB free)"
    found = install.find_install(fakes.install(tmp_path, devices=devices))
    assert (found.devices, found.backend, found.gpu) == (("CUDA0: NVIDIA H200",), "cuda", True)


def test_order_of_places(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {name: fakes.install(tmp_path / name) for name in ("named", "variable", "file", "path")}
    config, where = home / "config.toml", f"{home / 'config.toml'}:1"
    monkeypatch.setenv("PATH", f"{places['path']}:/usr/bin:/bin")
    monkeypatch.setenv("GGUFSPEC_CONFIG", str(home))
    config.write_text("no toml")
    assert [found.origin for found in install.survey_installs()[0]] == ["PATH"]
    config.write_text('llama = "/nonexistent"\n')
    with pytest.raises(NoInstallError, match=rf"{where} names /nonexistent"):
        install.find_install()
    config.write_text(f'llama = "{places["file"]}"\n')
    assert (install.find_install().root, install.find_install().origin) == (places["file"].resolve(), where)
    assert [found.origin for found in install.survey_installs()[0]] == [where, "PATH"]
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(places["variable"]))
    assert install.find_install().root == places["variable"].resolve()
    assert [found.origin for found in install.survey_installs()[0]] == ["GGUFSPEC_LLAMA", "PATH"]
    assert install.find_install(places["named"]).root == places["named"].resolve()


def test_nothing_anywhere_is_one_clear_line() -> None:
    with pytest.raises(NoInstallError, match=r"no llama.cpp was found") as caught:
        install.find_install()
    assert "ggufspec build" in (caught.value.hint or "")


def unified(folder: Path) -> Path:
    """The one program of the official installer, in whose place its commands are answered by others."""
    parts = fakes.install(folder / "parts")
    fakes.program(parts / "llama-server", fakes.PLAIN, help_from="llama-server")
    return fakes.script(
        folder / "bin" / "llama",
        f"""case "$1" in
  serve) name=llama-server;;
  completion) name=llama-completion;;
  *) echo "error: unknown command '$1'" >&2; exit 1;;
esac
shift
exec {parts}/$name "$@"
""",
    )


def test_the_official_program_serves_and_completes(tmp_path: Path) -> None:
    program = unified(tmp_path)
    found = install.find_install(program.parent)
    assert {key: value.argv for key, value in found.programs.items()} == {
        Program.PLAIN: (str(program), "completion"),
        Program.SERVER: (str(program), "serve"),
    }
    assert (found.quantizer, found.build_number) == ((str(program), "quantize"), 10475)
    assert found.executable(Program.SERVER).name == "llama serve"
    with pytest.raises(NoInstallError, match="has no llama-speculative") as caught:
        found.executable(Program.TREE)
    assert "`--engine server` drafts without it" in str(caught.value.hint)


def test_the_official_program_is_found_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = unified(tmp_path)
    (tmp_path / ".local").mkdir()
    program.parent.rename(tmp_path / ".local" / "bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert install.find_install().root == tmp_path / ".local" / "bin"


def test_another_program_of_that_name_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.script(tmp_path / "llama", "echo 'usage: llama [-h] {model,stack} ...' >&2\nexit 2\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(NoInstallError, match=r"no llama.cpp was found"):
        install.find_install()


def test_damaged_builds_are_passed_over_and_that_is_said() -> None:
    old, new = own_build("old", version="0.3.16"), own_build("new", version="9.0.0")
    assert (install.find_install().version, install.find_install().passed_over) == ("9.0.0", ())
    program = new.bin / "llama-completion"
    content = program.read_text()
    program.write_text("")
    found = install.find_install()
    assert (found.version, found.root) == ("0.3.16", old.bin.resolve())
    (why,) = found.passed_over
    assert why.startswith(f"{new.path} is not used: llama-completion has 0 bytes instead of ")
    assert why.endswith("`ggufspec build --version 9.0.0 --backend cpu` builds it again")
    (old.bin / "llama-speculative").unlink()
    with pytest.raises(NoInstallError, match="cannot be used: llama-completion has 0 bytes") as caught:
        install.find_install()
    assert caught.value.hint == "`ggufspec build --version 9.0.0 --backend cpu` builds it again"
    program.write_text(content)
    assert install.find_install().passed_over == ()  # the other one would not be taken
    usable, skipped = install.survey_installs()
    assert [found.version for found in usable] == ["9.0.0"]
    text = table((), "text", skipped)
    version = "b6170 (llama-cpp-python 0.3.16)"
    assert text.splitlines()[0] == f"{version}  cpu  (not used)  {old.path}"
    assert "llama-speculative is missing" in text
    (row,) = json.loads(table((), "json", skipped))
    assert row["skipped"] == "llama-speculative is missing"
    assert (row["path"], row["can"]) == (str(old.path), [])


def test_the_newest_llama_cpp_is_found_and_of_two_builds_of_it_the_latest() -> None:
    first = own_build("first", version="9.0.0", at="2026-01-01T00:00:00+00:00")
    last = own_build("last", version="9.0.0", backend="cuda", at="2026-02-01T00:00:00+00:00")
    old = own_build("old", version="0.3.16", at="2026-03-01T00:00:00+00:00")
    places = [build.bin.resolve() for build in (last, first, old)]
    assert install.find_install().root == places[0]
    assert [found.root for found in install.survey_installs()[0]] == places


def test_a_damaged_build_that_is_named_or_on_path_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = tmp_path / "elsewhere"
    own_build("a").path.rename(moved)
    monkeypatch.setenv("PATH", f"{moved / 'bin'}:/usr/bin:/bin")
    places = (moved, moved / "bin", moved / "bin" / "llama-completion")
    for named in (*places, None):
        assert install.find_install(named).version == "1.0.0"
    assert install.find_install().origin == "PATH"
    (moved / "bin" / "llama-speculative").write_text("#!/bin/sh")
    for named in (*places, None):
        with pytest.raises(NoInstallError, match=r"cannot be used: llama-speculative has 9 bytes") as caught:
            install.find_install(named)
        assert "builds it again" in str(caught.value.hint)


def test_programs_that_no_longer_start_are_a_reason() -> None:
    built = own_build("a")
    for name in ("llama-completion", "llama-speculative", "llama-speculative-simple"):
        (built.bin / name).write_text("#!/bin/sh\nexit 127\n")
    store.record_files(built)
    with pytest.raises(NoInstallError, match="its programs do not start"):
        install.find_install()


def test_the_list_says_what_each_install_can_do(tmp_path: Path) -> None:
    found = install.find_install(fakes.install(tmp_path / "llama"))
    assert table([found], "text") == (
        f"0.5.0-dev b10475 (abc1234)  cpu  (--llama)  {found.root}\n"
        "    can: plain, speculative, speculative-simple\n"
    )
    (row,) = json.loads(table([found], "json"))
    assert (row["found"], row["gpus"]) == ("--llama", [])
    assert row["can"] == ["plain", "speculative", "speculative-simple"]
    assert json.loads(table([], "json")) == []
    assert found.has_rpc is None  # a --rpc in its help proves nothing
    worker = fakes.script(found.root / "ggml-rpc-server", "")
    found = install.find_install(found.root)
    assert (found.has_rpc, found.worker) == (True, worker)
    assert "can: plain, speculative, speculative-simple, rpc\n" in table([found], "text")
    (row,) = json.loads(table([found], "json"))
    assert row["can"][-1] == "rpc"


NEEDED = "PATH HOME LC_NUMERIC XDG_DATA_DIRS"
RECORDED = """
    GGML_VK_VISIBLE_DEVICES OMP_PROC_BIND KMP_AFFINITY CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES
    ROCR_VISIBLE_DEVICES HSA_OVERRIDE_GFX_VERSION VK_ICD_FILENAMES LD_LIBRARY_PATH LD_PRELOAD
    DYLD_LIBRARY_PATH GLIBC_TUNABLES
"""
KEPT_FROM_IT = """
    LLAMA_ARG_THREADS HF_TOKEN HF_HOME GITHUB_PAT SSH_AUTH_SOCK CUDA_API_KEY OMP_PASSWORD GGML_SECRET_PATH
    PYTHONPATH http_proxy
"""


def test_llama_gets_what_it_needs_and_what_is_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in f"{NEEDED} {RECORDED} {KEPT_FROM_IT} LC_ALL".split():
        monkeypatch.setenv(name, "a value")
    environment, recorded = program_environment(tmp_path), switches()
    given = {name for name, value in environment.items() if value == "a value"}
    assert given == {*NEEDED.split(), *RECORDED.split()}
    assert {name for name, value in recorded.items() if value == "a value"} == {*RECORDED.split()}
    assert (environment["LC_ALL"], environment["XDG_CONFIG_HOME"]) == ("C.UTF-8", str(tmp_path))
