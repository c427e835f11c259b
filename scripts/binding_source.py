"""Print the path of the newest llama-cpp-python's source archive, fetched now unless it is in the cache.

The environment takes the binding's Python files from it, `ggufspec build` compiles it: one download for both.
"""

from __future__ import annotations

from ggufspec.llama.source import index


def main() -> None:
    work = index.download(index.newest())
    while True:
        try:
            next(work)
        except StopIteration as end:
            print(end.value)
            return


if __name__ == "__main__":
    main()
