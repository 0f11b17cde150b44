"""Training throughput and streaming latency of TANDEM networks.

A training step (both losses, backward, Adam) of order 5 on 200 sequences of 50 observations with 128 features, against
a straightforward version that cuts windows first and projects after, with the same weights: the network applied to
every window as if it were a sequence of its own. In one run, CPU seconds. Then one observation pushed into a stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.record import record
from firmbound.tandem.formula import evidence_of_windows
from firmbound.tandem.integrators import windows
from firmbound.tandem.losses import log_sum_exp_loss, multiplet_cross_entropy
from firmbound.tandem.network import Integrator, NetworkOptions, TandemNetwork
from firmbound.tandem.streaming import TandemStream

BATCH, HORIZON, DIMENSION, CLASSES, ORDER = 200, 50, 128, 2, 5
STEPS, PUSHES = 15, 3_000
BARS = {"times": 2.0, "milliseconds": 1.0}
LOG_PRIOR = torch.log(torch.full((CLASSES,), 1 / CLASSES))


def main() -> None:
    results = {name: throughput(name) for name in ("lstm", "transformer")}
    record("tandem_speed", results | {"stream": latency()})


def throughput(integrator: Integrator) -> dict[str, Any]:
    torch.manual_seed(0)
    network = TandemNetwork(DIMENSION, CLASSES, NetworkOptions(integrator=integrator, order=ORDER))
    x, y = torch.randn(BATCH, HORIZON, DIMENSION), torch.randint(CLASSES, (BATCH,))

    def windowed_first(features: Tensor) -> Tensor:
        cut = windows(features, ORDER)
        n, starts, lengths, width = cut.shape
        found: Tensor = network(cut.reshape(n * starts, lengths, width)).reshape(n, starts, lengths, CLASSES)
        return found

    ours, plain = training_step(network, network, x, y), training_step(network, windowed_first, x, y)
    apart = abs(ours["loss"] - plain["loss"])
    ratio = plain["cpu_seconds"] / ours["cpu_seconds"]
    shown = {"ours": ours, "windowed_first": plain, "times": ratio, "losses_apart": apart, "bar": BARS["times"]}
    shown["met"] = ratio >= BARS["times"] and apart <= 1e-5
    print(f"{integrator}: {BATCH / ours['seconds']:.0f} sequences a second, {ratio:.2f}x, losses {apart:.1e} apart")
    return shown


def training_step(
    network: TandemNetwork, posteriors: Callable[[Tensor], Tensor], x: Tensor, y: Tensor
) -> dict[str, float]:
    """Seconds of one step, the mean of STEPS after two that warm up; weights are left as they were."""
    before = {name: value.clone() for name, value in network.state_dict().items()}
    adam = torch.optim.Adam(network.parameters(), lr=1e-3)
    first, wall, cpu = 0.0, 0.0, 0.0
    for step in range(STEPS + 2):
        if step == 2:
            wall, cpu = time.perf_counter(), time.process_time()
        adam.zero_grad()
        found = posteriors(x)
        loss = log_sum_exp_loss(evidence_of_windows(found, LOG_PRIOR), y) + multiplet_cross_entropy(found, y)
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
        first = loss.item() if step == 0 else first
    spent = (time.perf_counter() - wall) / STEPS, (time.process_time() - cpu) / STEPS
    network.load_state_dict(before)
    return {"seconds": spent[0], "cpu_seconds": spent[1], "loss": first}


def latency() -> dict[str, float | bool]:
    torch.manual_seed(0)
    network = TandemNetwork(DIMENSION, CLASSES, NetworkOptions(order=ORDER, hidden=64))
    stream, x = TandemStream(network, LOG_PRIOR), np.random.default_rng(0).standard_normal((PUSHES, DIMENSION))
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
