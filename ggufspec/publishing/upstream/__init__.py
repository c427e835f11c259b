"""Reports for llama.cpp's own project: what a bench found, by the smallest command that shows it."""

from __future__ import annotations

from ggufspec.publishing.upstream.reporting import UpstreamIssue, issue
from ggufspec.publishing.upstream.showing import UpstreamFinding, list_findings
