"""The network to workers that hold a target, and what each pass of the target pays for it."""

from __future__ import annotations

from dataclasses import dataclass

_FLOAT = 4  # bytes of a value of hidden states and logits


@dataclass(frozen=True, kw_only=True)
class Network:
    """The network to workers that evaluate the target.

    Attributes:
        rtt_s: seconds of a round trip.
        bytes_per_s: bandwidth; None where the time of the data is left out.
        round_trips: of each pass of the target, over all workers.
        token_bytes: that each token of a pass sends and gets, over all workers.
    """

    rtt_s: float
    bytes_per_s: float | None = None
    round_trips: float = 1.0
    token_bytes: float = 0.0

    def pass_s(self, n_tokens: int) -> float:
        """Return the seconds that a pass with so many tokens spends on the network.

        A pass waits for each of its round trips. Verification of a draft is one pass, as is one token
        without drafting: that is why drafting gains more over a network.
        """
        data_s = 0.0 if self.bytes_per_s is None else n_tokens * self.token_bytes / self.bytes_per_s
        return self.round_trips * self.rtt_s + data_s


def bytes_of_token(n_embd: int, n_vocab: int) -> int:
    """Return what a token sends to a worker that holds all layers and the output, and gets from it.

    These are its embedding, which is computed where the program runs, and its logits.

    Args:
        n_embd: the width of the target.
        n_vocab: tokens of its vocabulary.
    """
    return _FLOAT * (n_embd + n_vocab)
