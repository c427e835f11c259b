"""Logs of llama.cpp's programs, of any era, to samples."""
