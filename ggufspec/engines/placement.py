"""What the log of a load says of where models are, as a part of the samples of runs that came later."""

from __future__ import annotations

from dataclasses import replace

from ggufspec.domain import Sample


def as_drafter(head: Sample) -> Sample:
    """Return what a model's own log says as that of one which drafts beside another."""
    return replace(
        head,
        draft_offloaded_layers=head.offloaded_layers,
        draft_total_layers=head.total_layers,
        draft_placement=head.placement,
    )


def placed(sample: Sample, head: Sample, beside: Sample | None) -> Sample:
    """Return a run's sample with the places of its models.

    Args:
        sample: what the run says.
        head: what the log of the load says; its target is the model that the run's text comes from.
        beside: the same, of a load whose second model drafts in this run; None where no model does.
    """
    found = replace(
        sample,
        offloaded_layers=head.offloaded_layers,
        total_layers=head.total_layers,
        devices=head.devices,
        placement=head.placement,
    )
    if beside is None:
        return found
    return replace(
        found,
        draft_offloaded_layers=beside.draft_offloaded_layers,
        draft_total_layers=beside.draft_total_layers,
        draft_placement=beside.draft_placement,
    )
