"""Workers: llama.cpp's programs that lend the devices of their machine over the network (RPC)."""

from __future__ import annotations

from ggufspec.llama.rpc.workers import WorkerReport
