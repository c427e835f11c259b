"""scripts/pip_settings.py: uv takes packages from where pip is told to."""

from __future__ import annotations

import importlib.metadata
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

SCRIPT = Path(__file__).parent.parent / "scripts" / "pip_settings.py"
SCRIPTS = runpy.run_path(str(SCRIPT))


def translate(listing: str) -> Mapping[str, str]:
    translated: Mapping[str, str] = SCRIPTS["translate"](listing)
    return translated


def test_without_settings_uv_merges_indexes_as_pip_does_and_trusts_the_system() -> None:
    assert translate("") == {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_SYSTEM_CERTS": "1"}


@pytest.mark.parametrize(
    ("line", "variable", "value"),
    [
        ("global.index-url='https://one/simple'", "UV_DEFAULT_INDEX", "https://one/simple"),
        (r"global.extra-index-url='\nhttps://two\nhttps://three'", "UV_INDEX", "https://two https://three"),
        ("global.find-links='/opt/wheels /srv/wheels'", "UV_FIND_LINKS", "/opt/wheels,/srv/wheels"),
        ("global.trusted-host='one two'", "UV_INSECURE_HOST", "one two"),
        (":env:.cert='/etc/ca.crt'", "SSL_CERT_FILE", "/etc/ca.crt"),
        ("global.no-index='true'", "UV_NO_INDEX", "true"),
        ("global.index-url='https://user:p=w@one/simple'", "UV_DEFAULT_INDEX", "https://user:p=w@one/simple"),
    ],
)
def test_each_setting_has_its_variable(line: str, variable: str, value: str) -> None:
    assert translate(f"{line}\n")[variable] == value


def test_settings_of_pip_are_read() -> None:
    lines = [":env:.index-url='https://c'", "install.index-url='https://b'", "global.index-url='https://a'"]
    assert translate("\n".join(lines))["UV_DEFAULT_INDEX"] == "https://c"
    assert translate("\n".join(lines[1:]))["UV_DEFAULT_INDEX"] == "https://b"
    lines = ["download.index-url='https://other'", "global.disable-pip-version-check='1'"]
    assert translate("\n".join(lines)) == translate("")


def test_what_uv_is_told_already_stays(tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = https://one/simple\nfind-links = /opt/wheels\n")
    environ = {"PIP_CONFIG_FILE": str(config), "UV_FIND_LINKS": "/mine", "HOME": str(tmp_path)}
    printed = subprocess.run(
        [sys.executable, SCRIPT], env=environ, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert "UV_DEFAULT_INDEX=https://one/simple" in printed
    assert not [line for line in printed if line.startswith("UV_FIND_LINKS")]


def _locked() -> Mapping[str, Version]:
    locked: dict[str, Version] = {}
    for entry in re.split(r"\n(?=\w)", (SCRIPT.parent / "requirements.txt").read_text())[1:]:
        name, _, rest = entry.partition("==")
        assert "--hash=sha256:" in rest, name
        locked[canonicalize_name(name)] = Version(rest.split()[0])
    return locked


def test_setup_installs_pinned_versions_of_all_that_is_declared() -> None:
    project = tomllib.loads((SCRIPT.parents[1] / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    declared = [*project["project"]["dependencies"], *groups["docs"], *groups["dev"]]
    declared += project["project"]["optional-dependencies"]["build"]
    locked = _locked()
    for text in declared:
        if isinstance(text, str) and not text.startswith("llama-cpp-python"):
            requirement = Requirement(text)
            assert locked[canonicalize_name(requirement.name)] in requirement.specifier, text


def test_what_llama_cpp_python_depends_on_is_installed() -> None:
    for line in importlib.metadata.requires("llama-cpp-python") or []:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            assert importlib.metadata.version(requirement.name) in requirement.specifier
