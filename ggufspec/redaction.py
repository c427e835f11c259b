"""Text without what gives access: credentials and queries of addresses, authorization headers, tokens.

A query may hold a signature under any name (X-Amz-Signature, Policy, sig, …), so none of it is kept.
"""

from __future__ import annotations

import logging
import re

_HIDDEN = "***"
_PATTERNS = (
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/?#'\"<>]*@", re.IGNORECASE), rf"\1{_HIDDEN}@"),
    (re.compile(r"\?[\w.~%+\[\]-]+=[^\s'\"<>]*"), f"?{_HIDDEN}"),
    (
        re.compile(
            r"\b((?:proxy-)?authorization|(?:set-)?cookie|x-[\w-]*(?:token|signature|credential)[\w-]*)"
            r"(['\"]?\s*[:,=]\s*b?['\"]?)[^'\"\r\n]+",
            re.IGNORECASE,
        ),
        rf"\1\2{_HIDDEN}",
    ),
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{6,}", re.IGNORECASE), rf"\1 {_HIDDEN}"),
    (re.compile(r"\b(hf|api_org)_[A-Za-z0-9]{16,}"), rf"\1_{_HIDDEN}"),
)


def redact(text: str) -> str:
    """Return a text in which ``***`` stands for everything that gives access to something."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


class Redacting(logging.Filter):
    """Lets every record pass, without what gives access."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace the record's message, and the text of its exception."""
        record.msg, record.args = redact(record.getMessage()), ()
        if record.exc_info:
            record.exc_text = redact(logging.Formatter().formatException(record.exc_info))
        return True
