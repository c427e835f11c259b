"""Compile llama.cpp: choose tools and backend, configure, build, and check that the result runs."""
