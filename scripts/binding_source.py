"""Print the path of the newest llama-cpp-python's source archive, fetched now unless it is in the cache.

The environment takes the binding's Python files from it, `ggufspec build` compiles it: one download for both.
"""

from __future__ import annotations

from ggufspec.llama.source import index
from ggufspec.steps import finish


def main() -> None:
    print(finish(index.download(index.releases()[-1])))


if __name__ == "__main__":
    main()
