"""Convex function learning with a bounded number of pieces, for classes in the tens and hundreds, in torch.

With m points in p dimensions the full problem has m slopes of p numbers. Here points share slopes: `owner` gives each
point one of P pieces, and the objective of `convex_objective` is minimised over P affine functions subject to

    piece owner(i) >= every other piece, at every point x_i

This is convex, so its optimum is found whatever the start; with a piece for each point it *is* the full problem, and
coarser ownership only adds constraints. The result is a maximum of affine functions, hence convex, always.

Heights h_iq of all pieces at all points are split from the pieces that make them (consensus ADMM). Then the pieces are
a least-squares fit with one small matrix for all pieces, costs and iterations, and the heights a problem of one
unknown for each point, solved exactly.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from firmbound.arrays import Floats, Ints
from firmbound.continuation.convex_objective import ConvexFit, repaired_fit
from firmbound.devices import torch_device
from firmbound.errors import InvalidInput, NotConvergedWarning

CHECK_EVERY = 20
RELAXATION = 1.6
# Weight of the consensus against the data's curvature, times P: between 0.1 and 10 it hardly matters, as it adapts.
START = 0.3
ROOT_STEPS = 30


@dataclass(frozen=True)
class MaxAffineFit(ConvexFit):
    """A ConvexFit; no duality gap is known (nan), `residual` is the larger of the primal and the dual one, relative."""

    residual: float
    converged: bool


def fit_max_affine(
    points: Floats,
    targets: Floats,
    weights: Floats,
    regularisation: float,
    owner: Ints,
    *,
    tolerance: float = 1e-3,
    iterations: int = 5_000,
    device: str = "cpu",
) -> list[MaxAffineFit]:
    """All columns of targets (m, C) at once; owner (m,) numbers pieces from 0, each with a point of its own."""
    if len(np.unique(owner)) != int(owner.max(initial=-1)) + 1:
        raise InvalidInput("owner", "number pieces from 0 without a gap", f"{len(np.unique(owner))} pieces")
    with torch.no_grad():
        work = _Consensus(points, targets, weights, regularisation, owner, torch_device(device))
        while work.rounds < iterations:
            work.step()
            if work.rounds % CHECK_EVERY == 0 and work.check() <= tolerance:
                break
        slopes, offsets = work.pieces()
    residual = work.check()
    if residual > tolerance:
        warnings.warn(
            f"max-affine fit ended after {work.rounds} iterations with residual {residual:.2g}, wanted {tolerance:.2g}",
            NotConvergedWarning,
            stacklevel=2,
        )
    fits = []
    for column, (slope, offset) in enumerate(zip(slopes, offsets, strict=True)):
        fit = repaired_fit(
            points, targets[:, column], weights, regularisation, slope, offset, np.nan, work.rounds, owner
        )
        fits.append(MaxAffineFit(**vars(fit), residual=residual, converged=residual <= tolerance))
    return fits


class _Consensus:
    """State of the iteration, (C, ...) throughout. Targets are centred and scaled to variance 1 each."""

    def __init__(
        self, points: Floats, targets: Floats, weights: Floats, regularisation: float, owner: Ints, device: torch.device
    ) -> None:
        self.rounds = 0
        share = torch.tensor(weights / weights.sum(), dtype=torch.float64, device=device)
        raw = share.new_tensor(points)
        self.mean = share @ raw
        m, p = raw.shape
        y = share.new_tensor(np.ascontiguousarray(targets.T))
        self.centre = (y @ share)[:, None]
        spread = ((y - self.centre).square() @ share).sqrt()[:, None]
        self.spread = torch.where(spread > 0, spread, torch.ones_like(spread))
        self.y = (y - self.centre) / self.spread
        self.curvature = (2 * m * share).expand_as(self.y)
        self.price = (m * regularisation / self.spread)[:, :, None]
        self.design = torch.cat([raw - self.mean, raw.new_ones(m, 1)], dim=1)
        # One weight for heights and slopes makes the least-squares matrix the same whatever rho.
        gram = self.design.T @ self.design
        self.tie = float(gram.diagonal()[:p].mean()) or 1.0
        gram.diagonal()[:p] += self.tie
        self.inverse = torch.linalg.inv(gram + 1e-12 * gram.trace() * torch.eye(p + 1).to(gram))
        pieces = int(owner.max()) + 1
        self.owner = torch.tensor(owner, device=device)[None, :, None].expand(len(y), m, 1)
        self.rho = share.new_full((len(y), 1, 1), START / pieces)
        self.heights, self.lag = share.new_zeros(2, len(y), m, pieces)
        self.bounded, self.slope_lag = share.new_zeros(2, len(y), pieces, p)
        self.affine = share.new_zeros(len(y), pieces, p + 1)
        self.primal = self.dual = share.new_full((len(y),), torch.inf)

    def step(self) -> None:
        wanted = (self.heights - self.lag).mT @ self.design
        wanted[..., :-1] += self.tie * (self.bounded - self.slope_lag)
        self.affine = wanted @ self.inverse
        made = self.design @ self.affine.mT
        shown = torch.lerp(self.heights, made, RELAXATION) + self.lag
        slopes = torch.lerp(self.bounded, self.affine[..., :-1], RELAXATION) + self.slope_lag
        top = self._top(shown)
        heights = torch.minimum(shown, top).scatter(-1, self.owner, top)
        bounded = slopes - onto_ball(slopes, self.price / (self.rho * self.tie))
        self.lag, self.slope_lag = shown - heights, slopes - bounded
        self.rounds += 1
        if self.rounds % CHECK_EVERY == 0:
            self._residuals(made, heights, bounded)
        self.heights, self.bounded = heights, bounded

    def _top(self, shown: Tensor) -> Tensor:
        """The owner's height t at each point.

        It minimises curvature/2 (t - y)^2 + rho/2 (t - own)^2 + rho/2 sum (v - t)+^2 over the other heights v shown.
        The derivative is concave and rises, so Newton's method from below climbs to the root and ends on its segment.
        """
        own = shown.gather(-1, self.owner)
        others = shown.scatter(-1, self.owner, -torch.inf)
        base = self.curvature[..., None] * self.y[..., None] + self.rho * own
        stiffness = self.curvature[..., None] + self.rho
        top = base / stiffness
        for _ in range(ROOT_STEPS):
            above = others > top
            count = above.sum(dim=-1, keepdim=True)
            total = torch.where(above, others, 0.0).sum(dim=-1, keepdim=True)
            climbed = (base + self.rho * total) / (stiffness + self.rho * count)
            if torch.allclose(climbed, top, rtol=0.0, atol=1e-12):
                break
            top = climbed
        return climbed

    def _residuals(self, made: Tensor, heights: Tensor, bounded: Tensor) -> None:
        def norm(first: Tensor, second: Tensor) -> Tensor:
            return (first.square().sum(dim=(1, 2)) + self.tie * second.square().sum(dim=(1, 2))).sqrt()

        size = torch.maximum(norm(made, self.affine[..., :-1]), norm(heights, bounded)).clamp(min=1e-12)
        self.primal = norm(made - heights, self.affine[..., :-1] - bounded) / size
        moved = norm(heights - self.heights, bounded - self.bounded)
        self.dual = moved / torch.maximum(norm(self.lag, self.slope_lag), 1e-3 * size)

    def check(self) -> float:
        """The worst residual; on the way rho moves towards balance, ever more rarely, as convergence requires."""
        residual = float(torch.maximum(self.primal, self.dual).max())
        if self.rounds in {CHECK_EVERY << k for k in range(20)}:
            change = (self.primal / self.dual.clamp(min=1e-30)).sqrt().clamp(0.2, 5.0)[:, None, None]
            self.rho, self.lag, self.slope_lag = self.rho * change, self.lag / change, self.slope_lag / change
        return residual

    def pieces(self) -> tuple[Floats, Floats]:
        """Slopes (C, P, p) and offsets (C, P) in the units of points and targets."""
        scaled = self.affine * self.spread[:, :, None]
        slopes = scaled[..., :-1]
        offsets = scaled[..., -1] - slopes @ self.mean + self.centre
        return slopes.cpu().numpy(), offsets.cpu().numpy()


def onto_ball(columns: Tensor, radius: Tensor) -> Tensor:
    """Nearest point with sum of absolute values <= radius, for each column.  (C, P, p), (C, 1, 1) -> (C, P, p).

    What is left of a column, v - onto_ball(v, r), minimises r max |u| + |u - v|^2 / 2.
    """
    size = columns.abs()
    sorted_size = size.sort(dim=1, descending=True).values
    rank = torch.arange(1, columns.shape[1] + 1, dtype=columns.dtype, device=columns.device)[:, None]
    surplus = sorted_size.cumsum(dim=1) - radius
    kept = (sorted_size * rank > surplus).sum(dim=1, keepdim=True).clamp(min=1)
    cut = (surplus.gather(1, kept - 1) / kept).clamp(min=0.0)
    return columns.sign() * (size - cut).clamp(min=0.0)
