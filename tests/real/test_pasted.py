"""A pasted command on real programs: it drafts as it says, and is judged beside the target alone."""

from __future__ import annotations

from pathlib import Path

from ggufspec import results
from ggufspec.domain import Role
from ggufspec.llama.install.installs import Install
from tests.support import shell

DEMO = Path(__file__).parents[2] / "models" / "demo"


def test_a_server_in_a_compose_file_is_measured_with_and_without_its_drafter(
    llama: Install, tmp_path: Path
) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(f"""\
services:
  llama:
    image: ghcr.io/ggml-org/llama.cpp:server
    command: -m /models/target.gguf -md /models/drafter.gguf --draft-max 5 -c 1024 -fa
    volumes: ["{DEMO}:/models:ro"]
    environment: [LLAMA_ARG_THREADS=1, HF_TOKEN=hf_SEEDEDSEEDEDSEEDED123]
""")
    texts = ("-p", "Once upon a time", "-n", "48", "-r", "1", "--warmup", "0")
    done = shell.ggufspec("bench", *texts, "--name", "mine", "--from", str(file), llama=llama.root)
    assert done.returncode == 0, done.stderr
    bench = results.load("mine")
    assert bench.meta.engine == "server"
    assert {run.spec.role for run in bench.current} == {Role.TARGET, Role.DRAFTER, Role.DRAFTING}
    (drafting,) = (run for run in bench.current if run.spec.drafting is not None)
    assert (drafting.spec.drafting.n_max, drafting.spec.context, drafting.spec.threads) == (5, 1024, 1)
    assert (drafting.sample.n_accepted or 0) > 0
    assert "translated: --draft-max 5 is --spec-draft-n-max 5" in done.stderr
    assert "SEEDED" not in done.stdout + done.stderr
