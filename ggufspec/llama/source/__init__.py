"""Where llama.cpp's source comes from: the package index, git, or a local folder."""
