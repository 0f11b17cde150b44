"""Gaussian processes as an estimator of continuation risk (method "gp")."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from firmbound.arrays import Floats
from firmbound.continuation.compression import Compression, bin_line, split_cells
from firmbound.continuation.kernel_surface import SMOOTHNESS, KernelName, KernelSurface
from firmbound.continuation.risk_frame import RiskFrame
from firmbound.continuation.surface import RiskSurface, Statistic, check_targets
from firmbound.devices import Device
from firmbound.errors import InvalidInput

if TYPE_CHECKING:
    from firmbound.continuation.risk_cells import RiskCells

ProcessSolver = Literal["collapsed", "variational"]
# Inducing points and weighted points of the collapsed solver; measured in benchmarks/results/process_options.json.
LINE, PLANE = (40, 300), (100, 1_000)
# How far a deviation of the past counts beside one of the belief: risks bend more slowly along it.
RELEVANCE = 0.3
# Deviation of inputs, which are posteriors, softened or not, or ratios, below which they do not differ.
LEAST_SPREAD = 0.01
# Of a share, where no sequence says anything: deciding at random regrets twice what deciding well does near certainty.
UNKNOWN_SHARE = 0.5
# The variational solver divides by the scale of single sequences; more certain ones than this are left out.
SMALLEST_SCALE = 1e-9


@dataclass(frozen=True)
class ProcessOptions:
    """How a Gaussian process is fitted; risks are in units of the largest penalty.

    solver: "collapsed" (closed form, all costs at once) or "variational" (the paper's). statistic: what the kernel
    sees; "memory" is the ratios with summaries of the past beside, "ranked" the largest posteriors, whatever classes
    they are of; None: what suits the problem ("llr", for a fitter made by hand). temperature: of the ratios on their
    way into the kernel, see RiskFrame; None: the ratios themselves. inducing, points: inducing points and weighted
    points a time step; None: what measured best. scaling: model "share"s of the largest possible risk, or "risk"s as
    the paper does. noise: "local" levels, or "uniform". points and noise are the collapsed solver's alone, epochs,
    batch and learning_rate the variational one's. device: where torch computes.
    """

    solver: ProcessSolver = "collapsed"
    statistic: Statistic | None = None
    kernel: KernelName = "rbf"
    temperature: float | None = 3.0
    inducing: int | None = None
    points: int | None = None
    scaling: Literal["share", "risk"] = "share"
    noise: Literal["local", "uniform"] = "local"
    epochs: int = 30
    batch: int = 2_000
    learning_rate: float = 0.01
    device: Device = "cpu"

    def __post_init__(self) -> None:
        for name, holds, rule in (
            ("solver", self.solver in get_args(ProcessSolver), f"be one of {get_args(ProcessSolver)}"),
            ("statistic", self.statistic in (None, *get_args(Statistic)), f"be one of {get_args(Statistic)}"),
            ("kernel", self.kernel in SMOOTHNESS, f"be one of {tuple(SMOOTHNESS)}"),
            ("temperature", self.temperature is None or _is_number(self.temperature, 1), "be at least 1, or None"),
            ("inducing", self.inducing is None or _is_count(self.inducing, 1), "be a whole number from 1, or None"),
            ("points", self.points is None or _is_count(self.points, 2), "be a whole number from 2, or None"),
            ("scaling", self.scaling in ("share", "risk"), "be 'share' or 'risk'"),
            ("noise", self.noise in ("local", "uniform"), "be 'local' or 'uniform'"),
            ("epochs", _is_count(self.epochs, 1), "be a whole number from 1"),
            ("batch", _is_count(self.batch, 1), "be a whole number from 1"),
            ("learning_rate", _is_number(self.learning_rate, 0) and self.learning_rate > 0, "be positive"),
            ("device", self.device in ("cpu", "cuda", "auto"), "be cpu, cuda or auto"),
        ):
            if not holds:
                raise InvalidInput(name, rule, repr(getattr(self, name)))

    @classmethod
    def paper(cls, statistic: Statistic = "llr", kernel: KernelName = "rbf", inducing: int = 200) -> ProcessOptions:
        """The settings of the paper."""
        return cls("variational", statistic, kernel, temperature=None, inducing=inducing, scaling="risk")

    def frame(self, prior: Floats, unit_penalty: Floats) -> RiskFrame:
        temperature, scaled = self.temperature or math.inf, self.scaling == "share"
        return RiskFrame.create(self.statistic or "llr", prior, unit_penalty, temperature=temperature, scaled=scaled)


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)


def _is_number(value: object, least: float) -> bool:
    return (
        isinstance(value, int | float | np.number) and not isinstance(value, bool) and bool(least <= value < math.inf)
    )


@dataclass(frozen=True)
class ProcessFitter:
    """Gaussian process regression of the share of the largest possible risk, for any number of classes."""

    frame: RiskFrame
    options: ProcessOptions = ProcessOptions()
    seed: int = 0

    @property
    def statistic(self) -> Statistic:
        return self.frame.statistic

    def prepare(self, statistic: Floats) -> PreparedCells | PreparedCertain | PreparedSequences:
        belief, inputs = self.frame.belief(statistic), self.frame.inputs(statistic)
        scale, floor = self.frame.scale(belief), self.frame.floor(belief)
        if self.options.solver == "variational":
            return PreparedSequences(self.frame, self.options, self.seed, inputs, scale, floor)
        memory = statistic[:, self.frame.classes :] if self.frame.summaries else None
        line = self.frame.classes == 2 and memory is None
        inducing, points = LINE if line else PLANE
        points = self.options.points or max(points, 3 * (self.options.inducing or 0))
        cells = bin_line(belief, points) if line else split_cells(belief, points, beside=memory)
        return self._prepare_cells(cells, inputs, scale, floor, memory, self.options.inducing or inducing)

    def _prepare_cells(
        self,
        cells: Compression,
        inputs: Floats,
        scale: Floats,
        floor: Floats,
        memory: Floats | None,
        inducing: int,
    ) -> PreparedCells | PreparedCertain:
        from firmbound.continuation.risk_cells import RiskCells

        kept = RiskCells.of(cells, inputs, scale, floor, memory)
        if kept is None:
            return PreparedCertain(self.frame)
        centre, projection = standardisation(kept.inputs, kept.first, self.frame.summaries)
        points = (kept.inputs - centre) @ projection
        return PreparedCells(
            self.frame, self.options, kept, centre, projection, points, kept.spread_points(points, inducing)
        )


@dataclass(frozen=True)
class PreparedCells:
    """Weighted cells for the collapsed solver: standardised points (k, d) and inducing points (m, d)."""

    frame: RiskFrame
    options: ProcessOptions
    cells: RiskCells
    centre: Floats
    projection: Floats
    points: Floats
    inducing: Floats

    def fit(self, next_risk: Floats, later: RiskSurface | None = None) -> KernelSurface:
        """Start from the kernel at t + 1, which is nearly right, if there is one."""
        from firmbound.continuation.sparse_process import fit_sparse_process

        targets = check_targets(next_risk)
        start = None
        if isinstance(later, KernelSurface) and later.amplitude.shape == targets.shape[1:]:
            start = float(later.lengthscale[0]), later.amplitude
        options = self.options
        data = self.cells.targets(self.points, targets, options.noise == "local")
        fit = fit_sparse_process(data, self.inducing, options.kernel, start, options.device)
        directions = np.concatenate([fit.directions, fit.directions.sum(axis=0, keepdims=True)])
        return KernelSurface(
            frame=self.frame,
            smoothness=SMOOTHNESS[options.kernel],
            centre=self.centre[None],
            projection=self.projection[None] / fit.lengthscale,
            inducing=self.inducing[None] / fit.lengthscale,
            weights=fit.weights,
            mean=fit.mean,
            amplitude=fit.amplitude,
            constant=fit.amplitude,
            directions=directions[None],
            sharpness=fit.sharpness,
            lengthscale=np.array([fit.lengthscale]),
            noise=fit.noise,
            jitter=np.full(len(fit.mean), fit.jitter),
        )


@dataclass(frozen=True)
class PreparedCertain:
    """All sequences are certain: nothing to learn but what the frame knows."""

    frame: RiskFrame

    def fit(self, next_risk: Floats, later: RiskSurface | None = None) -> KernelSurface:
        costs = check_targets(next_risk).shape[1]
        inputs = self.frame.dimension
        return KernelSurface(
            frame=self.frame,
            smoothness=SMOOTHNESS["rbf"],
            centre=np.zeros((1, inputs)),
            projection=np.eye(inputs)[None],
            inducing=np.zeros((1, 1, inputs)),
            weights=np.zeros((costs, 1)),
            mean=np.full(costs, UNKNOWN_SHARE),
            amplitude=np.full(costs, UNKNOWN_SHARE),
            constant=np.zeros(costs),
            directions=np.zeros((1, 2, 1)),
            sharpness=np.zeros((costs, 1)),
            lengthscale=np.ones(1),
            noise=np.zeros(costs),
            jitter=np.zeros(costs),
        )


@dataclass(frozen=True)
class PreparedSequences:
    """All sequences as they are, for the variational solver."""

    frame: RiskFrame
    options: ProcessOptions
    seed: int
    inputs: Floats
    scale: Floats
    floor: Floats

    def fit(self, next_risk: Floats, later: RiskSurface | None = None) -> KernelSurface:
        from firmbound.continuation.variational_process import Training, fit_variational_process

        targets = check_targets(next_risk)
        kept = self.scale > (SMALLEST_SCALE if np.any(self.scale > SMALLEST_SCALE) else -1.0)
        centre, projection = standardisation(self.inputs[kept], np.ones(int(kept.sum())), self.frame.summaries)
        shares = (targets - self.floor[:, None])[kept] / np.maximum(self.scale[kept], SMALLEST_SCALE)[:, None]
        mean, deviation = shares.mean(axis=0), shares.std(axis=0)
        deviation = np.where(deviation > 1e-12, deviation, 1.0)
        options = self.options
        training = Training(options.inducing or 200, options.epochs, options.batch, options.learning_rate, self.seed)
        points = (self.inputs[kept] - centre) @ projection
        fit = fit_variational_process(
            points, (shares - mean) / deviation, options.kernel, training, device=options.device
        )
        costs, scale = len(mean), fit.lengthscale[:, None, None]
        return KernelSurface(
            frame=self.frame,
            smoothness=SMOOTHNESS[options.kernel],
            centre=np.repeat(centre[None], costs, axis=0),
            projection=projection / scale,
            inducing=fit.inducing / scale,
            weights=fit.weights * deviation[:, None],
            mean=fit.mean * deviation + mean,
            amplitude=fit.amplitude * deviation,
            constant=np.zeros(costs),
            directions=np.concatenate([fit.directions, np.zeros((costs, 1, fit.directions.shape[2]))], axis=1),
            sharpness=fit.sharpness * deviation[:, None] ** 2,
            lengthscale=fit.lengthscale,
            noise=fit.noise * deviation**2,
            jitter=np.full(costs, fit.jitter),
        )


def standardisation(points: Floats, weights: Floats, summaries: int = 0) -> tuple[Floats, Floats]:
    """Centre (d,) and projection (d, d) that give weighted points (n, d) mean 0 and covariance 1.

    The last `summaries` columns are of the past: standardised among themselves, and RELEVANCE wide.
    """
    if summaries:
        here, past = (standardisation(part, weights) for part in np.split(points, [-summaries], axis=1))
        projection = np.zeros((points.shape[1],) * 2)
        projection[:-summaries, :-summaries], projection[-summaries:, -summaries:] = here[1], RELEVANCE * past[1]
        return np.concatenate([here[0], past[0]]), projection
    share = weights / weights.sum()
    centre = share @ points
    apart = points - centre
    sizes, axes = np.linalg.eigh((apart * share[:, None]).T @ apart)
    # Directions in which the points do not differ get no more stretch than a thousandth of the widest, and than makes
    # LEAST_SPREAD one: where all are nearly equal, as before the first ink of an image, the next one is not far off.
    least = max(1e-6 * float(sizes[-1]), LEAST_SPREAD**2)
    return centre, axes / np.sqrt(np.maximum(sizes, least))
