"""What a process says where no sequence has been: nothing wild, whatever the sequences were like."""

import numpy as np
import pytest

from firmbound.backward_induction import statistic_of
from firmbound.posterior import posterior
from tests.continuation.test_gaussian_process import fitter_for


@pytest.mark.parametrize("statistic", ["llr", "posterior", "ranked"])
def test_beliefs_that_hardly_differ_say_the_same_of_a_new_one(statistic, random):
    """Before anything was seen all beliefs are nearly equal: a new one, a hair's breadth away, is no other world."""
    fitter, prior = fitter_for(4, statistic=statistic), np.full(4, 0.25)

    def known(evidence):
        return statistic_of(evidence, posterior(evidence, prior), statistic)

    seen, fresh = 1e-5 * random.standard_normal((500, 4)), 1e-3 * random.standard_normal((500, 4))
    # As early looks do, a trace of the class is there, and who is a little surer now will be much surer later.
    targets = 0.3 - 3e3 * seen.max(axis=1, keepdims=True) + 0.002 * random.standard_normal((500, 1))
    surface = fitter.prepare(known(seen)).fit(targets)
    assert np.abs(surface(known(fresh)) - targets.mean()).max() < 0.005


@pytest.mark.parametrize("statistic", ["llr", "ranked"])
def test_who_was_too_sure_does_not_lead_astray_where_nobody_has_been(statistic, random):
    """Shares of the risk lie in [0, 1], but what was taken for certain may turn out to be thousands of its scale."""
    fitter, prior = fitter_for(3, statistic=statistic), np.full(3, 1 / 3)

    def known(evidence):
        return statistic_of(evidence, posterior(evidence, prior), statistic)

    evidence = np.concatenate([0.05 * random.standard_normal((1_000, 3)), 14.0 * np.eye(3)[[0, 1, 2, 0]]])
    risk = np.append(0.03 + 0.001 * random.standard_normal(1_000), np.full(4, 0.4))
    surface = fitter.prepare(known(evidence)).fit(risk[:, None])
    assert surface.mean[0] <= 1.0
    assert np.abs(surface(known(evidence[:1_000])) - 0.03).mean() < 0.005
    assert surface(known(0.2 * np.eye(3))).max() < 0.1
