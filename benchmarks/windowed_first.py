"""The straightforward network that ours is measured against: windows are cut first, then projected and read one by one.

Same function of the same weights; torch's own LSTM, and attention over each window as if it were a sequence of its own.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from firmbound.tandem.attention import Block, WindowTransformer
from firmbound.tandem.integrators import WindowLSTM
from firmbound.tandem.network import TandemNetwork


class WindowedFirst(nn.Module):
    def __init__(self, network: TandemNetwork) -> None:
        super().__init__()
        self.order, self.project, self.classify = network.options.order, network.project, network.classify
        integrate = network.integrate
        self.read: nn.Module = _PlainLSTM(integrate) if isinstance(integrate, WindowLSTM) else _Plain(integrate)

    def forward(self, features: Tensor) -> Tensor:
        """(n, T, d) -> (n, T - N, N + 1, K)."""
        cut = features.unfold(1, self.order + 1, 1).transpose(2, 3)
        n, starts, places, width = cut.shape
        projected = self.project(cut.reshape(n * starts, places, width))
        return torch.log_softmax(self.classify(self.read(projected)), dim=-1).view(n, starts, places, -1)


class _PlainLSTM(nn.Module):
    def __init__(self, ours: WindowLSTM) -> None:
        super().__init__()
        self.lstm = nn.LSTM(
            ours.from_input.in_features, ours.outputs, batch_first=True, dtype=ours.from_input.weight.dtype
        )
        self.activation = ours.activation
        hidden = ours.outputs
        # torch's gates are write, keep, new, show
        order = torch.cat([torch.arange(k * hidden, (k + 1) * hidden) for k in (0, 1, 3, 2)])
        gates = ours.from_input
        self.lstm.load_state_dict(
            {
                "weight_ih_l0": gates.weight[order],
                "bias_ih_l0": gates.bias[order],
                "weight_hh_l0": ours.from_state.weight[order],
                "bias_hh_l0": torch.zeros_like(gates.bias),
            }
        )

    def forward(self, projected: Tensor) -> Tensor:
        result: Tensor = self.activation(self.lstm(projected)[0])
        return result


class _Plain(nn.Module):
    def __init__(self, ours: WindowTransformer) -> None:
        super().__init__()
        self.ours = ours

    def forward(self, projected: Tensor) -> Tensor:
        places = projected.shape[1]
        seen = projected.transpose(0, 1).unsqueeze(1)  # (places, 1, windows, h)
        given = seen + self.ours.place[:places, None, None]
        for block in self.ours.blocks:
            assert isinstance(block, Block)
            attended = block.attention.within_windows(block.before_attention(seen))
            seen = given = block(given, attended)
        result: Tensor = self.ours.mix(seen).squeeze(1).transpose(0, 1)
        return result
