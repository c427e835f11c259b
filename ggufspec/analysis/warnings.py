"""Named warnings about measurements, each with advice. A warning never changes a number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import pairwise

from ggufspec.domain import (
    Conditions,
    RequestOutcome,
    Role,
    RunOutcome,
    RunProblem,
    RunResult,
    Status,
    TextVerdict,
    TrafficSample,
    offloading,
)
from ggufspec.machine import SLOWDOWNS

SERVER_LOADS = (
    "name three servers of each kind (--url and --url-drafting three times), start both again twice and go "
    "on with --resume and more --repeats after each, or let ggufspec start them (--engine server)"
)
"""How three loads of servers that run already are measured."""


class MeasurementWarning(StrEnum):
    """A reason why a number may be misleading."""

    GPU_LESS_BUILD = "gpu-less-build"
    DRAFTER_ON_CPU = "drafter-on-cpu"
    FEWER_LAYERS = "fewer-layers"
    SPILLED = "spilled"
    DEVICE_UNUSED = "device-unused"
    DRAFTING_INACTIVE = "drafting-inactive"
    MODELS_SWAPPED = "models-swapped"
    THREADS_ABOVE_FREE_CORES = "threads-above-free-cores"
    BUSY_MACHINE = "busy-machine"
    FEW_REPEATS = "few-repeats"
    NOT_INTERLEAVED = "not-interleaved"
    DISTURBED = "disturbed"
    WIDENED = "widened"
    UNEQUAL_LENGTHS = "unequal-lengths"
    BEYOND_LENGTH = "beyond-length"
    SWAPPING = "swapping"
    GPU_THROTTLED = "gpu-throttled"
    DRIFT = "drift"
    UNSTABLE = "unstable"
    CLIPPED = "clipped"
    OUTLIERS = "outliers"
    BEST_AT_EDGE = "best-at-edge"
    COLLAPSES = "collapses"
    MEMORY_TIGHT = "memory-tight"
    TEXT_DIFFERS = "text-differs"
    NOT_JUDGED = "texts-not-judged"
    NEAR_TIES = "near-ties"
    TARGET_VARIES = "target-varies"
    PROMPT_IN_WINDOW = "prompt-in-window"
    SAMPLED_OTHERWISE = "sampled-otherwise"
    SYNTHETIC = "synthetic-acceptance"
    REQUESTS_FAILED = "requests-failed"
    FEW_BEYOND = "few-beyond"
    CLIENT_BUSY = "client-busy"
    SATURATED = "saturated"
    OTHER_CLIENTS = "other-clients"
    READS_ZEROS = "drafter-reads-zeros"
    CACHE_LOST = "cache-lost"
    SUMMARY_RETRIED = "summary-retried"
    RUNS_FAILED = "runs-failed"
    UNEQUAL_FAILURES = "unequal-failures"
    DAMAGED = "damaged"


ADVICE = {
    MeasurementWarning.GPU_LESS_BUILD: (
        "layers were requested on a GPU, but this build of llama.cpp cannot use one: build with `ggufspec "
        "build --backend cuda` (or metal, vulkan, hip), or drop --ngl"
    ),
    MeasurementWarning.DRAFTER_ON_CPU: (
        "the target runs on the GPU and the drafter on the CPU: add `--ngld all`"
    ),
    MeasurementWarning.FEWER_LAYERS: (
        "fewer layers were offloaded than requested: compare requested_ngl and actual_ngl in `ggufspec"
        " show --runs`, and request as many as were offloaded"
    ),
    MeasurementWarning.SPILLED: (
        "part of the data for the GPU is in host memory, which is slower: offload fewer layers (--ngl), or "
        "use a smaller --ctx, --kv-type or quantization"
    ),
    MeasurementWarning.DEVICE_UNUSED: (
        "a device named with --device holds no weights: see placement in `ggufspec show --runs`, and give "
        "the device a proportion with --tensor-split or leave it out"
    ),
    MeasurementWarning.DRAFTING_INACTIVE: (
        "nothing was drafted, so drafting was not measured: the run's log says why the drafter was not used"
    ),
    MeasurementWarning.MODELS_SWAPPED: (
        "the drafter is larger than the target, so drafting cannot make it faster: were -m (the target) and"
        " -md (the drafter) swapped?"
    ),
    MeasurementWarning.THREADS_ABOVE_FREE_CORES: (
        "llama.cpp becomes many times slower with more threads than free cores, because its threads wait "
        "for each other: lower --threads, or stop other programs"
    ),
    MeasurementWarning.BUSY_MACHINE: (
        "other programs used the processor during runs: stop them and measure again"
    ),
    MeasurementWarning.FEW_REPEATS: (
        "one repeat cannot show how much runs vary on this machine: use --repeats 3 or more"
    ),
    MeasurementWarning.NOT_INTERLEAVED: (
        "the runs of an arm shared fewer than three loads of the models, and loads differ by chance, so its"
        " speed-up is an estimate without a verdict, whose interval assumes by how much: measure with three"
        " or more loads"
    ),
    MeasurementWarning.DISTURBED: (
        "memory was swapped or a GPU lowered its clocks during more than a fifth of the runs, and what that"
        " did is not known, so there is neither interval nor verdict: measure again on a quiet machine"
    ),
    MeasurementWarning.WIDENED: (
        "other programs used the processor during most runs, so intervals include what that may have changed:"
        " stop them and measure again for narrower ones"
    ),
    MeasurementWarning.UNEQUAL_LENGTHS: (
        "some answers are more than ten times as long as others, and each counts the same: compare with"
        " equal-work in `ggufspec show --all`, or use prompts with answers of similar length"
    ),
    MeasurementWarning.BEYOND_LENGTH: (
        "drafting programs end an answer after the round that exceeds -n, so some answers are more than a "
        "tenth longer than was asked for: tokens/s hold, but compare tokens/round and acceptance with other "
        "engines only after a bench with a larger -n, or with `--engine server`, which stops at -n"
    ),
    MeasurementWarning.SWAPPING: (
        "memory was swapped during runs: use a smaller --ctx or model, or stop other programs"
    ),
    MeasurementWarning.GPU_THROTTLED: (
        "a GPU lowered its clocks because of heat or its power supply: improve the cooling and measure "
        "again; `ggufspec show --runs --columns log,gpu_throttled,gpu_c` lists the runs"
    ),
    MeasurementWarning.DRIFT: (
        "the machine became faster or slower during the bench (heat, power limits, other programs): speed-"
        "ups are paired and stay valid, but let it cool and measure tokens/s again"
    ),
    MeasurementWarning.UNSTABLE: (
        "repeats of the same run differ more than usual: stop other programs, fix the clock frequency, or "
        "use more --repeats"
    ),
    MeasurementWarning.CLIPPED: (
        "single runs are far from what their prompt and load predict, so each counts as predicted; `ggufspec"
        " show --all` has the speed-ups of all runs as measured"
    ),
    MeasurementWarning.OUTLIERS: (
        "one arm has more far runs than the others, so they are how it behaves, and count as measured: check"
        " the reason with `ggufspec show --runs`"
    ),
    MeasurementWarning.BEST_AT_EDGE: (
        "the fastest draft size is the largest one that was measured, and larger ones may be faster: "
        "measure them with --draft"
    ),
    MeasurementWarning.COLLAPSES: (
        "more than a tenth of the runs of an arm were many times slower or faster than its others, so these "
        "prompts were measured again: use fewer --threads, as threads that wait for each other are the usual "
        "cause"
    ),
    MeasurementWarning.MEMORY_TIGHT: "the models barely fit into memory, so the disk may limit the speed",
    MeasurementWarning.TEXT_DIFFERS: (
        "the text with drafting differs from the target's own, and no near-tie explains it: the speed-up is"
        " not a fair comparison"
    ),
    MeasurementWarning.NOT_JUDGED: (
        "texts differ, and it was not judged whether near-ties explain that: mend the cause if "
        "you can, and continue the bench with `--resume`"
    ),
    MeasurementWarning.NEAR_TIES: (
        "the text with drafting differs from the target's own where two tokens are almost equally likely; "
        "batches of other sizes round differently, which is normal"
    ),
    MeasurementWarning.TARGET_VARIES: (
        "the target alone does not repeat its own text, and no near-tie explains it, so the comparison of "
        "texts shows little: check the memory and the llama.cpp build"
    ),
    MeasurementWarning.SAMPLED_OTHERWISE: (
        "sampled texts do not follow the target's distribution, so drafting does not write what the target "
        "alone would write: use another build of llama.cpp, and report this one"
    ),
    MeasurementWarning.PROMPT_IN_WINDOW: (
        "part of the prompt's evaluation may be counted as decoding, and how much is not known, because the "
        "target or the drafter alone was not measured on the prompt: the speed of drafting may be too low; "
        "use `--engine server`"
    ),
    MeasurementWarning.SYNTHETIC: (
        "acceptance was simulated, not decided by the target: speeds hold for that acceptance, texts have "
        "no meaning; leave out --synthetic-accept to measure the drafter itself"
    ),
    MeasurementWarning.REQUESTS_FAILED: (
        "requests of several users failed, so the server had less to do than in arms without failures: the "
        "table of users counts them, and the logs of the runs have their reasons"
    ),
    MeasurementWarning.FEW_BEYOND: (
        "fewer than 60 requests lie beyond a percentile, so few slow ones decide it: take more requests, "
        "with more prompts or --repeats"
    ),
    MeasurementWarning.CLIENT_BUSY: (
        "the client took more than 2 % of the time between two tokens, which may slow the server down: leave "
        "it a core with a smaller --threads, or take speed-ups rather than tokens/s from this bench"
    ),
    MeasurementWarning.SATURATED: (
        "requests arrived faster than they were answered, so they piled up, and their times grow with the "
        "length of the run: lower --rate, or raise --parallel"
    ),
    MeasurementWarning.OTHER_CLIENTS: (
        "a running server generated many tokens that were not asked for here, so other clients used it "
        "meanwhile: measure while nobody else does; acceptance is that of all clients"
    ),
    MeasurementWarning.READS_ZEROS: (
        "the drafter has another width than the target, so llama-server gives it zeros in place of images, "
        "and it drafts poorly behind them: use a drafter of the target's width, or one that reads text alone "
        "(--method ngram-simple)"
    ),
    MeasurementWarning.CACHE_LOST: (
        "later turns of conversations found less of the conversation in the cache than the turn before left "
        "there, so their time to the first token includes reading it again: another client may have used the "
        "slot; the template may write earlier messages otherwise; and models with recurrent layers or a "
        "sliding window need checkpoints of their cache (--ctx-checkpoints, --swa-full). `ggufspec show "
        "--runs --columns prompt,prompt_tokens,cached_tokens,kept_tokens` lists the runs"
    ),
    MeasurementWarning.SUMMARY_RETRIED: "llama.cpp truncated a log; the run was repeated",
    MeasurementWarning.RUNS_FAILED: (
        "some runs failed and are missing from the means: `ggufspec show --runs` has their status"
    ),
    MeasurementWarning.UNEQUAL_FAILURES: (
        "more runs or requests of one arm failed than of what it is compared with, and the slow ones may be "
        "those that fail, so there is no verdict: `ggufspec show --runs` has their status; raise --timeout "
        "if a time limit ended them"
    ),
    MeasurementWarning.DAMAGED: (
        "the files of this bench are damaged, and some of its runs may be missing: measure again"
    ),
}

_SERIOUS = {
    MeasurementWarning.GPU_LESS_BUILD: RunProblem.GPU_LESS_BUILD,
    MeasurementWarning.DRAFTER_ON_CPU: RunProblem.DRAFTER_ON_CPU,
    MeasurementWarning.SPILLED: RunProblem.SPILLED,
    MeasurementWarning.FEWER_LAYERS: RunProblem.FEWER_LAYERS,
    MeasurementWarning.DEVICE_UNUSED: RunProblem.DEVICE_UNUSED,
    MeasurementWarning.TEXT_DIFFERS: RunProblem.TEXT_DIFFERS,
    MeasurementWarning.BUSY_MACHINE: RunProblem.DISTURBED,
}
"""The outcome of a run that ended well but has such a warning, the most serious first."""

CLIENT_SHARE = 0.02
"""The client's share of the time between two tokens above which it may slow the server down."""

OTHERS_SHARE = 0.1
"""The share of a running server's tokens for other clients above which they disturbed a run. Requests that
are cut off at the end of a run go on for some tokens."""

_NOTES = frozenset(
    {
        MeasurementWarning.READS_ZEROS,  # that is how fast it is
        MeasurementWarning.CACHE_LOST,  # tokens/s are counted from the first token on
        MeasurementWarning.NEAR_TIES,
        MeasurementWarning.SUMMARY_RETRIED,
        MeasurementWarning.BEST_AT_EDGE,
        MeasurementWarning.CLIPPED,
        MeasurementWarning.WIDENED,
        MeasurementWarning.BEYOND_LENGTH,
        MeasurementWarning.FEW_BEYOND,
        MeasurementWarning.SYNTHETIC,
    }
)
"""Warnings that leave the verdict on what was measured as it is."""

_REREAD_TOKENS = 8
"""Tokens that a slot may read again without having lost its cache. llama-server keeps a checkpoint 4 tokens
before the end of a prompt (``checkpoint_offsets`` in server-context.cpp), and the text that follows an answer
may join its last token."""

_BUSY_CORES = 0.2  # a fifth of a core: about ten times what an idle desktop uses
_SWAPPED_BYTES = 16 << 20  # more than a desktop's background moves now and then


def before(cores: int, *, threads: int, busy_cores: float) -> tuple[MeasurementWarning, ...]:
    """Return the warnings that hold before anything was measured."""
    return _raised(
        {
            MeasurementWarning.THREADS_ABOVE_FREE_CORES: is_crowded(
                cores, threads=threads, busy_cores=busy_cores
            ),
            MeasurementWarning.BUSY_MACHINE: busy_cores > _BUSY_CORES,
        }
    )


def free_cores(cores: int, busy_cores: float) -> int:
    """Return how many threads can compute at once beside other programs; at least one."""
    return max(1, cores - round(busy_cores))


def is_crowded(cores: int, *, threads: int, busy_cores: float) -> bool:
    """Whether more threads are to compute than other programs leave cores; a single one never waits."""
    return threads > free_cores(cores, busy_cores)


def was_busy(conditions: Conditions) -> bool:
    """Whether others used so much of the processor that a measurement of that time cannot be trusted."""
    return (conditions.others_cores or 0.0) > _BUSY_CORES


def of_run(run: RunResult, *, gpu: bool | None, cores: int | None = None) -> tuple[MeasurementWarning, ...]:
    """Return the warnings about one finished run.

    Args:
        run: the run.
        gpu: whether the build can use a GPU; None where nobody knows and the log must tell.
        cores: that this process may use; None where nobody knows.
    """
    conditions = run.conditions or Conditions()
    sent = run.sample.traffic or TrafficSample(requests=())
    is_ours = run.spec.servers is None  # a server that runs already is one of the other programs
    threads, others = run.spec.threads, conditions.others_cores or 0.0
    is_inactive = run.spec.role is Role.DRAFTING and run.sample.status is Status.DRAFTING_INACTIVE
    raised = {
        MeasurementWarning.DRAFTING_INACTIVE: is_inactive,
        **dict.fromkeys(map(MeasurementWarning, offloading.shortfalls(run, gpu=gpu)), True),
        MeasurementWarning.THREADS_ABOVE_FREE_CORES: is_ours
        and cores is not None
        and is_crowded(cores, threads=threads, busy_cores=others),
        MeasurementWarning.BUSY_MACHINE: is_ours and was_busy(conditions),
        MeasurementWarning.SWAPPING: (conditions.swapped_bytes or 0) > _SWAPPED_BYTES,
        MeasurementWarning.GPU_THROTTLED: not SLOWDOWNS.isdisjoint(conditions.gpu_throttled or ()),
        MeasurementWarning.SYNTHETIC: run.spec.drafting is not None
        and run.spec.drafting.synthetic is not None,
        MeasurementWarning.REQUESTS_FAILED: any(
            request.outcome is not RequestOutcome.OK for request in sent.requests
        ),
        MeasurementWarning.CLIENT_BUSY: (sent.client_share or 0.0) > CLIENT_SHARE,
        MeasurementWarning.SATURATED: bool(sent.is_saturated),
        MeasurementWarning.OTHER_CLIENTS: (sent.others_share or 0.0) > OTHERS_SHARE,
        MeasurementWarning.CACHE_LOST: any(
            cached + _REREAD_TOKENS < kept for cached, kept in _later_turns(run)
        ),
        MeasurementWarning.READS_ZEROS: bool(run.sample.reads_zeros),
        MeasurementWarning.SUMMARY_RETRIED: run.attempts > 1,
    }
    return _raised(raised)


def _raised(conditions: Mapping[MeasurementWarning, bool]) -> tuple[MeasurementWarning, ...]:
    return tuple(warning for warning, is_raised in conditions.items() if is_raised)


def _later_turns(run: RunResult) -> Iterator[tuple[int, int]]:
    """Yield how many tokens later turns found in the cache, and how many the turn before left there."""
    sample, sent = run.sample, run.spec.traffic
    if sample.kept_tokens is not None:
        yield sample.cached_tokens or 0, sample.kept_tokens
    if sample.traffic is None or sent is None:
        return
    for before, after in pairwise(sample.traffic.requests):
        turn, last = (sent.prompts[request.prompt] for request in (after, before))
        follows = turn.history and turn.turn_before == last.id
        # servers that do not say what was cached count all as read
        if follows and after.cached_tokens is not None and before.prompt_tokens is not None:
            yield after.cached_tokens, before.prompt_tokens + (before.cached_tokens or 0)


def of_text(run: RunResult) -> MeasurementWarning | None:
    """Return the warning about a run's text; it is known only after the target's first text was written.

    Both the verdict on the first difference and the audit of the complete text must explain it by near-ties,
    as far as they are known. Where neither judged it, the text is not judged, whatever the cause.
    """
    if run.text_identical is not False:
        return None
    verdict = None if run.difference is None else run.difference.verdict
    if run.spec.servers is not None and verdict is None:
        return MeasurementWarning.NOT_JUDGED if run.spec.role is Role.DRAFTING else None
    divergent = None if run.audit is None else run.audit.divergent
    is_explained = verdict is TextVerdict.NEAR_TIE or (verdict is None and divergent == 0)
    if run.spec.role is Role.TARGET:
        return None if is_explained else MeasurementWarning.TARGET_VARIES
    if verdict is None and divergent is None:
        return MeasurementWarning.NOT_JUDGED
    if is_explained and not divergent:
        return MeasurementWarning.NEAR_TIES
    return MeasurementWarning.TEXT_DIFFERS


def of_judgement(run: RunResult) -> tuple[MeasurementWarning, ...]:
    """Return the warnings about a text that was compared with the target's own."""
    is_audited = run.audit is not None and run.audit.divergent is not None
    unjudged = not is_audited and run.difference is not None and run.difference.unjudged is not None
    warning = (of_text(run), MeasurementWarning.NOT_JUDGED if unjudged else None)
    return tuple(dict.fromkeys(filter(None, warning)))


def why_unjudged(run: RunResult) -> str:
    """Return why it was not judged whether a near-tie explains a text that differs."""
    if run.difference is not None and run.difference.unjudged is not None:
        return run.difference.unjudged
    if run.audit is not None and run.audit.unjudged is not None:
        return run.audit.unjudged
    if run.spec.asks:
        return "only the server knows what its template made of a request"
    if run.audit is None:
        return "the bench ended before texts were audited"
    return "the target did not find its own text again where both part"


def outcome(run: RunResult) -> RunOutcome:
    """Return what a run is worth: how it ended, or the most serious warning about one that ended well."""
    if run.sample.status is not Status.OK:
        return run.sample.status
    text_warning = of_text(run)
    if text_warning is MeasurementWarning.NOT_JUDGED and run.spec.servers is None:
        text_warning = MeasurementWarning.TEXT_DIFFERS  # it does, whoever explains it
    names = {*run.doubts, text_warning}
    return next((outcome for warning, outcome in _SERIOUS.items() if warning in names), Status.OK)


def doubtful(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of those warnings that put a verdict in doubt, unknown ones included."""
    return tuple(name for name in names if name not in _NOTES)


def warning_advice(warnings: Iterable[MeasurementWarning]) -> dict[str, str]:
    """Return each warning's advice by its name, in order, once."""
    return {warning.value: ADVICE[warning] for warning in dict.fromkeys(warnings)}
