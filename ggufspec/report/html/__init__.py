"""Benches as HTML: a page that needs no network, and what notebooks show."""
