"""Counts of tokens, iterated over in the order of a C++ hash map: it decides which of a tie is taken."""

from __future__ import annotations

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
            for known in before:
                self._insert(known)
        self._counts[token] = 1
        self._insert(token)

    def first_of_most(self) -> tuple[int, int]:
        """Return the token with the largest count, the first in order of those, and that count."""
        token = max(self._order, key=self._counts.__getitem__)
        return token, self._counts[token]

    def _insert(self, token: int) -> None:
        bucket = token % self._buckets
        same = (place for place, known in enumerate(self._order) if known % self._buckets == bucket)
        self._order.insert(next(same, 0), token)
