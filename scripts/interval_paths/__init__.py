"""The paths of ``scripts/validate_intervals.py``: kinds of benches with a known truth, simulated.

One module for each family of paths. Each of them has ``PATHS``; a path makes the stored records of a bench
(``stored``), asks the code that prints intervals and verdicts for them, and says what came out (``paths``).
"""
