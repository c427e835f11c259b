from __future__ import annotations

import re

from ggufspec import errors


def _classes() -> list[type[errors.GgufspecError]]:
    found, queue = [], [errors.GgufspecError]
    while queue:
        cls = queue.pop()
        found.append(cls)
        queue += cls.__subclasses__()
    return [cls for cls in found if cls.__module__ == errors.__name__]


def test_exit_codes_are_unique_and_leave_clicks_own_free() -> None:
    codes = [cls.exit_code for cls in _classes()]
    assert len(set(codes)) == len(codes)
    assert not {0, 2, 130, 143} & set(codes)


def test_the_tree_in_the_docstring_is_true() -> None:
    documented = dict(re.findall(r"(\w+Error)\s+(\d+)\s", errors.__doc__ or ""))
    assert documented == {cls.__name__: str(cls.exit_code) for cls in _classes()}
