"""The paper's side experiments on its Gaussian problems, whose exact optimum is known.

Small data; what a Gaussian process sees, ratios or posteriors; options of both estimators; and what one look at the
continuation risk takes, beside Monte Carlo integration over a kernel density. Every row has what the paper draws, and
`regret`: what the rule's decisions cost above the optimum, as a share of the Bayes risk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Floats
from firmbound.continuation.convex import ConvexOptions
from firmbound.continuation.gaussian_process import ProcessOptions
from firmbound.datasets import GaussianProblem, gaussian
from firmbound.evaluation.risk import believed_risk
from firmbound.evaluation.speed_accuracy import macro_error
from firmbound.fitting import Method, Options, fit_stopping_rule
from firmbound.oracle import Oracle, solve_gaussian
from firmbound.posterior import posterior
from firmbound.stopping_rule import StoppingRule

Row = dict[str, Any]
# Costs in units of penalty / horizon, the paper's horizon, and the penalty of fit_stopping_rule.
SHARES, HORIZON, PENALTY = (0.1, 0.4, 1.0, 2.0), 50, 10.0
# The paper varies the inducing points of the RBF kernel, and the kernel at 200.
PROCESSES: Mapping[str, ProcessOptions] = {
    "50 inducing points": ProcessOptions(inducing=50),
    "200 inducing points": ProcessOptions(inducing=200),
    "Matérn 1.5": ProcessOptions(inducing=200, kernel="matern-1.5"),
    "Matérn 2.5": ProcessOptions(inducing=200, kernel="matern-2.5"),
}
CONVEX: Mapping[str, ConvexOptions] = {
    f"regularisation {value:g}": ConvexOptions(regularisation=value) for value in (1e-9, 1e-7, 1e-5, 1e-3)
} | {f"{points} points": ConvexOptions(points=points) for points in (100, 300, 1_000)}
# States whose continuation risk is asked for half-way, and draws of each by Monte Carlo.
STATES, DRAWS = 500, 200
FRESH_SEED, TRAIN_SEED = 2, 100


@dataclass(frozen=True)
class GaussianTrial:
    """The paper's problem with so many classes, and fresh sequences that rules are judged on."""

    classes: int
    fresh_count: int
    horizon: int = HORIZON

    @property
    def costs(self) -> list[float]:
        return [share * PENALTY / self.horizon for share in SHARES]

    @cached_property
    def fresh(self) -> GaussianProblem:
        return gaussian(self.classes, self.fresh_count, self.horizon, seed=FRESH_SEED)

    @cached_property
    def oracle(self) -> Oracle:
        return solve_gaussian(self.fresh, costs=self.costs, penalty=PENALTY)

    def training(self, sequences: int, repeat: int) -> NDArray[Any]:
        return gaussian(self.classes, sequences, self.horizon, seed=TRAIN_SEED + repeat).evidence

    def fitted(self, evidence: NDArray[Any], method: Method, options: Options | None = None, **named: Any) -> list[Row]:
        """Fit a rule, and judge it at every cost."""
        started = time.process_time()
        rule = fit_stopping_rule(evidence, costs=self.costs, penalty=PENALTY, method=method, options=options)
        seconds = time.process_time() - started
        shared = {"classes": self.classes, "method": method, "sequences": len(evidence), "cpu_seconds": seconds}
        return [{**named, **shared, **row} for row in self.judged(rule)]

    def judged(self, rule: StoppingRule) -> Iterator[Row]:
        evidence, labels = self.fresh.evidence, self.fresh.labels
        for index, cost in enumerate(self.costs):
            made = rule.decide(evidence, cost=cost)
            lost = self.oracle.regret(evidence, made, cost=cost).mean()
            yield {
                "cost": cost,
                "regret": float(lost / self.oracle.bayes_risk[index]),
                "aapr": float(believed_risk(made, evidence, rule.prior, rule.problem, cost).mean()),
                "error_rate": macro_error(made, labels, self.classes).value,
                "mean_time": float(made.time.mean()),
            }


def small_data(sizes: list[int], fresh: int, repeats: int, horizon: int = HORIZON) -> list[Row]:
    """Both estimators on the three-class problem, with fewer and fewer training sequences."""
    trial = GaussianTrial(3, fresh, horizon)
    methods: tuple[Method, ...] = ("cfl", "gp")
    return [
        row
        for size in sizes
        for repeat in range(repeats)
        for method in methods
        for row in trial.fitted(
            trial.training(size, repeat), method, experiment="small data", setting=f"{size}", repeat=repeat
        )
    ]


def statistics_of_processes(sequences: int, fresh: int, repeats: int, horizon: int = HORIZON) -> list[Row]:
    """Two classes: a Gaussian process that sees log-likelihood ratios, and one that sees posteriors."""
    seen = {name: ProcessOptions(statistic=name) for name in ("llr", "posterior")}
    return _by_setting("statistic", "gp", seen, GaussianTrial(2, fresh, horizon), sequences, repeats)


def options_of_processes(sequences: int, fresh: int, repeats: int, horizon: int = HORIZON) -> list[Row]:
    return _by_setting("process options", "gp", PROCESSES, GaussianTrial(2, fresh, horizon), sequences, repeats)


def options_of_convex_learning(sequences: int, fresh: int, repeats: int, horizon: int = HORIZON) -> list[Row]:
    return _by_setting("convex options", "cfl", CONVEX, GaussianTrial(2, fresh, horizon), sequences, repeats)


def _by_setting(
    experiment: str,
    method: Method,
    settings: Mapping[str, Options],
    trial: GaussianTrial,
    sequences: int,
    repeats: int,
) -> list[Row]:
    return [
        row
        for repeat in range(repeats)
        for name, options in settings.items()
        for row in trial.fitted(
            trial.training(sequences, repeat), method, options, experiment=experiment, setting=name, repeat=repeat
        )
    ]


def seconds_of_a_look(sizes: list[int], repeats: int, horizon: int = HORIZON) -> list[Row]:
    """What the continuation risk of one state takes, and how wrong it is: both estimators, and Monte Carlo."""
    trial, step = GaussianTrial(3, STATES, horizon), horizon // 2
    cost, states = PENALTY / horizon, trial.fresh.evidence[:, step - 1]
    oracle = solve_gaussian(trial.fresh, costs=[cost], penalty=PENALTY)
    exact = oracle.continuation_risk(states, t=step)
    rows = []
    for size in sizes:
        for repeat in range(repeats):
            looks = _looks(trial.training(size, repeat), oracle, step)
            for name, look in looks.items():
                started = time.process_time()
                found = look(states)
                spent = (time.process_time() - started) / STATES
                named = {"experiment": "one look", "classes": 3, "method": name, "setting": name, "repeat": repeat}
                wrong = float(np.abs(found - exact).mean())
                rows.append(named | {"sequences": size, "cost": cost, "look_cpu_seconds": spent, "look_error": wrong})
    return rows


def _looks(evidence: NDArray[Any], oracle: Oracle, step: int) -> dict[str, Callable[[NDArray[Any]], Floats]]:
    """Ways to ask for the continuation risk of states (n, K) at a step."""
    cost, prior = float(oracle.problem.costs[0]), oracle.prior

    def by_rule(method: Method) -> Callable[[NDArray[Any]], Floats]:
        rule = fit_stopping_rule(evidence, costs=[cost], penalty=PENALTY, method=method)
        return lambda states: rule.outlook(states, t=step).continuation_risk

    def least(states: NDArray[Any]) -> Floats:
        stopping = oracle.problem.scale * oracle.problem.stopping_risk(posterior(states, prior))
        return np.asarray(np.minimum(stopping, oracle.continuation_risk(states, t=step + 1)))

    def by_density(states: NDArray[Any]) -> Floats:
        now, later = ratios(evidence[:, step - 1]), ratios(evidence[:, step])
        return cost + kernel_expectation(now, later, ratios(states), least)

    return {"cfl": by_rule("cfl"), "gp": by_rule("gp"), "kernel density": by_density}


def ratios(evidence: NDArray[Any]) -> Floats:
    """Log-likelihood ratios to the last class, then 0 for itself: a state that is evidence too.  (n, K) -> (n, K)."""
    return np.asarray(evidence - evidence[:, -1:], dtype=np.float64)


def kernel_expectation(
    now: Floats, later: Floats, states: Floats, value: Callable[[Floats], Floats], draws: int = DRAWS, seed: int = 0
) -> Floats:
    """E[value(later state) | state] by Monte Carlo over a Gaussian kernel density of pairs (now, later).

    now, later (M, K): where training sequences were and where they went; states (B, K). The bandwidth is Scott's.
    """
    random = np.random.default_rng(seed)
    free = now.shape[1] - 1  # the last ratio is 0
    width = now[:, :free].std(axis=0) * len(now) ** (-1.0 / (2 * free + 4))
    found = np.empty(len(states))
    for place, state in enumerate(states):
        apart = (((now - state)[:, :free] / width) ** 2).sum(axis=1)
        weights = np.exp(-0.5 * (apart - apart.min()))
        chosen = random.choice(len(now), size=draws, p=weights / weights.sum())
        drawn = later[chosen].copy()
        drawn[:, :free] += random.normal(size=(draws, free)) * width
        found[place] = value(drawn).mean()
    return found
