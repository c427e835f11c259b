"""For every Python with this folder in PYTHONPATH, other programs seem to use no processor.

Real runs share the machine with other tests. Without this, each run would count as disturbed and its speed
would be left out of every table.
"""

import sys
from contextlib import suppress

if "ggufspec.engines.library.worker" not in sys.orig_argv:  # it never asks, and is started hundreds of times
    with suppress(ImportError):  # an environment that a test has made
        import psutil

        _AT_START = psutil.cpu_times()
        setattr(psutil, "cpu_times", lambda *_args, **_options: _AT_START)  # noqa: B010  # typed as overloaded
