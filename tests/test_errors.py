from __future__ import annotations

from ggufspec import errors


def test_exit_codes_are_unique_and_leave_clicks_own_free() -> None:
    found, queue = [], [errors.GgufspecError]
    while queue:
        found.append(queue.pop())
        queue += [cls for cls in found[-1].__subclasses__() if cls.__module__ == errors.__name__]
    codes = [cls.exit_code for cls in found]
    assert len(set(codes)) == len(codes)
    assert not {0, 2, 130, 143} & set(codes)
