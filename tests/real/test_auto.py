"""From a name on a Hub to a real llama-server that answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from ggufspec import proc, results
from ggufspec.domain import Method, RunSpec
from ggufspec.engines import Measurement
from ggufspec.engines.server.engine import ServerEngine
from ggufspec.llama.install.installs import Install
from tests.support import rpc_workers, served, shell
from tests.support.hub_client import DEMO
from tests.support.hub_server import Hub
from tests.support.imagined_times import PATIENT
from tests.support.shell import run

BODY = {"prompt": "Once upon a time", "n_predict": 8, "ignore_eos": True}
QUICK = (*PATIENT, "-t", "1", "--serve-ctx", "512", "-p", "Once upon a time", "-p", "The cat sat on")
FILES = {"m-Q4_K_M.gguf": "target.gguf", "eagle3-m-Q8_0.gguf": "eagle3.gguf"}


@pytest.mark.takes(25)
@pytest.mark.timeout(1800)
def test_from_a_name_with_a_head_to_a_server_that_answers(
    loopback: Hub, llama: Install, imagined: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Hub has a target with a head, a drafter of the target, and one with another vocabulary."""
    base = {"cardData": {"base_model": "acme/Model-3-8B-Instruct"}}
    loopback.add(
        "me/Model-3-8B-GGUF", {name: (DEMO / file).read_bytes() for name, file in FILES.items()}, info=base
    )
    drafter = (DEMO / "drafter.gguf").read_bytes()
    other = drafter.replace(b"<0xC5>", b"<0xc5>")
    for repo, body in (("a/Model-3-1B-GGUF", drafter), ("c/Model-3-1B-b-GGUF", other)):
        loopback.add(repo, {"d-Q8_0.gguf": body})
        loopback.repos[repo].info = {"downloads": 90_000, "gguf": {"architecture": "llama"}}
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(llama.root))
    started: list[tuple[Sequence[str], Mapping[str, str]]] = []
    monkeypatch.setattr(proc, "replace_process", lambda *command: started.append(command))
    port = rpc_workers.free_port()
    asked = ("auto", "me/Model-3-8B-GGUF:Q4_K_M", "--yes", *QUICK)
    words = (*asked, "--serve", "--", "--port", str(port))

    with monkeypatch.context() as patch:
        patch.setattr(ServerEngine, "measure", _interrupted_after_a_run(ServerEngine.measure))
        code, _, said = run(*words)
    assert code == 130, said
    found = {Method(word) for word in re.findall(r"  (draft-\w+)", said)}
    assert found == {Method.DRAFT_EAGLE3, Method.DRAFT_MODEL}
    (begun,) = results.ids()
    kept = [run.log for run in results.load(begun).runs]
    assert kept

    said = shell.done(*words).stderr
    assert [run.log for run in results.load(begun).runs][: len(kept)] == kept
    measured = results.ids()
    runs = (run for name in measured for run in results.load(name).runs)
    assert {run.spec.drafting.method for run in runs if run.spec.drafting and run.spec.draft_source} <= found

    ((argv, environment),) = started
    with served.ready(served.start(argv, environment), port):
        assert served.ask(port, BODY)["tokens_predicted"] == 8

    code, printed, said = run(*asked)  # a finished tuning is printed from the store
    assert code == 0, said
    assert f"Serve it: ggufspec serve --tuned {results.read_configuration().id}" in printed
    assert results.ids() == measured


def _interrupted_after_a_run(measure: Callable[..., Measurement]) -> Callable[..., Measurement]:
    """Return a measurement that Ctrl-C ends once a bench has stored a run."""

    def interrupted(self: ServerEngine, spec: RunSpec, log: Path) -> Measurement:
        if any(results.load(name).runs for name in results.ids()):
            raise KeyboardInterrupt
        return measure(self, spec, log)

    return interrupted
