"""What texts are worth: how much is not the target's own, and whether answers have the form asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ggufspec import stats
from ggufspec.domain import Request, Role, RunSpec, TextAudit, TrafficSample
from ggufspec.results import Runs

UNLIKELY = 0.001
"""The p-value below which sampled texts do not follow the target: one bench in 1,000 by chance."""


@dataclass(frozen=True, kw_only=True)
class AuditSummary:
    """The audits of distinct texts; equal texts on the same prompt count once, as they show the same.

    Attributes:
        texts: how many were judged.
        tokens: of all of them, their ends included.
        near_ties: tokens that differ from the target's choice within the margin; None for sampled texts.
        divergent: tokens that differ by more; None for sampled texts.
        divergent_texts: texts with such a token; of one run's answers to several users, which are judged
            together, as many as there may be. None for sampled texts.
        places: of sampled tokens, see ``TextAudit``.
        impossible: sampled tokens that the sampler leaves out.
        identical: how many of the compared repeats equal the target's first text.
        compared: repeats that were compared with it.
        unjudged: why texts were not judged, each reason once.
    """

    texts: int
    tokens: int
    near_ties: int | None
    divergent: int | None
    divergent_texts: int | None
    places: tuple[int, ...] | None
    impossible: int | None
    identical: int
    compared: int
    unjudged: tuple[str, ...]

    @property
    def highest_share_of_texts(self) -> float | None:
        """The highest share of texts with a divergent token compatible with what was found, at 95 %."""
        if self.divergent_texts is None or not self.texts:
            return None
        return stats.highest_share(self.divergent_texts, self.texts)

    @property
    def highest_share_of_tokens(self) -> float | None:
        """The same of divergent tokens, if each differs independently of the others of its text.

        A fault seldom does that: it makes many tokens of few texts differ, and where none of these texts was
        judged, the bound lies below the truth.
        """
        if self.divergent is None or not self.tokens:
            return None
        return stats.highest_share(self.divergent, self.tokens)

    @property
    def p_value(self) -> float | None:
        """How likely sampled texts of the target differ from its distribution by at least as much."""
        return None if self.places is None else stats.uniform_p_value(self.places)


def summarize_audits(runs: Runs) -> AuditSummary | None:
    """Return what the audits of some runs say together; None where nothing was audited or compared."""
    audits = runs.column("audit")
    compared = [same for same in runs.column("text_identical") if same is not None]
    if not compared and not any(audits):
        return None
    reasons = {audit.unjudged for audit in audits if audit is not None and audit.unjudged is not None}
    texts = _distinct(runs)
    affected = [None if audit.divergent is None else min(audit.divergent, count) for audit, count in texts]
    audits = [audit for audit, _ in texts]
    histograms = [audit.places for audit in audits if audit.places is not None]
    return AuditSummary(
        texts=sum(count for _, count in texts),
        tokens=sum(audit.tokens for audit in audits),
        near_ties=_sum([audit.near_ties for audit in audits]),
        divergent=_sum([audit.divergent for audit in audits]),
        divergent_texts=_sum(affected),
        places=tuple(map(sum, zip(*histograms, strict=True))) if histograms else None,
        impossible=_sum([audit.impossible for audit in audits]),
        identical=sum(compared),
        compared=len(compared),
        unjudged=tuple(sorted(reasons)),
    )


def summarize_role(runs: Runs, role: Role) -> AuditSummary | None:
    """Return what the audits of the runs of a role say together; None where nothing was audited."""
    specs, spec_of = runs.by_spec()
    has_role = np.array([spec.role is role for spec in specs], dtype=np.bool_)
    return summarize_audits(runs.select(np.flatnonzero(has_role[spec_of])))


def summarize_by_role(runs: Runs) -> dict[Role, AuditSummary]:
    """Return the summaries of what drafted and of the target alone, which is the control."""
    summaries = {role: summarize_role(runs, role) for role in (Role.DRAFTING, Role.TARGET)}
    return {role: summary for role, summary in summaries.items() if summary is not None}


def _distinct(runs: Runs) -> list[tuple[TextAudit, int]]:
    """Return one audit of each judged text, or of a run's answers, and of how many texts it is."""
    judged = [
        number
        for number, audit in enumerate(runs.column("audit"))
        if audit is not None and audit.unjudged is None
    ]
    if not judged:
        return []
    runs = runs.select(judged)
    columns = map(runs.column, ("audit", "text", "tokens", "traffic"))
    audits: dict[tuple[object, ...], tuple[TextAudit, int]] = {}
    keys: dict[int, str] = {}
    for spec, audit, text, tokens, traffic in zip(runs.specs, *columns, strict=True):
        key = keys.get(id(spec)) or keys.setdefault(id(spec), spec.baseline.key)
        answers = None if traffic is None else traffic.answers
        audits.setdefault((key, text, tokens, answers), (audit, 1 if answers is None else len(answers)))
    return list(audits.values())


def _sum(counts: Sequence[int | None]) -> int | None:
    counted = [count for count in counts if count is not None]
    return sum(counted) if counted else None


_PARTS = re.compile(
    r"(?:<think>.*?</think>)?(?P<content>.*?)(?P<calls>(?:<tool_call>.*?</tool_call>)*)", re.DOTALL
)
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


class Validity(NamedTuple):
    """How many answers were judged, and how many of them are valid."""

    answers: int
    valid: int

    @property
    def share(self) -> float:
        """The share of valid answers, 0 to 1."""
        return self.valid / self.answers


def judge_validity(runs: Runs) -> Validity | None:
    """Return what the answers of some runs are worth; None where no prompt asks for a form.

    Without grammars and schemas (``Asking``), answers are judged by what the prompts ask.
    """
    if all(spec.prompt.request is None and spec.traffic is None for spec in runs.by_spec()[0]):
        return None
    judged = [
        is_valid(request, text)
        for spec, *written in zip(runs.specs, runs.column("text"), runs.column("traffic"), strict=True)
        for request, text in _answers(spec, *written)
    ]
    known = [valid for valid in judged if valid is not None]
    return Validity(len(known), sum(known)) if known else None


def _answers(spec: RunSpec, text: str | None, users: TrafficSample | None) -> Iterator[tuple[Request, str]]:
    if spec.traffic is None:
        if spec.prompt.request is not None and text is not None:
            yield spec.prompt.request, text
        return
    for answer in () if users is None else users.answers:
        request = spec.traffic.prompts[answer.prompt].request
        if request is not None:
            yield request, answer.text


@cache
def is_valid(request: Request, text: str) -> bool | None:
    """Return whether an answer has the form that a request asks for; None where it asks for none.

    The arguments of calls have to satisfy the parameters of their tool. An answer without calls has to
    satisfy the schema; one that had to call a tool is not valid. Texts of grammars are not judged.

    Args:
        request: with a schema or tools.
        text: the answer, in the form of ``llama.server.AnswerText``.
    """
    fields = request.fields
    parts = _PARTS.fullmatch(text)
    assert parts is not None  # its second part matches anything
    functions = [tool["function"] for tool in fields.get("tools", ()) if "function" in tool]
    tools = {function["name"]: function for function in functions}
    calls = _CALL.findall(parts["calls"])
    if calls:
        return all(_is_valid_call(call, tools) for call in calls)
    schema = _schema_of(fields)
    if schema is not None:
        return _satisfies(parts["content"], schema)
    return False if tools and fields.get("tool_choice", "auto") not in ("auto", "none") else None


def _schema_of(fields: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema of an answer, as llama-server finds it (``oaicompat_chat_params_parse``)."""
    asked = fields.get("response_format", {})
    if asked.get("type") == "json_schema":
        return asked.get("json_schema", {}).get("schema", {})  # type: ignore[no-any-return]
    if asked.get("type") == "json_object":
        return asked.get("schema") or {"type": "object"}
    return fields.get("json_schema")


def _is_valid_call(call: str, tools: dict[str, dict[str, Any]]) -> bool:
    try:
        named = json.loads(call)
    except (ValueError, RecursionError):
        return False
    tool = tools.get(named["name"])
    return tool is not None and _satisfies(json.dumps(named["arguments"]), tool.get("parameters", {}))


def _satisfies(text: str, schema: dict[str, Any]) -> bool:
    """Return whether a text is JSON that satisfies a schema; references to other files are not followed."""
    from jsonschema import Draft202012Validator, exceptions  # slow to import
    from referencing import Registry, exceptions as unresolved

    try:
        return Draft202012Validator(schema, registry=Registry()).is_valid(json.loads(text))
    except (ValueError, RecursionError, exceptions.SchemaError, unresolved.Unresolvable):
        return False
