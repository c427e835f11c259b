"""Add the placement of models, which only the log of their load shows, to the samples of later runs."""

from __future__ import annotations

from dataclasses import replace

from ggufspec.domain import Sample


def as_drafter(load: Sample) -> Sample:
    """Return the placement that a model's own load log shows, as the placement of a drafter."""
    return replace(
        load,
        draft_offloaded_layers=load.offloaded_layers,
        draft_total_layers=load.total_layers,
        draft_placement=load.placement,
    )


def with_placement(sample: Sample, load: Sample, drafter_load: Sample | None) -> Sample:
    """Return a run's sample with the placement of its models.

    Args:
        sample: the run's figures.
        load: parsed load log of the model that writes the text, as its target.
        drafter_load: parsed load log of the drafter, as its drafter; None if no model drafts.
    """
    sample = replace(
        sample,
        offloaded_layers=load.offloaded_layers,
        total_layers=load.total_layers,
        devices=load.devices,
        placement=load.placement,
    )
    if drafter_load is None:
        return sample
    return replace(
        sample,
        draft_offloaded_layers=drafter_load.draft_offloaded_layers,
        draft_total_layers=drafter_load.draft_total_layers,
        draft_placement=drafter_load.draft_placement,
    )
