"""What one expectation of the minimum risk costs, and how exact it is: the fitted surface against sampling.

Both give continuation_t(x) = E[minimum_{t+1} | x] + cost at B states, and both take minimum_{t+1} from the same rule,
so they differ in the conditional expectation alone. `direct` evaluates the surface of t, O(B K I) for I pieces.
Sampling draws S next states of every x from a kernel conditional density estimate on M training pairs: `anew` weighs
the pairs for every sample, which is the O(B S M K) of the paper's appendix; `once` weighs them once a state, the same
estimator for O(B (M K + S (log M + K I))), and so the fair opponent.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import firmbound
from benchmarks.record import record
from firmbound import StoppingRule
from firmbound.arrays import Floats
from firmbound.posterior import log_likelihood_ratios

Row = dict[str, Any]
COST = 0.2  # penalty / horizon at 50 observations
SEQUENCES, STATES = 100_000, 500
GRID = list(product([1_000, 10_000, 100_000], [10, 100, 1_000]))  # M, S
# Classes: horizon, times. Beyond three classes there is no exact risk; to measure time, a short horizon will do.
CASES = {2: (50, [10, 25]), 3: (50, [10, 25]), 10: (5, [3])}
AT_ONCE = 2**17  # numbers in a block, a MiB as in the evaluation of surfaces
ANEW_WEIGHTS = 10**7  # all that `anew` may compute, or it would take minutes
REPEAT_SECONDS = 0.1


class Density:
    """p(next | now) by the joint Gaussian kernel estimate with Scott's bandwidth, conditioned on now."""

    def __init__(self, now: Floats, after: Floats) -> None:
        pairs, d = now.shape
        # Shaped like the joint covariance: next is now but for one step, and a round kernel is as wide as a step.
        root = pairs ** (-1 / (2 * d + 4)) * np.linalg.cholesky(np.cov(np.hstack([now, after]).T))
        self.whiten, self.slope, self.noise = np.linalg.inv(root[:d, :d]).T, root[d:, :d].T, root[d:, d:].T
        self.now, self.next = now @ self.whiten, after
        self.half_square = (self.now**2).sum(axis=1) / 2

    def draw(self, states: Floats, samples: int, rng: np.random.Generator) -> Floats:
        """Pairs chosen by the kernel weight of their now, kernel noise on their next.  (B, D) -> (B, samples, D)."""
        white = states @ self.whiten
        weights = white @ self.now.T - self.half_square
        weights -= weights.max(axis=1, keepdims=True)
        rising = np.cumsum(np.exp(weights, out=weights), axis=1, out=weights)
        drawn = rising[:, -1:] * rng.random((len(states), samples))
        chosen = np.stack([np.searchsorted(row, values) for row, values in zip(rising, drawn, strict=True)])
        moved = (white[:, None] - self.now[chosen]) @ self.slope
        return np.asarray(self.next[chosen] + moved + rng.standard_normal(moved.shape) @ self.noise)


def main() -> None:
    # On one thread CPU seconds are those of the work; small products on several threads mostly wait for each other.
    with threadpool_limits(1):
        rows = [row for classes, case in CASES.items() for row in measure(classes, *case)]
    # A sum has no exponents of its own: each term of `once` is seen where the other is small.
    fits = {
        "anew": exponents("anew", [row for row in rows if "anew" in row]),
        "once at S = 10": exponents("once", [row for row in rows if row["S"] == 10]),
        "once at M = 1,000": exponents("once", [row for row in rows if row["M"] == 1_000]),
    }
    for name, powers in fits.items():
        print(f"{name}: CPU seconds grow as " + " ".join(f"{letter}^{power:.2f}" for letter, power in powers.items()))
    record("sampling_cost", {"sequences": SEQUENCES, "cost": COST, "rows": rows, "exponents": fits})


def measure(classes: int, horizon: int, times: list[int]) -> list[Row]:
    train = firmbound.datasets.gaussian(classes=classes, sequences=SEQUENCES, horizon=horizon, seed=1).evidence
    fresh = firmbound.datasets.gaussian(classes=classes, sequences=STATES, horizon=horizon, seed=2)
    started = time.perf_counter()
    rule = firmbound.fit_stopping_rule(train, costs=COST)
    print(f"K = {classes}: {SEQUENCES:,} sequences of {horizon} fitted in {time.perf_counter() - started:.1f} s")
    oracle = firmbound.solve_gaussian(fresh, costs=COST) if classes <= 3 else None
    rows = []
    for t in times:
        states = fresh.evidence[:, t - 1]
        exact = oracle.continuation_risk(states, t=t) if oracle else None
        pieces = len(rule.surfaces[t - 1].arrays()["offsets"])
        print(f"  t = {t}, I = {pieces}: microseconds a state (CPU), CPU over that of direct, RMSE to the exact risk")
        print(f"  {'M':>9}{'S':>7}{'direct':>11}{'once':>35}{'anew':>42}")
        for pairs, samples in GRID:
            density = Density(*(log_likelihood_ratios(train[:pairs, s]) for s in (t - 1, t)))
            found = compare(rule, density, states, exact, t, samples)
            rows.append({"K": classes, "t": t, "I": pieces, "M": pairs, "S": samples, **found})
            print(f"  {pairs:>9,}{samples:>7,}  " + "  ".join(shown(way) for way in found.values()))
    return rows


def compare(rule: StoppingRule, density: Density, states: Floats, exact: Floats | None, t: int, samples: int) -> Row:
    """All ways side by side, so that whatever else the machine does falls on all of them."""
    x = log_likelihood_ratios(states)
    few = x[: ANEW_WEIGHTS // (samples * len(density.now))]
    found = {"direct": timed(lambda: rule.continuation_risk(states, t=t), exact)}
    found["once"] = timed(lambda: sampled_risk(rule, density, x, t, 1, samples), exact)
    if len(few):  # its error is that of `once`
        found["anew"] = timed(lambda: sampled_risk(rule, density, few, t, samples, 1))
    for way in found.values():
        way["cpu_ratio"] = way["cpu_seconds"] / found["direct"]["cpu_seconds"]
    return found


def sampled_risk(rule: StoppingRule, density: Density, x: Floats, t: int, rounds: int, samples: int) -> Floats:
    """Mean of the minimum risk at t + 1 over rounds * samples draws, plus the cost.  (B, K - 1) -> (B,)."""
    rng = np.random.default_rng(0)
    block = max(AT_ONCE // max(len(density.now), rounds * samples * x.shape[1]), 1)
    means = []
    for part in (x[first : first + block] for first in range(0, len(x), block)):
        drawn = np.concatenate([density.draw(part, samples, rng) for _ in range(rounds)], axis=1)
        evidence = np.pad(drawn.reshape(-1, x.shape[1]), [(0, 0), (0, 1)])  # the last class is at 0
        ahead = rule.outlook(evidence, t=t + 1)
        means.append(np.minimum(ahead.stopping_risk, ahead.continuation_risk).reshape(len(part), -1).mean(axis=1))
    return np.asarray(np.concatenate(means) + COST)


def timed(run: Callable[[], Floats], exact: Floats | None = None) -> Row:
    """Seconds a state of the best of the runs that fit into REPEAT_SECONDS, at least one, and the error."""
    took: list[tuple[float, float]] = []
    started = time.perf_counter()
    while not took or time.perf_counter() - started < REPEAT_SECONDS:
        cpu, wall = time.process_time(), time.perf_counter()
        risk = run()
        took.append((time.process_time() - cpu, time.perf_counter() - wall))
    cpu, wall = min(took)
    found = {"states": len(risk), "seconds": wall / len(risk), "cpu_seconds": cpu / len(risk)}
    return found if exact is None else found | {"rmse": float(np.sqrt(np.mean((risk - exact) ** 2)))}


def exponents(way: str, rows: list[Row]) -> dict[str, float]:
    """Least squares of log CPU seconds on the logarithms of what varies."""
    varying = [letter for letter in ("K", "M", "S") if len({row[letter] for row in rows}) > 1]
    logs = np.log([[np.e, *[row[letter] for letter in varying], row[way]["cpu_seconds"]] for row in rows])
    return dict(zip(varying, np.linalg.lstsq(logs[:, :-1], logs[:, -1])[0][1:].tolist(), strict=True))


def shown(way: Row) -> str:
    times = f"{1e6 * way['seconds']:,.1f} ({1e6 * way['cpu_seconds']:,.1f})"
    times = times if way["cpu_ratio"] == 1 else f"{times:>23} {way['cpu_ratio']:>9,.0f}x"
    return times + (f" {way['rmse']:.4f}" if "rmse" in way else "")


if __name__ == "__main__":
    main()
