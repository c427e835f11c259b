"""The command ``ggufspec``, also as ``python -m ggufspec``."""

import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line. Ctrl-C while it is imported, for 0.1 s, ends it as at any other time."""
    try:
        from ggufspec import cli
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    cli.main()


if __name__ == "__main__":
    main()
