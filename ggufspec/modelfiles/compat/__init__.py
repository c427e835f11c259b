"""May this drafter draft for this target? llama.cpp's own rules, from two headers alone."""
