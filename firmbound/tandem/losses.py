"""What training minimises. In the ratio losses classes weigh equally, by their shares of all the data.

Shares of a batch would do for one batch that holds everything; over many small ones they would weigh a rare class by
how often it is there at all. A class that a batch lacks adds nothing to it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def class_weights(labels: Tensor, shares: Tensor) -> Tensor:
    """(n,) weights of the sequences of a batch, which sum to 1 on average: 1 / (n K share_k)."""
    return 1.0 / (len(labels) * len(shares) * shares[labels])


def over_time(values: Tensor, ends: Tensor | None) -> Tensor:
    """Mean of (n, T) values over t; with `ends` (n,), over the observations that each sequence has."""
    if ends is None:
        return values.mean(dim=1)
    seen = torch.arange(values.shape[1], device=values.device) < ends[:, None]
    return values.where(seen, 0.0).sum(dim=1) / ends


def log_sum_exp_loss(evidence: Tensor, labels: Tensor, shares: Tensor, ends: Tensor | None = None) -> Tensor:
    """LSEL: mean over t, and over sequences within each class, of log(1 + sum_{l != y} exp(-lambda_yl)).

    That is the cross entropy of softmax(evidence), from (n, T, K) evidence, (n,) labels and the classes' shares (K,) of
    all sequences. ends (n,): numbers of observations, where they differ.
    """
    n, horizon, _ = evidence.shape
    targets = labels[:, None].expand(n, horizon)
    losses = functional.cross_entropy(evidence.transpose(1, 2), targets, reduction="none")  # (n, T)
    return (class_weights(labels, shares) * over_time(losses, ends)).sum()


def ratio_loss(evidence: Tensor, labels: Tensor, shares: Tensor, ends: Tensor | None = None) -> Tensor:
    """LLLR: mean over t and the other classes l of |1 - sigmoid(lambda_yl)|, which saturates where LSEL does not."""
    classes = evidence.shape[2]
    own = evidence.gather(2, labels[:, None, None].expand(-1, evidence.shape[1], 1))
    # the class itself adds sigmoid(0) = 1/2, taken off again
    doubt = (evidence - own).sigmoid().sum(dim=2) - 0.5
    return (class_weights(labels, shares) * over_time(doubt, ends)).sum() / (classes - 1)


def multiplet_cross_entropy(log_posterior: Tensor, labels: Tensor, ends: Tensor | None = None) -> Tensor:
    """MCE: cross entropy of every window, summed over lengths 1..N+1, mean over starts and sequences.

    (n, S, N + 1, K) log posteriors of windows. It is an expectation under the data, so classes weigh as they occur: the
    posterior that it teaches holds the prior, which the formula takes off. A sequence that ends early has the windows
    it would have alone.
    """
    n, starts, places, _ = log_posterior.shape
    index = labels[:, None, None, None].expand(n, starts, places, 1)
    own = log_posterior.gather(3, index)[..., 0]
    if ends is None:
        return -own.sum() / (n * starts)
    start = torch.arange(starts, device=own.device)
    begins = start < (ends[:, None] - places + 1).clamp(min=1)  # (n, S): whole windows, or the one from the first
    there = start[:, None] + torch.arange(places, device=own.device) < ends[:, None, None]
    return -own.where(begins[:, :, None] & there, 0.0).sum() / begins.sum()
