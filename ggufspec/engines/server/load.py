"""What a server has to load for a run, apart from what each request says anew."""

from __future__ import annotations

from dataclasses import replace

from ggufspec.domain import Pair, Prompt, Role, RunSpec, Sampling

_NO_PROMPT = Prompt(id="", text="")


def load_of(spec: RunSpec) -> RunSpec:
    """Return a run's specification without prompt, length and sampling; equal loads can share a server.

    A drafter alone is loaded like any target, and a target alone knows no drafter.
    """
    if spec.role is Role.DRAFTING:
        pair, role, offload = replace(spec.pair, name=""), Role.DRAFTING, spec.offload
    else:
        pair, role = Pair(name="", target=spec.model), Role.TARGET
        offload = spec.own_offload.target_alone
    return replace(
        spec, pair=pair, role=role, offload=offload, prompt=_NO_PROMPT, n_predict=0, sampling=Sampling()
    )
