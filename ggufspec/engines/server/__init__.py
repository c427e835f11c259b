"""The server engine: llama-server on loopback, started, asked over HTTP, and stopped."""
