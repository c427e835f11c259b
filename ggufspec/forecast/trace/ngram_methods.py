"""llama.cpp's ways to draft from the text so far, step by step as its source does it, oddities included.

Read in the source of the summer of 2026: common/speculative.cpp, ngram-map.cpp, ngram-mod.h, ngram-cache.cpp.
A *text* here is the prompt and all that will be generated; a drafter sees it up to ``end``, whose last token
is the one that was sampled but not evaluated yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ggufspec.domain import Method
from ggufspec.llama.command import LOOKUPS

Text = tuple[int, ...]


class Drafter(Protocol):
    """One method within one run, with what it remembers."""

    def begin(self, text: Text, size: int) -> None:
        """Take notice of the prompt, the first ``size`` tokens."""

    def draft(self, text: Text, end: int) -> Text:
        """Return what is drafted to follow ``text[:end]``."""
        ...

    def accept(self, n_accepted: int) -> None:
        """Take notice of how many tokens of the last draft were accepted."""


class Simple:
    """What followed the last place where the text read as it does now (common_ngram_simple_draft)."""

    def __init__(self, n_max: int) -> None:
        self._size, self._n_max = LOOKUPS[Method.NGRAM_SIMPLE].size_n, n_max

    def begin(self, text: Text, size: int) -> None:
        """Nothing is remembered."""

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

    def accept(self, n_accepted: int) -> None:
        """Nothing is remembered."""


class Mod:
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
        value = 0
        for token in tokens:
            value = (value * self._FACTOR + token) & 0xFFFFFFFFFFFFFFFF
        return value % self._ENTRIES


class Cache:
    """Counts of what followed the last 1 to 4 tokens; the longest context that is sure decides.

    Counting (common_ngram_cache_update) sees the tokens of one round alone, so contexts that reach into an
    earlier round are never counted. Of counts that tie, the one that C++ iterates over first wins.
    """

    _LEAST_SEEN, _LEAST_SHARE = (2, 2, 1, 1), (66, 50, 50, 50)  # by the length of the context; in per cent

    def __init__(self, n_max: int) -> None:
        self._n_max, self._size = n_max, LOOKUPS[Method.NGRAM_CACHE].size_n
        self._seen: dict[Text, TokenCounts] = {}
        self._read = 0

    def begin(self, text: Text, size: int) -> None:
        """Nothing is done yet."""

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

    def accept(self, n_accepted: int) -> None:
        """Nothing is remembered."""

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
