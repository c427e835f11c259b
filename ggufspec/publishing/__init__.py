"""Benches for others: bundles that are redacted, and that can be verified from their raw logs."""

from __future__ import annotations

from ggufspec.publishing.bundles import (
    Bundle,
    Verification,
    describe_bundle,
    describe_verification,
    publish,
    read_bundle,
    verify,
)
from ggufspec.publishing.redacting import Identity, read_identity
