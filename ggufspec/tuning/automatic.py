"""From the name of a model to the fastest way to serve it, as one call for notebooks."""

from __future__ import annotations

from contextlib import suppress

from ggufspec.measure import RUN_SHARE, Deadline, api
from ggufspec.modelfiles import hub, pins
from ggufspec.options import AutoOptions, takes
from ggufspec.results import Configuration, ResultSet, read_configuration
from ggufspec.steps import finish
from ggufspec.tuning import looking, resuming, running, serving
from ggufspec.tuning.sources import find_sources


@takes(AutoOptions)
def auto(asked: AutoOptions) -> Configuration:
    """Find everything that may draft for a target, download it, and tune, as ``ggufspec auto`` does.

    A call that was interrupted goes on where it stopped: downloads resume, and stored runs are not repeated.

    Returns:
        The stored configuration: its verdict, and the command that serves it.

    Raises:
        GgufspecError: a model is not available, the download exceeds ``max_download``, or nothing can be
            tuned.
    """
    sources = find_sources(asked)
    if sources.survey.missing_bytes:
        finish(hub.fetch(sources.survey, hub.Access.of(asked), remember=False))
        with suppress(OSError):  # a folder that cannot be written only leaves files without a pin
            pins.pin_files(sources.survey)
    deadline = Deadline.start(asked.max_time, run_share=RUN_SHARE)  # downloads do not count
    attempt = resuming.find_attempt(sources.tune_options(asked), deadline)
    return attempt.finished or _finish(attempt, ("ggufspec.auto", repr(asked)))


def _finish(attempt: resuming.Attempt, command: tuple[str, ...]) -> Configuration:
    """Tune, from where an attempt stopped, and return the stored configuration."""
    outlook = attempt.outlook
    if outlook is None:
        outlook = looking.outlook(attempt.plan)
        attempt.keep_outlook(outlook)

    def measure(bench: running.NextBench) -> ResultSet:
        name, resume = attempt.place_bench(bench)
        return api.run(bench.session, api.begin(bench.session, command=command, name=name, resume=resume))

    tuned = serving.serve(attempt.plan, finish(running.measure_finalists(attempt.plan, outlook), measure))
    running.keep(tuned)
    attempt.discard_outlook()
    return read_configuration(tuned.results.meta.id)
