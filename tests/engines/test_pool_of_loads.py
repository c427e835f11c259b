"""The loads that an engine keeps: the one that was used longest ago is ended first."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from ggufspec.engines.engine import Pool


@dataclass
class Load:
    is_usable: bool = True

    def close(self) -> None:
        self.is_usable = False


def _pool(capacity: int | None, count: int) -> tuple[Pool[int, Load], list[Load]]:
    pool, loads = Pool[int, Load](capacity=capacity), [Load() for _ in range(count)]
    for key, load in enumerate(loads):
        pool.make_room()
        pool.put(key, load)
    return pool, loads


@pytest.mark.parametrize(("capacity", "kept"), [(None, [0, 1, 2]), (2, [1, 2]), (1, [2]), (0, [2])])
def test_no_more_loads_are_kept_than_there_is_room_for(capacity: int | None, kept: list[int]) -> None:
    pool, loads = _pool(capacity, 3)
    assert [key for key in range(3) if pool.holds(key)] == kept
    assert [key for key, load in enumerate(loads) if load.is_usable] == kept


def test_a_use_keeps_a_load_and_a_look_does_not() -> None:
    pool, loads = _pool(2, 2)
    assert pool.get(0) is loads[0]
    assert pool.holds(1)
    pool.make_room()
    assert [load.is_usable for load in loads] == [True, False]


def test_a_load_that_is_not_usable_is_not_returned() -> None:
    pool, loads = _pool(None, 2)
    loads[0].is_usable = False
    assert not pool.holds(0)
    assert pool.get(0) is None
    pool.put(2, loads[1])
    pool.forget(loads[1])
    assert (pool.get(1), pool.get(2), loads[1].is_usable) == (None, None, False)


def test_all_loads_end_at_once() -> None:
    together = threading.Barrier(3, timeout=60)

    class Slow(Load):
        def close(self) -> None:
            together.wait()
            self.is_usable = False

    pool, loads = Pool[int, Load](capacity=None), [Slow() for _ in range(3)]
    for key, load in enumerate(loads):
        pool.put(key, load)
        pool.put(10 + key, load)  # the same under another key is closed once
    pool.clear()
    assert not any(load.is_usable for load in loads)
    assert not any(pool.holds(key) for key in range(3))


def test_an_error_of_one_load_is_raised_after_all_have_ended() -> None:
    class Broken(Load):
        def close(self) -> None:
            raise OSError("no")

    pool, good = Pool[int, Load](capacity=None), Load()
    pool.put(0, Broken())
    pool.put(1, good)
    with pytest.raises(OSError, match="no"):
        pool.clear()
    assert not good.is_usable
