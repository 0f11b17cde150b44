"""The TANDEM formula: posteriors of short windows become evidence of whole prefixes, in log space.

For a series that remembers N observations,

    e_t = log pi(x_1..t) - log prior                                                       t <= N + 1
    e_t = e_{t-1} + log pi(x_{t-N}..x_t) - log pi(x_{t-N}..x_{t-1})                        t >  N + 1

with the posterior of an empty window, at N = 0, the prior. Differences of e are the paper's lambda_kl, with its second
sum and prior term corrected. The oblivious variant forgets what left the window:
e_t = log pi(x_{t-N}..x_t) - log prior.
"""

from __future__ import annotations

import torch
from torch import Tensor


def evidence_of_windows(log_posterior: Tensor, log_prior: Tensor, *, oblivious: bool = False) -> Tensor:
    """(n, S, N + 1, K) log posteriors -> (n, T, K) evidence, T = S + N.

    log_posterior[:, s, j] is of the window that starts at observation s + 1 and holds j + 1 observations.
    """
    order = log_posterior.shape[2] - 1
    beginning = log_posterior[:, 0] - log_prior  # t = 1..N+1: prefixes are windows that start at the first
    whole = log_posterior[:, 1:, order]
    if oblivious:
        return torch.cat([beginning, whole - log_prior], dim=1)
    before = log_posterior[:, 1:, order - 1] if order else log_prior
    return torch.cat([beginning, beginning[:, -1:] + torch.cumsum(whole - before, dim=1)], dim=1)
