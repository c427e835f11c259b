"""From the name of a model to the fastest way to serve it."""

from __future__ import annotations

from ggufspec.measure import RUN_SHARE, Deadline, identity
from ggufspec.measure import api as benches
from ggufspec.modelfiles import api, hub
from ggufspec.options import AutoOptions, takes
from ggufspec.results import Configuration, read_configuration
from ggufspec.steps import SILENT, Sink
from ggufspec.tuning import looking, resuming, running
from ggufspec.tuning.sources import DraftSources, find_sources


@takes(AutoOptions)
def auto(asked: AutoOptions, sink: Sink = SILENT) -> Configuration:
    """Find everything that may draft for a target, download it, and tune, as ``ggufspec auto`` does.

    A call that was interrupted goes on where it stopped: downloads resume, and stored runs are not repeated.

    Returns:
        The stored configuration: its verdict, and the command that serves it.

    Raises:
        GgufspecError: a model is not available, the download exceeds ``max_download``, or nothing can be
            tuned.
    """
    deadline = Deadline.start(asked.max_time, begun_s=sink.begun_s, run_share=RUN_SHARE)
    sink.show(deadline)
    since_s = deadline.elapsed_s
    sink.say(f"looking for what may draft for {asked.target}")
    sources = find_sources(asked)
    sink.show(sources)
    # a Hub that cannot be reached is tried again for most of a minute
    deadline = deadline.without_network(since_s, sink, "search for drafters")
    deadline = _fetch(sources, asked, deadline, sink)
    benches.say_reading(identity.unread(sources.models), sink)
    attempt = resuming.find_attempt(sources.tune_options(asked), deadline)
    if (finished := attempt.finished) is not None:
        sink.say(f"tuned already: {finished.id}; --fresh tunes again")
        return finished
    plan, outlook = attempt.plan, attempt.outlook
    sink.show(plan.session)
    warnings = benches.check_machine(plan.session, sink)
    if outlook is None:
        outlook = sink.finish(looking.forecast_configurations(plan))
        attempt.keep_outlook(outlook)
    else:
        sink.say("going on with the forecasts and the runs of an earlier attempt")
    sink.show(outlook)
    tuned = running.measure_and_keep(
        plan,
        outlook,
        sink,
        place=attempt.place_bench,
        command=sink.command("auto", asked),
        warnings=warnings,
    )
    attempt.discard_outlook()
    return read_configuration(tuned.results.meta.id)


def _fetch(sources: DraftSources, asked: AutoOptions, deadline: Deadline, sink: Sink) -> Deadline:
    """Download the target and the drafters that are tried, after one question, which does not count either.

    Raises:
        ConsentNeededError: nobody can be asked, and ``yes`` is not set.
        GgufspecError: the disk is full, or the download fails.
    """
    survey = sources.survey
    if not survey.missing_bytes:
        return deadline
    since_s = deadline.elapsed_s
    hub.download(survey, hub.Access.of(asked), sink, yes=asked.yes, ask_above_bytes=0, remember=False)
    api.pin_files(survey, sink)
    return deadline.without_network(since_s, sink)
