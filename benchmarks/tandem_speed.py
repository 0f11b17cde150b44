"""Training throughput and streaming latency of TANDEM networks.

A training step (both losses, backward, Adam) of order 5 on 200 sequences of 50 observations, against a straightforward
version that cuts windows first and projects after (benchmarks/windowed_first.py), with the same weights. Both in one
run, in turns, by the clock and in CPU seconds. Then one observation pushed into a stream.
"""

from __future__ import annotations

import time
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.record import record
from benchmarks.windowed_first import WindowedFirst
from firmbound.tandem.formula import evidence_of_windows
from firmbound.tandem.losses import log_sum_exp_loss, multiplet_cross_entropy
from firmbound.tandem.network import TandemNetwork
from firmbound.tandem.options import Integrator, NetworkOptions
from firmbound.tandem.streaming import TandemStream

BATCH, HORIZON, CLASSES, ORDER = 200, 50, 2, 5
DIMENSIONS = (128, 512, 2048)  # the Gaussian problems', SiW's and HMDB51's in the paper
STEPS, TURNS, PUSHES = 5, 5, 3_000
BARS = {"times": 2.0, "milliseconds": 1.0}
LOG_PRIOR = torch.log(torch.full((CLASSES,), 1 / CLASSES))


def main() -> None:
    results: dict[str, Any] = {
        f"{name}, d={dimension}": throughput(name, dimension)
        for dimension in DIMENSIONS
        for name in ("lstm", "transformer")
    }
    record("tandem_speed", results | {"stream": latency()})


def throughput(integrator: Integrator, dimension: int) -> dict[str, Any]:
    torch.manual_seed(0)
    network = TandemNetwork(dimension, CLASSES, NetworkOptions(integrator=integrator, order=ORDER))
    plain = deepcopy(WindowedFirst(network))
    x, y = torch.randn(BATCH, HORIZON, dimension), torch.randint(CLASSES, (BATCH,))
    ours, theirs = Steps(network, x, y), Steps(plain, x, y)
    apart = abs(ours.first_loss - theirs.first_loss)
    for _ in range(TURNS):
        for steps in (ours, theirs):
            steps.run(STEPS)
    wall, cpu = theirs.median("wall") / ours.median("wall"), theirs.median("cpu") / ours.median("cpu")
    shown = {"sequences_a_second": BATCH / ours.median("wall"), "windowed_first": BATCH / theirs.median("wall")}
    shown |= {"times": wall, "times_cpu": cpu, "losses_apart": apart, "bar": BARS["times"]}
    shown["met"] = wall >= BARS["times"] and apart <= 1e-5
    print(f"{integrator}, d={dimension}: {shown}", flush=True)
    return shown


class Steps:
    """Training steps of one network, and the seconds they took."""

    def __init__(self, network: nn.Module, x: Tensor, y: Tensor) -> None:
        self.network, self.x, self.y = network, x, y
        self.adam = torch.optim.Adam(network.parameters(), lr=1e-3)
        self.taken: dict[str, list[float]] = {"wall": [], "cpu": []}
        self.first_loss = self.step()

    def step(self) -> float:
        self.adam.zero_grad()
        found = self.network(self.x)
        evidence = evidence_of_windows(found, LOG_PRIOR)
        loss = log_sum_exp_loss(evidence, self.y, LOG_PRIOR.exp()) + multiplet_cross_entropy(found, self.y)
        loss.backward()  # type: ignore[no-untyped-call]
        self.adam.step()
        return loss.item()

    def run(self, count: int) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            self.step()
        self.taken["wall"].append((time.perf_counter() - wall) / count)
        self.taken["cpu"].append((time.process_time() - cpu) / count)

    def median(self, clock: str) -> float:
        return float(np.median(self.taken[clock]))


def latency() -> dict[str, float | bool]:
    torch.manual_seed(0)
    network = TandemNetwork(DIMENSIONS[0], CLASSES, NetworkOptions(order=ORDER, hidden=64))
    stream, x = TandemStream(network, LOG_PRIOR), np.random.default_rng(0).standard_normal((PUSHES, DIMENSIONS[0]))
    taken = np.empty(PUSHES)
    for place, observation in enumerate(x):
        started = time.perf_counter_ns()
        stream.push(observation)
        taken[place] = time.perf_counter_ns() - started
    median = float(np.median(taken[200:]) / 1e6)
    print(f"stream: median {median:.3f} ms an observation")
    return {"median_milliseconds": median, "bar": BARS["milliseconds"], "met": median <= BARS["milliseconds"]}


if __name__ == "__main__":
    main()
