"""Convex function learning by the paper's two-block ADMM, all costs at once, in torch.

With slack s >= 0 and bounds L the objective is minimised subject to, for all i, j and l,

    f_i - f_j - <a_i, x_i - x_j> + s_ij = 0     scaled multiplier alpha_ij
    S_il = L_l, where S_il >= |b_il|            gamma_il
    a_il = b_il                                 eta_il

S = u + p+ + p- and b = p+ - p- in the paper's letters: u and p+- enter through these two alone. Updates 1 and 2 are the
minimum over (f, a), Algorithm 1 and Update 3 that over (s, S, b, L), Update 4 moves the multipliers. With v = alpha +
f_i - f_j - <a_i, x_i - x_j> the latter two give alpha = v^+, s = v^-, so one array of C m^2 numbers holds both. The
(f, a) block sees them only through sums against (x_j, 1), and with a eliminated its matrix is diagonal + low rank.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu_

from firmbound.arrays import Floats
from firmbound.continuation.convex_objective import ConvexFit, dual_bound, offsets_of, repaired_fit
from firmbound.devices import torch_device
from firmbound.errors import InvalidInput, NotConvergedWarning

MAX_ITERATIONS, CHECK_EVERY = 20_000, 25
# On a CPU the m x m array is worked on in slabs of this size, which stay in the cache between the passes.
SLAB_BYTES = 4 * 2**20
# rho starts at START / m^1.5: measured; the best was 2 / m^2 for m = 60, 3 / m^2 for 300 and 6 to 15 / m^2 for 1,000.
START = 0.2
# After so many rounds rho may move towards a dual residual BALANCE times the primal one (measured too), if it is off by
# more than WORTH_MOVING, by LARGEST_MOVE at most. Each move disturbs; finitely many keep the proof of convergence.
MOVES = tuple(2 * CHECK_EVERY * 2**k for k in range(10))
BALANCE, WORTH_MOVING, LARGEST_MOVE = 3.0, 2.0, 10.0


@dataclass(frozen=True)
class AdmmOptions:
    """iterations: exactly so many (None: until the residuals are below `tolerance`, MAX_ITERATIONS at most).

    tolerance: of the primal and dual residual, as shares of what the targets' spread would make them. rho: weight of
    the constraints (None: START / m^1.5); `adaptive` lets it follow the residuals, cost by cost. relaxation: above 1
    to over-relax. averaged: report the mean of all iterates, as the paper's lemma does, instead of the last. device:
    cpu, cuda or auto. dtype: float32 or float64, of the C m^2 numbers; all others are double.
    """

    iterations: int | None = None
    tolerance: float = 1e-4
    rho: float | None = None
    adaptive: bool = True
    relaxation: float = 1.6
    averaged: bool = False
    device: str = "cpu"
    dtype: str = "float64"

    def __post_init__(self) -> None:
        for name, holds, rule in (
            ("iterations", self.iterations is None or self.iterations >= 1, "be at least 1"),
            ("tolerance", self.tolerance > 0, "be positive"),
            ("rho", self.rho is None or 0 < self.rho < np.inf, "be positive"),
            ("relaxation", 1 <= self.relaxation < 2, "lie in [1, 2)"),
            ("device", self.device in ("cpu", "cuda", "auto"), "be cpu, cuda or auto"),
            ("dtype", self.dtype in ("float32", "float64"), "be float32 or float64"),
        ):
            if not holds:
                raise InvalidInput(name, rule, getattr(self, name))

    @classmethod
    def paper(cls, points: int, dims: int, regularisation: float) -> AdmmOptions:
        """As the paper runs it: 3 m plain iterations with rho = sqrt(p) lambda^2 / m."""
        return cls(iterations=3 * points, rho=dims**0.5 * regularisation**2 / points, adaptive=False, relaxation=1.0)


DEFAULT = AdmmOptions()


@dataclass(frozen=True)
class AdmmFit(ConvexFit):
    """The repaired fit and what the iteration itself came to; the residuals are shares, as in AdmmOptions.tolerance."""

    primal_residual: float
    dual_residual: float
    converged: bool


def fit_admm(
    points: Floats, targets: Floats, weights: Floats, regularisation: float, options: AdmmOptions = DEFAULT
) -> list[AdmmFit]:
    """Convex least squares on points (m, p) for every column of targets (m, C), with positive weights (m,)."""
    if targets.ndim != 2 or not len(targets) == len(points) == len(weights):
        raise InvalidInput("targets", f"have shape ({len(points)}, C), and weights as many", f"shape {targets.shape}")
    if not 0 < regularisation < np.inf:
        raise InvalidInput("regularisation", "be positive", regularisation)
    fits = _run(points, targets, weights, regularisation, options)
    late = [max(fit.primal_residual, fit.dual_residual) for fit in fits if not fit.converged]
    if late and options.iterations is None:
        which = f"ADMM left {len(late)} of {len(fits)} costs after {MAX_ITERATIONS} iterations with residuals up to"
        warnings.warn(f"{which} {max(late):.2g}, wanted {options.tolerance:.2g}", NotConvergedWarning, stacklevel=2)
    return fits


@torch.no_grad()
def _run(points: Floats, targets: Floats, weights: Floats, price: float, options: AdmmOptions) -> list[AdmmFit]:
    """Algorithm 2, for each cost until it has converged."""
    work = _Iteration(points, targets, weights / weights.sum(), price, options)
    fits: dict[int, AdmmFit] = {}
    going, last = list(range(targets.shape[1])), options.iterations or MAX_ITERATIONS
    while going:
        look = work.rounds + 1 == last or (work.rounds + 1) % CHECK_EVERY == 0
        work.step(look)
        if not look:
            continue
        good = [max(pair) <= options.tolerance for pair in work.residuals.tolist()]
        staying = [work.rounds < last and not (fine and options.iterations is None) for fine in good]
        for k in np.flatnonzero(~np.array(staying)):
            fits[going[k]] = _repair(points, targets[:, going[k]], weights, work, int(k), good[k])
        going = [cost for cost, stays in zip(going, staying, strict=True) if stays]
        work.resume(staying, options.adaptive and work.rounds in MOVES)
    return [fits[cost] for cost in sorted(fits)]


def _repair(points: Floats, targets: Floats, weights: Floats, work: _Iteration, k: int, good: bool) -> AdmmFit:
    """The iterate of the k-th cost at work made convex, with the gap that its own multipliers prove."""
    p, report = points.shape[1], np.asarray(work.report[k].cpu().numpy(), dtype=np.float64)
    values, slopes, (primal, dual) = report[:, 0], report[:, 1 : p + 1], work.residuals[k].tolist()
    # The multipliers of the constraints are rho alpha: the augmented term is rho / 2 times a square.
    bound = dual_bound(targets, weights, work.price, -report[:, p + 1], -report[:, p + 2 :])
    offsets = offsets_of(values, slopes, points)
    fit = repaired_fit(points, targets, weights, work.price, slopes, offsets, bound, work.rounds)
    return AdmmFit(**vars(fit), primal_residual=primal, dual_residual=dual, converged=good)


def slope_bounds(gamma: Tensor, size: Tensor, price: Tensor) -> Tensor:
    """Algorithm 1: the L >= 0 that minimises price * L + half the squared distances.  (C, m, p), (C,) -> (C, 1, p).

    With S and b at their best and size = |eta + a|, point i has derivative 0 in L above gamma + size, half of
    L - gamma - size down to gamma - size, L - gamma below. The sum is followed down from the top knot to -price.
    """
    knots = torch.cat([gamma + size, gamma - size], dim=1).sort(dim=1, descending=True).values
    passed = torch.arange(1, knots.shape[1], dtype=knots.dtype, device=knots.device)[:, None]
    left = price[:, None, None].expand_as(knots).clone()
    left[:, 1:] += torch.cumsum(0.5 * passed * knots.diff(dim=1), dim=1)
    last = (left > 0).sum(dim=1, keepdim=True) - 1
    return (knots.gather(1, last) - left.gather(1, last) / (0.5 * (last + 1))).clamp(min=0.0)


def _forces(points: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
    """sum_j q_ij - q_ji and sum_j q_ij (x_i - x_j) from sum_j q_ij x_j, sum_j q_ij, sum_j q_ji, one (C, m, p + 2)."""
    return sums[..., -2] - sums[..., -1], points * sums[..., -2:-1] - sums[..., :-2]


class _ValuesAndSlopes:
    """Updates 1 and 2: the exact minimum over (f, a).

    a_i = A_i^-1 (r_i + B_i f) with A_i = m x_i x_i' + sum_j x_j x_j' + I and B_i = m x_i e_i' - x_i 1' + X'. The points
    are centred; the paper drops terms in sum_i f_i too, which is right only for centred targets of equal weight.
    """

    def __init__(self, points: Tensor, share: Tensor) -> None:
        m, p = points.shape
        self.points, self.share, self.eye = points, share, torch.eye(2 * p + 2).to(points)
        outer = points[:, :, None] * points[:, None, :]
        self.inverse = torch.linalg.inv(m * outer + outer.sum(dim=0) + self.eye[:p, :p])
        along = (self.inverse @ points[:, :, None])[:, :, 0]
        height = (along * points).sum(dim=1)
        # 2 m I - 2 11' - sum_i B_i' A_i^-1 B_i = diag(diagonal) + basis core basis', and diagonal > m
        self.diagonal = 2 * m - m**2 * height
        self.basis = torch.cat([torch.ones_like(height)[:, None], height[:, None], points, along], dim=1)
        self.core = torch.zeros_like(self.eye)
        self.core[0, 0] = -2 - height.sum()
        self.core[0, 1] = self.core[1, 0] = m
        self.core[0, 2 : p + 2] = self.core[2 : p + 2, 0] = along.sum(dim=0)
        self.core[2 : p + 2, 2 : p + 2] = -self.inverse.sum(dim=0)
        self.core[2 : p + 2, p + 2 :] = self.core[p + 2 :, 2 : p + 2] = -m * self.eye[:p, :p]

    def set_rho(self, rho: Tensor) -> None:
        """Woodbury's small matrix for each cost, all that depends on rho (C,)."""
        self.stiffness = 2 * self.share / rho[:, None] + self.diagonal
        small = self.eye + self.core @ (self.basis.T @ (self.basis / self.stiffness[:, :, None]))
        self.correction = torch.linalg.solve(small, self.core.expand_as(small)).mT

    def minimise(self, sums: Tensor, slopes: Tensor, data: Tensor) -> tuple[Tensor, Tensor]:
        """f (C, m) and a (C, m, p) from the sums of s + alpha, b - eta (C, m, p) and 2 w y / rho (C, m)."""
        m, (push, pull) = len(self.points), _forces(self.points, sums)
        solved = torch.einsum("iab,cib->cia", self.inverse, pull + slopes)
        along = (self.points * solved).sum(dim=2)
        load = data - push + m * along - along.sum(dim=1, keepdim=True) + solved.sum(dim=1) @ self.points.T
        load /= self.stiffness
        values = load - ((load @ self.basis)[:, None, :] @ self.correction @ self.basis.T)[:, 0] / self.stiffness
        lift = (m * values - values.sum(dim=1, keepdim=True))[..., None] * self.points + (values @ self.points)[:, None]
        return values, solved + torch.einsum("iab,cib->cia", self.inverse, lift)


# What _Iteration holds for each cost, cost first. alpha and slack are sums as `_forces` takes, data 2 w y, bounded b,
# loose S - L, scales residuals worth 1, report is f, a and the forces of the multipliers rho alpha.
PER_COST = ("data", "scales", "rho", "alpha", "slack", "bounded", "eta", "gamma", "loose", "report", "residuals")


class _Iteration:
    """The state of Algorithm 2 and its steps."""

    def __init__(self, points: Floats, targets: Floats, shares: Floats, price: float, options: AdmmOptions) -> None:
        device = torch_device(options.device)
        self.price, self.relaxation, self.averaged, self.rounds = price, options.relaxation, options.averaged, 0
        (m, p), c, kind = points.shape, targets.shape[1], getattr(torch, options.dtype)
        self.points = torch.tensor(points - points.mean(axis=0), dtype=torch.float64, device=device)
        self.against = torch.cat([self.points, self.points.new_ones(m, 1)], dim=1)
        share, y = self.points.new_tensor(shares), self.points.new_tensor(targets.T)
        # Constant targets have no spread to measure residuals by: rounding then.
        apart = torch.maximum((y - (y @ share)[:, None]).abs(), 1e-9 * y.abs() + torch.finfo(y.dtype).eps)
        self.scales = torch.stack([m * (apart.square() @ share).sqrt(), (2 * share * apart).norm(dim=1)], dim=1)
        self.data, self.rho = 2 * share * y, y.new_full((c,), options.rho or START / m**1.5)
        self.alpha, self.slack = y.new_zeros(2, c, m, p + 2)
        self.bounded, self.eta, self.gamma, self.loose = y.new_zeros(4, c, m, p)
        self.report, self.residuals = y.new_zeros(c, m, 2 * p + 2), y.new_zeros(c, 2)
        height = max(1, SLAB_BYTES // (8 * c * m)) if device.type == "cpu" else m
        self.rows = [slice(start, min(start + height, m)) for start in range(0, m, height)]
        self.slabs = [self.alpha.new_zeros(c, rows.stop - rows.start, m, dtype=kind) for rows in self.rows]
        self.block = _ValuesAndSlopes(self.points, share)
        self.block.set_rho(self.rho)

    def step(self, look: bool) -> None:
        """Updates 1 to 4. With `look` the residuals are taken, and `resume` must come before the next step."""
        rho, slack, bounded = self.rho[:, None, None], self.slack, self.bounded
        values, slopes = self.block.minimise(self.alpha + slack, bounded - self.eta, self.data / rho[:, 0])
        # f_i - f_j - <a_i, x_i - x_j> is a product of thin matrices, (a_i, f_i - <a_i, x_i>, -1) and (x_j, 1, f_j).
        offsets = values - (slopes * self.points).sum(dim=2)
        left = self.relaxation * torch.cat([slopes, torch.stack([offsets, -torch.ones_like(offsets)], dim=2)], dim=2)
        right = torch.cat([self.against.T.expand(len(values), -1, -1), values[:, None, :]], dim=1)
        added = torch.cat([left @ (right @ self.against), right.mT @ left.sum(dim=1)[..., None]], dim=2)
        v = self.alpha + (self.relaxation - 1) * slack + added
        sums, broken = self._sweep(left, right, look)
        self.slack = sums - v if look else (sums - v) / self.relaxation
        self.alpha = v + self.slack
        self._bound(slopes)
        self.rounds += 1
        if look or self.averaged:
            push, pull = _forces(self.points, self.alpha)
            report = torch.cat([values[..., None], slopes, rho * push[..., None], rho * pull], dim=2)
            self.report = self.report + (report - self.report) / (self.rounds if self.averaged else 1)
        if look:
            push, pull = _forces(self.points, self.slack - slack)
            moved = torch.cat([push[..., None], pull + self.bounded - bounded], dim=2).square().sum(dim=(1, 2))
            torn = torch.cat([slopes - self.bounded, self.loose], dim=2).square().sum(dim=(1, 2))
            self.residuals = torch.stack([(broken + torn).sqrt(), self.rho * moved.sqrt()], dim=1) / self.scales

    def _sweep(self, left: Tensor, right: Tensor, look: bool) -> tuple[Tensor, Tensor]:
        """v += left right. If `look`: sums of v^+, squared primal residual. If not: v is folded, sums of that, 0."""
        sums, broken = torch.zeros_like(self.alpha), torch.zeros_like(self.rho)
        left, right, against = (x.to(self.slabs[0].dtype) for x in (left, right, self.against))
        for rows, slab in zip(self.rows, self.slabs, strict=True):
            slab.baddbmm_(left[:, rows], right)
            if look:
                part = slab.clamp(min=0.0)
                broken += (left[:, rows] @ right / self.relaxation + part - slab).square().sum(dim=(1, 2))
            else:
                # Over-relaxation starts the next v from alpha - (1 - relaxation) s, which is v folded at 0.
                part = leaky_relu_(slab, 1.0 - self.relaxation)
            sums[:, rows, :-1] = (part @ against).to(sums.dtype)
            sums[..., -1] += part.sum(dim=1)
        return sums, broken

    def _bound(self, slopes: Tensor) -> None:
        """Algorithm 1, and Updates 3 and 4 for b, S and their multipliers."""
        keep = 1.0 - self.relaxation
        pulled, shifted = self.relaxation * slopes + keep * self.bounded + self.eta, self.gamma - keep * self.loose
        bounds = slope_bounds(shifted, pulled.abs(), self.price / self.rho)
        u = (bounds - shifted - pulled.abs()).clamp(min=0.0)
        # The paper takes a negative part for p-; p+ and p- mirror each other.
        up, down = (0.5 * (bounds - shifted - u + sign * pulled).clamp(min=0.0) for sign in (1.0, -1.0))
        self.bounded, self.loose = up - down, u + up + down - bounds
        self.eta, self.gamma = pulled - self.bounded, shifted + self.loose

    def resume(self, staying: list[bool], move: bool) -> None:
        """After a look: drop costs that are done, let rho follow the residuals if `move`, fold v for the next step."""
        if not all(staying):
            self.slabs = [slab[staying] for slab in self.slabs]
            for name in PER_COST:
                setattr(self, name, getattr(self, name)[staying])
        change = torch.ones_like(self.rho)
        if move:
            wanted = (BALANCE * self.residuals[:, 0] / self.residuals[:, 1].clamp(min=1e-300)).sqrt()
            moving = (wanted > WORTH_MOVING) | (wanted < 1 / WORTH_MOVING)
            change = torch.where(moving, wanted.clamp(1 / LARGEST_MOVE, LARGEST_MOVE), change)
        for slab in self.slabs:
            if move:  # s and the multipliers rho alpha stay as they are
                slab.copy_(torch.where(slab > 0, slab / change[:, None, None].to(slab.dtype), slab))
            leaky_relu_(slab, 1.0 - self.relaxation)
        self.alpha, self.eta, self.gamma = (x / change[:, None, None] for x in (self.alpha, self.eta, self.gamma))
        self.rho = self.rho * change
        self.block.set_rho(self.rho)
