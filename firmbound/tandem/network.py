"""From features to log posteriors of windows: each observation is projected once, then windows are read."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from firmbound.tandem.attention import WindowTransformer
from firmbound.tandem.integrators import ACTIVATIONS, WindowLSTM
from firmbound.tandem.options import NetworkOptions


class TandemNetwork(nn.Module):
    """Projection, temporal integrator, and the log posterior of every window.  (n, T, d) -> (n, T - N, N + 1, K)."""

    def __init__(self, dimension: int, classes: int, options: NetworkOptions) -> None:
        super().__init__()
        self.dimension, self.classes, self.options = dimension, classes, options
        self.project = nn.Sequential(nn.Linear(dimension, options.projection), ACTIVATIONS[options.activation]())
        # A Transformer leaves out numbers within its blocks, an LSTM before and after it.
        self.dropout = nn.Dropout(options.dropout if options.integrator == "lstm" else 0.0)
        width, order = options.projection, options.order
        self.integrate: WindowLSTM | WindowTransformer
        if options.integrator == "lstm":
            self.integrate = WindowLSTM(width, options.hidden, order, options.output_activation)
        else:
            self.integrate = WindowTransformer(
                width,
                order,
                blocks=options.blocks,
                heads=options.heads,
                feed_forward=options.feed_forward,
                units=options.units,
                dropout=options.dropout,
            )
        self.classify = nn.Linear(self.integrate.outputs, classes)

    def forward(self, features: Tensor) -> Tensor:
        return self.of_projected(self.project(features))

    def of_projected(self, projected: Tensor) -> Tensor:
        """(n, T, h) -> (n, T - N, N + 1, K)."""
        seen = self.integrate(self.dropout(projected).transpose(0, 1).contiguous())
        by_place = self.classify(self.dropout(seen))  # (N + 1, S, n, K)
        return torch.log_softmax(by_place, dim=-1).permute(2, 1, 0, 3)
