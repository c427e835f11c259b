"""The five-minute path on real programs: fetch a pair from a Hub, then bench what was fetched."""

from __future__ import annotations

import json

from ggufspec import results
from ggufspec.domain import Role, Status, TextVerdict
from ggufspec.llama.install.installs import Install
from tests.support.hub_client import PAIR, Run
from tests.support.hub_server import Hub


def test_a_fetched_pair_is_the_next_benchs_pair(hub: Hub, run: Run, llama: Install) -> None:
    assert run("fetch", "--quiet", *PAIR)[0] == 0
    quick = (
        "-p",
        "Q: Who is Anna?\nA:",
        "-n",
        "24",
        "-r",
        "1",
        "-t",
        "1",
        "--warmup",
        "0",
        "--llama",
        str(llama.root),
    )
    code, out, err = run("bench", *quick, "-o", "json")
    assert code == 0, err
    assert "the last fetched pair" in err
    rows = json.loads(out)
    assert [(row["role"], row["status"]) for row in rows] == [
        (role, Status.OK.value) for role in ("target", "drafter", "drafting")
    ]
    # this Hub's target and drafter are one model under two names: only near-ties reject or change tokens
    assert rows[2]["accept_rate"] > 0.5
    (drafting,) = (run for run in results.load(results.ids()[0]).current if run.spec.role is Role.DRAFTING)
    assert drafting.text_identical or (
        drafting.difference is not None and drafting.difference.verdict is TextVerdict.NEAR_TIE
    )
