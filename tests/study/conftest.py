import numpy as np
import pytest

import firmbound
from firmbound.costs import DecisionProblem
from firmbound.study.contest import Contest
from firmbound.trajectories import Batch

COSTS = [0.02, 0.2, 1.0]


def batch_of(count, seed):
    found = firmbound.datasets.gaussian(2, count, 12, seed=seed, dimension=3, separation=1.2)
    return Batch(found.labels, 2, found.features.astype(np.float32), found.evidence)


@pytest.fixture(scope="session")
def contest():
    problem = DecisionProblem.create(classes=2, horizon=12, penalty=10.0, costs=COSTS)
    parts = (batch_of(600, 1), batch_of(300, 2), batch_of(500, 3))
    return Contest(*parts, prior=np.full(2, 0.5), problem=problem, seed=0, rows=np.arange(500))
