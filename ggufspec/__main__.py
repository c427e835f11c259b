"""The command ``ggufspec``, also as ``python -m ggufspec``."""

import atexit
import gc
import signal
import sys
from typing import NoReturn

_OBJECTS_PER_COLLECTION = 50_000


def main() -> NoReturn:
    """Run the command line. Ctrl-C while it is imported, for 0.1 s, ends it as at any other time."""
    _spare_collections()
    try:
        from ggufspec import cli
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    cli.main()


def _spare_collections() -> None:
    """Collect garbage rarely, and never at the end: a fifth of the time of a short command.

    Importing makes 100,000 objects, none of which is garbage. By default, Python looks through the new ones
    after every 700 (2000 since 3.14), and through all of them when it ends.
    """
    gc.set_threshold(_OBJECTS_PER_COLLECTION)
    atexit.register(gc.freeze)


if __name__ == "__main__":
    main()
