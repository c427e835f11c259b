"""From the name of a model to the fastest way to serve it, as one call for notebooks."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ggufspec.measure import RUN_SHARE, Deadline, api
from ggufspec.modelfiles import hub, pins
from ggufspec.notebooks import named_options
from ggufspec.results import Configuration, ResultSet, read_configuration
from ggufspec.steps import finish
from ggufspec.tuning import looking, resuming, running, serving
from ggufspec.tuning.sources import AutoRequest, find_sources


@named_options
def auto(
    target: str,
    *,
    draft_model: tuple[str, ...] = (),
    drafters: int = 3,
    max_download: int | None = None,
    max_time: float | None = 300.0,
    serve_ctx: int | None = None,
    serve_parallel: int = 1,
    threads: int | None = None,
    llama: Path | None = None,
    offline: bool = False,
    token: str | None = None,
    fresh: bool = False,
    rpc: str | None = None,
) -> Configuration:
    """Find everything that may draft for a target, download it, and tune, as ``ggufspec auto`` does.

    A call that was interrupted goes on where it stopped: downloads resume, and stored runs are not repeated.

    Args:
        target: a model reference such as "user/repo:Q4_K_M", a path, or a pair of the catalogue.
        draft_model: drafters to try besides those that are found.
        drafters: how many of the drafters that are found to try.
        max_download: bytes to download at most; drafters beyond that are left out.
        max_time: seconds for the tuning; None for no limit.
        serve_ctx: tokens of context for each request; by default the largest of 4096, 8192, … that fits.
        serve_parallel: requests to serve at once.
        threads: threads of the processor; by default all physical cores.
        llama: folder of a llama.cpp installation.
        offline: use only cached files.
        token: access token for the Hub.
        fresh: tune again, even if the same tuning is stored.
        rpc: workers that lend their devices to the target, such as "a:50052,b:50052".

    Returns:
        The stored configuration: its verdict, and the command that serves it.

    Raises:
        GgufspecError: a model is not available, the download exceeds ``max_download``, or nothing can be
            tuned.
    """
    asked = AutoRequest(
        target=target,
        draft_model=draft_model,
        drafters=drafters,
        max_download_bytes=max_download,
        max_time_s=max_time,
        serve_ctx=serve_ctx,
        serve_parallel=serve_parallel,
        threads=threads,
        llama=llama,
        offline=offline,
        token=token,
        fresh=fresh,
        rpc=rpc,
    )
    sources = find_sources(asked)
    if sources.survey.missing_bytes:
        finish(hub.fetch(sources.survey, asked.access, remember=False))
        with suppress(OSError):  # a folder that cannot be written only leaves files without a pin
            pins.pin_files(sources.survey)
    deadline = Deadline.start(asked.max_time_s, run_share=RUN_SHARE)  # downloads do not count
    attempt = resuming.find_attempt(sources.tune_request(asked), deadline)
    return attempt.finished or _finish(attempt, ("ggufspec.auto", repr(asked)))


def _finish(attempt: resuming.Attempt, command: tuple[str, ...]) -> Configuration:
    """Tune, from where an attempt stopped, and return the stored configuration."""
    outlook = attempt.outlook
    if outlook is None:
        outlook = looking.outlook(attempt.plan)
        attempt.keep_outlook(outlook)

    def measure(bench: running.Bench) -> ResultSet:
        name, resume = attempt.place_bench(bench)
        return api.run(bench.session, api.begin(bench.session, command=command, name=name, resume=resume))

    tuned = serving.serve(attempt.plan, finish(running.measure_finalists(attempt.plan, outlook), measure))
    running.keep(tuned)
    attempt.discard_outlook()
    return read_configuration(tuned.results.meta.id)
