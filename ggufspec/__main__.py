"""``python -m ggufspec`` is the same as ``ggufspec``."""

from ggufspec.cli import main

main()
