"""Benches for others: bundles that are redacted, and that can be verified from their raw logs."""

from __future__ import annotations

from ggufspec.publishing.publishing import (
    Bundle,
    describe_bundle,
    describe_verification,
    publish,
)
from ggufspec.publishing.redacting import Identity, read_identity
from ggufspec.publishing.verifying import Verification, read_bundle, verify
