"""Put the placement of models, which the log of their load shows, into the samples of runs."""

from __future__ import annotations

from dataclasses import replace

from ggufspec.domain import Sample


def as_drafter(load: Sample) -> Sample:
    """Return the placement that a model's own load log shows, as the placement of a drafter."""
    return replace(load, drafter=load.target)


def with_placement(sample: Sample, load: Sample, drafter_load: Sample | None) -> Sample:
    """Return a run's sample with the placement of its models.

    Args:
        sample: the run's figures.
        load: parsed load log of the model that writes the text, as its target.
        drafter_load: parsed load log of the drafter, as its drafter; None if no model drafts.
    """
    drafter = sample.drafter if drafter_load is None else drafter_load.drafter
    return replace(sample, devices=load.devices, target=load.target, drafter=drafter)
