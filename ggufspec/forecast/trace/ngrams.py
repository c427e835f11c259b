"""From a trace to the rounds of a greedy run that drafts from its own text: emulated, not estimated.

llama.cpp's ways to draft from the text so far are done step by step as its source does it, oddities included.
Read in the source of the summer of 2026: common/speculative.cpp, ngram-map.cpp, ngram-mod.h, ngram-cache.cpp.
A *text* here is the prompt and all that will be generated; a drafter sees it up to ``end``, whose last token
is the one that was sampled but not evaluated yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from ggufspec.domain import Drafting, Method, Program
from ggufspec.forecast.trace.walks import DraftTrace, TracedRun, TraceStep, check_reach, expected, steps
from ggufspec.llama.command import LOOKUPS, draft_sizes

Text = tuple[int, ...]


_READ = 10476  # the first build whose methods were read; those of early 2026 draft in other ways


class Drafter:
    """One method within one run, with what it remembers; by default, nothing."""

    def begin(self, text: Text, size: int) -> None:
        """Take notice of the prompt, the first ``size`` tokens."""

    def draft(self, text: Text, end: int) -> Text:
        """Return what is drafted to follow ``text[:end]``."""
        raise NotImplementedError

    def accept(self, n_accepted: int) -> None:
        """Take notice of how many tokens of the last draft were accepted."""


class Simple(Drafter):
    """What followed the last place where the text read as it does now (common_ngram_simple_draft)."""

    def __init__(self, n_max: int) -> None:
        self._size, self._n_max = LOOKUPS[Method.NGRAM_SIMPLE].size_n, n_max

    def draft(self, text: Text, end: int) -> Text:
        """Look back from the end, place 0 left out; a draft shorter than what was looked up is dropped."""
        n_known, size = end - 1, self._size
        if n_known <= size + self._n_max + 1:
            return ()
        position = last_position(text, text[end - size : end], first=n_known - size - 1, last=1)
        if not position:
            return ()
        longest = min(self._n_max, n_known - (position + size))
        return text[position + size : position + size + longest] if longest >= size else ()


_VALUES = 4  # different continuations that are kept of a key


@dataclass(kw_only=True)
class _Continuation:
    """A continuation of a key: its place in the text, how often it was met, how long drafts of it may be."""

    place: int
    seen: int
    longest: int


@dataclass(kw_only=True)
class _Key:
    """What is known of a key: its continuations, and up to where the text was searched for them."""

    values: list[_Continuation]
    searched: int = 0


@dataclass(kw_only=True)
class Map(Drafter):
    """A map of keys alone (``ngram-map-k``) or with four continuations each (``ngram-map-k4v``).

    A draft of a key is never longer than what was accepted of its last one, so a key drafts nothing
    more after one of its drafts was rejected as a whole.
    """

    method: Method
    n_max: int
    _begun: int = 0
    _indexed: int = 0  # the last place whose key has its hash in the index
    _index: dict[int, int] = field(default_factory=dict)  # hash -> place; a taken one is not overwritten
    _keys: dict[Text, _Key] = field(default_factory=dict)
    _last: _Continuation | None = None  # of the last draft

    def begin(self, text: Text, size: int) -> None:
        """Remember where the answer begins: keys that reach over it are not looked for."""
        self._begun = size

    def draft(self, text: Text, end: int) -> Text:
        """Draft what followed the key elsewhere, as far as such drafts were good before."""
        self._last = None
        size = LOOKUPS[self.method].size_n
        n_known = end - 1  # the last token is not in llama.cpp's history yet
        if n_known < 2 * size + self.n_max:
            return ()
        wanted = text[end - size : end]
        position = self._find(text, wanted, n_known)
        self._note(text, size, n_known)
        if not position:
            return ()
        key = self._keys.get(wanted)
        if key is None:
            first = [_Continuation(place=0, seen=0, longest=self.n_max)] if self._keeps_keys_only else []
            key = self._keys[wanted] = _Key(values=first)
        value = key.values[0] if self._keeps_keys_only else self._choose(text, wanted, key, position)
        if value is None:
            return ()
        self._last = value
        return text[position + size : position + size + min(self.n_max, value.longest)]

    def accept(self, n_accepted: int) -> None:
        """Let the next draft of this kind be as long as this one was right."""
        if self._last is not None:
            self._last.longest = n_accepted

    @property
    def _keeps_keys_only(self) -> bool:
        return self.method is Method.NGRAM_MAP_K

    def _find(self, text: Text, wanted: Text, n_known: int) -> int:
        # a match must be followed by a whole draft of tokens that are known
        size, reach = len(wanted), len(wanted) + self.n_max + 1
        # 0 means none, as in llama.cpp: the first token is no match
        position = self._index.get(_hash(wanted), 0)
        if position and position < n_known - reach and text[position : position + size] == wanted:
            return position
        earlier = 0
        if self._begun > reach:  # keys that reach over the answer's beginning are never indexed
            earlier = last_position(text, wanted, first=self._begun - reach, last=self._indexed + 1)
        first_new = max(self._begun, self._indexed) + 1
        return earlier or last_position(text, wanted, first=n_known - reach, last=first_new)

    def _note(self, text: Text, size: int, n_known: int) -> None:
        """Index all places that were not yet: those of the prompt first, each part from its end."""
        reach = size + self.n_max + 1
        positions = [*range(n_known - reach, max(self._begun, self._indexed), -1)]
        if self._begun > reach:
            positions = [*range(self._begun - reach, self._indexed, -1), *positions]
        for position in positions:
            self._index.setdefault(_hash(text[position : position + size]), position)
        self._indexed = max(n_known - reach, self._indexed)

    def _choose(self, text: Text, wanted: Text, key: _Key, last: int) -> _Continuation | None:
        """Count the key's continuations; return the most frequent if all others come to half of it."""
        size = len(wanted)
        for position in range(key.searched, last + 1):
            if text[position : position + size] == wanted:
                self._meet(text, key, position + size)
        key.searched = last
        if not key.values:
            return None
        best = max(key.values, key=lambda value: value.seen)
        others = sum(value.seen for value in key.values) - best.seen
        return best if best.seen >= 2 * others else None

    def _meet(self, text: Text, key: _Key, position: int) -> None:
        follows = text[position : position + self.n_max]
        for value in key.values:
            if text[value.place : value.place + self.n_max] == follows:
                value.seen += 1
                return
        if len(key.values) < _VALUES:
            key.values.append(_Continuation(place=position, seen=1, longest=self.n_max))


def _hash(tokens: Sequence[int], factor: int = 2654435761, bits: int = 32, entries: int = 262144) -> int:
    value, mask = 0, 2**bits - 1
    for token in tokens:
        value = (value * factor + token) & mask
    return value % entries


class Mod(Drafter):
    """A hash of the last tokens -> the token that followed them last time (common_ngram_mod).

    Nothing tells two contexts of one hash apart: rare among 4 million, and the same here as there.
    """

    _FACTOR, _ENTRIES = 6364136223846793005, 4 * 1024 * 1024
    _EVERY = 32  # tokens between two looks at what was generated
    _LOW, _PATIENCE = 0.25, 5  # acceptance that counts as low, and how often in a row before all is forgotten

    def __init__(self, n_max: int) -> None:
        lookup = LOOKUPS[Method.NGRAM_MOD]
        self._size, self._n_max, self._n_min = lookup.size_n, n_max, min(lookup.n_min, n_max)
        self._next: dict[int, int] = {}
        self._read = self._drafted = self._low = 0

    def begin(self, text: Text, size: int) -> None:
        """Learn the prompt, but for what follows its last tokens."""
        if size >= self._size:
            self._learn(text, size)

    def draft(self, text: Text, end: int) -> Text:
        """Follow the table as far as it leads."""
        n_known, size, self._drafted = end - 1, self._size, 0
        if n_known < size:
            return ()
        if self._read + self._EVERY < n_known:
            self._learn(text, n_known)
        window = list(text[end - size : end])
        for position in range(self._n_max):
            token = self._next.get(self._hash(window[position:]))
            if token is None:
                if position < self._n_min:
                    return ()
                break
            window.append(token)
        self._drafted = len(window) - size
        return tuple(window[size:])

    def accept(self, n_accepted: int) -> None:
        """Forget everything after several bad drafts."""
        if not self._drafted:
            return
        self._low = self._low + 1 if n_accepted / self._drafted < self._LOW else 0
        if self._low >= self._PATIENCE:
            self._next.clear()
            self._low = self._read = 0

    def _learn(self, text: Text, n_known: int) -> None:
        for position in range(self._read, n_known - self._size):
            self._next[self._hash(text[position : position + self._size])] = text[position + self._size]
        self._read = n_known - self._size

    def _hash(self, tokens: Sequence[int]) -> int:
        return _hash(tokens, self._FACTOR, 64, self._ENTRIES)


class Cache(Drafter):
    """Counts of what followed the last 1 to 4 tokens; the longest context that is sure decides.

    Counting (common_ngram_cache_update) sees the tokens of one round alone, so contexts that reach into an
    earlier round are never counted. Of counts that tie, the one that C++ iterates over first wins.
    """

    _LEAST_SEEN, _LEAST_SHARE = (2, 2, 1, 1), (66, 50, 50, 50)  # by the length of the context; in per cent

    def __init__(self, n_max: int) -> None:
        self._n_max, self._size = n_max, LOOKUPS[Method.NGRAM_CACHE].size_n
        self._seen: dict[Text, TokenCounts] = {}
        self._read = 0

    def draft(self, text: Text, end: int) -> Text:
        """Count what is new, then draft token by token, each with the drafted ones before it as context."""
        self._count(text[self._read : end])
        self._read, drafted = end, text[max(0, end - self._size) : end]
        given = len(drafted)
        while end > 1 and len(drafted) - given < self._n_max:
            token = self._likeliest(drafted)
            if token is None:
                break
            drafted += (token,)
        return drafted[given:]

    def _count(self, new: Text) -> None:
        for size in range(1, self._size + 1):
            for position in range(size, len(new)):
                self._seen.setdefault(new[position - size : position], TokenCounts()).add(new[position])

    def _likeliest(self, before: Text) -> int | None:
        for size in range(min(self._size, len(before)), 0, -1):
            counts = self._seen.get(before[-size:])
            if counts is None or counts.total < self._LEAST_SEEN[size - 1]:
                continue
            token, most = counts.first_of_most()
            if 100 * most >= self._LEAST_SHARE[size - 1] * counts.total:
                return token
        return None


def last_position(text: Text, wanted: Text, *, first: int, last: int) -> int:
    """Return the place from ``first`` down to ``last`` at which the wanted tokens begin, or 0."""
    size, head = len(wanted), wanted[0]
    for position in range(first, last - 1, -1):
        if text[position] == head and text[position : position + size] == wanted:
            return position
    return 0


_BUCKETS = (13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273, 20753, 42043, 85229, 172933)


class TokenCounts:
    """``std::unordered_map<llama_token, int>`` of libstdc++, as far as its order goes.

    A new entry comes first in its bucket, or first of all where the bucket was empty. A map has 13 buckets,
    and when it has more entries than buckets, the next larger prime beyond twice as many, into which the
    entries go anew in their order. Builds for macOS use another library, with another order.
    """

    def __init__(self) -> None:
        self.total = 0
        self._counts: dict[int, int] = {}
        self._order: list[int] = []
        self._buckets = _BUCKETS[0]

    def add(self, token: int) -> None:
        """Count a token once more."""
        self.total += 1
        if token in self._counts:
            self._counts[token] += 1
            return
        if len(self._order) == self._buckets:
            self._buckets = next(size for size in _BUCKETS if size > self._buckets)
            before, self._order = self._order, []
            for earlier in before:
                self._insert(earlier)
        self._counts[token] = 1
        self._insert(token)

    def first_of_most(self) -> tuple[int, int]:
        """Return the token with the largest count, the first in order of those, and that count."""
        token = max(self._order, key=self._counts.__getitem__)
        return token, self._counts[token]

    def _insert(self, token: int) -> None:
        bucket = token % self._buckets
        same = (position for position, entry in enumerate(self._order) if entry % self._buckets == bucket)
        self._order.insert(next(same, 0), token)


_DRAFTERS: Mapping[Method, Callable[..., Drafter]] = MappingProxyType(
    {
        Method.NGRAM_SIMPLE: Simple,
        Method.NGRAM_MAP_K: lambda n_max: Map(method=Method.NGRAM_MAP_K, n_max=n_max),
        Method.NGRAM_MAP_K4V: lambda n_max: Map(method=Method.NGRAM_MAP_K4V, n_max=n_max),
        Method.NGRAM_MOD: Mod,
        Method.NGRAM_CACHE: Cache,
    }
)
EMULATED = frozenset(_DRAFTERS)
"""The methods whose rounds follow from a text."""


def why_not(drafting: Drafting, program: Program, build: int | None = None) -> str | None:
    """Return why no run of this kind can be emulated; None where it can."""
    method = drafting.method
    if method.drafts_with_model:
        return f"{method.value} drafts with a model, not from the text"
    if method not in EMULATED:
        return f"how ik_llama.cpp drafts by {method.value} is not emulated"
    if program not in {Program.SIMPLE, Program.SERVER}:
        return f"{program.value} does not draft by {method.value}"
    if build is not None and build < _READ:
        return f"how build {build} drafts by {method.value} is not known"
    if method is Method.NGRAM_CACHE and drafting.n_max not in draft_sizes(method):
        return f"{method.value} drafts up to {draft_sizes(method)[0]} tokens, never up to {drafting.n_max}"
    return None


def ngram_steps(trace: DraftTrace, run: TracedRun) -> tuple[TraceStep, ...]:
    """Return what a greedy run does that drafts from its own text, round by round, as ``steps`` does.

    The text of a greedy run is fixed, and drafts follow from it: counts are those of a real run in a process
    of its own. What a program accepts beyond an end of generation is not counted. Rounds without a draft are
    there too. The context has to hold more than the text: programs draft less near its end.

    Args:
        trace: the text with its prompt's tokens, and as many tokens as ``needed`` says unless it ended.
        run: one whose method is EMULATED, with the settings of LOOKUPS, by SIMPLE or SERVER.

    Raises:
        ValueError: the trace is too short to tell or lacks its prompt, or no such run can be made.
    """
    if (why := why_not(run.drafting, run.program, run.build)) is not None:
        raise ValueError(why)
    if not trace.prompt_tokens:
        raise ValueError(f"trace {trace.prompt_id} lacks the tokens of its prompt")
    drafter = _DRAFTERS[run.drafting.method](run.drafting.n_max)
    text, n_prompt = trace.prompt_tokens + trace.tokens, len(trace.prompt_tokens)
    at, taken = run.first, list[TraceStep]()
    drafter.begin(text, n_prompt + at - 1)
    while not run.is_over(at) and at < len(trace.tokens):
        most = run.most(at)
        draft = drafter.draft(text, n_prompt + at)[:most] if most else ()
        accepted = 0
        for drafted, token in zip(draft, trace.tokens[at:], strict=False):
            if drafted != token:
                break
            accepted += 1
        drafter.accept(accepted)
        check_reach(trace, at + accepted)
        taken.append(TraceStep(at, 1.0, len(draft), accepted, 0))
        at += accepted + 1
    if not run.is_over(at):
        check_reach(trace, at)
    return tuple(taken)


def walk(trace: DraftTrace, run: TracedRun) -> tuple[TraceStep, ...]:
    """Return what a run does, round by round: see ``ngram_steps``, ``expected`` and ``steps``."""
    if not run.drafting.method.drafts_with_model:
        return ngram_steps(trace, run)
    return expected(trace, run) if run.samples_exactly else steps(trace, run)
