"""scripts/gpu_check.sh on a CPU, its smallest preset: the path that a GPU takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from ggufspec.llama.install.installs import Install

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "gpu_check.sh"


@pytest.mark.takes(40)
@pytest.mark.timeout(1700)
def test_the_whole_check_runs_on_a_cpu(llama: Install, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--cpu", "--smallest", "--bin", llama.root, "--out", out, "--time", "1500"]
    environment = {**os.environ, "GPU_CHECK_WORK": str(tmp_path / "work"), "PYTHON": sys.executable}
    done = subprocess.run(
        [SCRIPT, *map(str, words)], capture_output=True, text=True, env=environment, timeout=1600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    parts = [json.loads(path.read_text()) for path in sorted(out.glob("part*.json"))]
    ended = {step["name"]: (step["status"], step["said"]) for part in parts for step in part["steps"]}
    assert {status for status, _ in ended.values()} == {"done"}, ended
    assert {"demo-binary", "demo-server", "demo-inprocess", "sweep-tiny-0", "notebook-tiny"} <= ended.keys()
    assert {
        *("why", "heads-demo-eagle3", "heads-demo-mtp", "heads-demo-dflash", "chain", "offload", "memory-0"),
        *("loads", "experts-on-the-host", "command-plan", "conditions", "bundle"),
    } <= ended.keys()
    summary = (out / "summary.md").read_text()
    assert summary.startswith("# Dry run on a CPU")
    assert "drafting, synthetic" in summary
    assert "the notebook, April 2024" in summary
    assert "2.58" in summary
    with tarfile.open(out / "logs.tar.gz") as logs:
        names = logs.getnames()
    assert any(name.startswith("benches/sweep-tiny-0/logs/") for name in names)
    assert "\nVerified: " in summary  # before it was packed
    assert (out / "bundle.zip").is_file()
