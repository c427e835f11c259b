"""llama.cpp's n-gram maps (common/ngram-map.cpp): keys that come again, and how good their drafts were."""

from __future__ import annotations

from dataclasses import dataclass, field

from ggufspec.domain import Method
from ggufspec.forecast.trace.ngram_methods import Text, last_position
from ggufspec.llama.command import LOOKUPS

_FACTOR, _ENTRIES = 2654435761, 262144
_VALUES = 4  # different continuations that are kept of a key


@dataclass(kw_only=True)
class _Value:
    """A continuation of a key: its place in the text, how often it was met, how long drafts of it may be."""

    place: int
    seen: int
    longest: int


@dataclass(kw_only=True)
class _Key:
    """What is known of a key: its continuations, and up to where the text was searched for them."""

    values: list[_Value]
    searched: int = 0


@dataclass(kw_only=True)
class Map:
    """A map of keys alone (``ngram-map-k``) or with four continuations each (``ngram-map-k4v``).

    A draft of a key is never longer than what was accepted of its last one, so a key whose draft was rejected
    whole drafts nothing ever after.
    """

    method: Method
    n_max: int
    _begun: int = 0
    _indexed: int = 0  # the last place whose key has its hash in the index
    _index: dict[int, int] = field(default_factory=dict)  # hash -> place; a taken one is not overwritten
    _keys: dict[Text, _Key] = field(default_factory=dict)
    _last: _Value | None = None  # of the last draft

    def begin(self, text: Text, size: int) -> None:
        """Remember where the answer begins: keys that reach over it are not looked for."""
        self._begun = size

    def draft(self, text: Text, end: int) -> Text:
        """Draft what followed the key elsewhere, as far as such drafts were good before."""
        self._last = None
        n_known, size = (
            end - 1,
            LOOKUPS[self.method].size_n,
        )  # the last token is not in llama.cpp's history yet
        if n_known < 2 * size + self.n_max:
            return ()
        wanted = text[end - size : end]
        position = self._find(text, wanted, n_known)
        self._note(text, size, n_known)
        if not position:
            return ()
        key = self._keys.get(wanted)
        if key is None:
            first = [_Value(place=0, seen=0, longest=self.n_max)] if self._keeps_keys_only else []
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
        position = self._index.get(
            _hash(wanted), 0
        )  # 0 means none, as in llama.cpp: the first token is no match
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

    def _choose(self, text: Text, wanted: Text, key: _Key, last: int) -> _Value | None:
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
            key.values.append(_Value(place=position, seen=1, longest=self.n_max))


def _hash(tokens: Text) -> int:
    value = 0
    for token in tokens:
        value = (value * _FACTOR + token) & 0xFFFFFFFF
    return value % _ENTRIES
