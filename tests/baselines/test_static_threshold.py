from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from firmbound import InvalidInput
from firmbound.baselines.static_threshold import (
    StaticThreshold,
    running_lead,
    sweep,
    threshold_grid,
    tune_threshold,
    tune_thresholds,
)

evidences = arrays(np.float64, (6, 5, 3), elements=st.floats(-5, 5))


@given(evidences, st.floats(0, 6))
def test_decisions_follow_the_papers_definition(evidence, threshold):
    """Eqs. d* and tau*, written out with the full matrix of log-likelihood ratios."""
    decisions = StaticThreshold(threshold).decide(evidence)
    for sequence, time, label in zip(evidence, decisions.time, decisions.label, strict=True):
        for t in range(1, 6):
            ratios = sequence[t - 1][:, None] - sequence[t - 1][None, :]
            worst = np.where(np.eye(3, dtype=bool), np.inf, ratios).min(axis=1)
            if worst.max() >= threshold or t == 5:
                break
        assert time == t
        assert worst[label] == worst.max()


@given(evidences)
def test_higher_thresholds_wait_longer(evidence):
    times = [decisions.time for decisions in sweep(evidence, [0.0, 0.5, 1.0, 4.0, 100.0])]
    assert np.all(times[0] == 1)
    assert np.all(times[-1] == 5)
    for earlier, later in pairwise(times):
        assert np.all(earlier <= later)


@given(evidences)
def test_the_running_lead_never_falls(evidence):
    assert np.all(np.diff(running_lead(evidence), axis=1) >= 0)


def test_a_sweep_is_the_single_thresholds(two_classes):
    thresholds = threshold_grid(two_classes.evidence, 7)
    assert len(thresholds) == 7
    assert thresholds[0] == 0
    for threshold, decisions in zip(thresholds, sweep(two_classes.evidence, thresholds), strict=True):
        assert np.array_equal(decisions.time, StaticThreshold(threshold).decide(two_classes.evidence).time)
    assert np.mean(sweep(two_classes.evidence, thresholds)[-1].time == 12) > 0.99


def test_bad_thresholds_are_refused(two_classes):
    for bad in (-1.0, np.nan):
        with pytest.raises(InvalidInput, match="non-negative"):
            StaticThreshold(bad)
    with pytest.raises(InvalidInput, match="at least 2"):
        threshold_grid(two_classes.evidence, 1)


def test_tuning_finds_the_best_of_a_fine_grid(two_classes):
    def average_risk(decisions):
        wrong = decisions.label != two_classes.labels
        return 10.0 * wrong.mean() + 0.1 * decisions.time.mean()

    tuned = tune_threshold(two_classes.evidence, average_risk, 40)
    fine = [average_risk(d) for d in sweep(two_classes.evidence, threshold_grid(two_classes.evidence, 1_000))]
    coarse = [average_risk(d) for d in sweep(two_classes.evidence, threshold_grid(two_classes.evidence, 40))]
    found = average_risk(tuned.decide(two_classes.evidence))
    assert found <= min(coarse)
    assert found <= min(fine) + 0.01


def test_several_measures_are_tuned_as_each_alone(two_classes):
    def measure(cost):
        return lambda decisions: 10.0 * (decisions.label != two_classes.labels).mean() + cost * decisions.time.mean()

    measures = [measure(cost) for cost in (0.05, 0.3, 1.0)]
    together = tune_thresholds(two_classes.evidence, measures, 20)
    assert together == [tune_threshold(two_classes.evidence, each, 20) for each in measures]
    assert together[0].threshold > together[-1].threshold
