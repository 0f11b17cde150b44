"""Side experiments: Monte Carlo against exact expectations, rules judged by the optimum, figures of all rows."""

import numpy as np
import pytest

from firmbound.report import experiment_figures as figures
from firmbound.study import experiments
from firmbound.study.experiments import GaussianTrial, kernel_expectation, ratios

FRESH, HORIZON = 300, 6


@pytest.fixture(scope="module")
def trial():
    return GaussianTrial(2, FRESH, HORIZON)


@pytest.fixture(scope="module")
def rows():
    """Everything that the stage makes, with few sequences."""
    return [
        *experiments.small_data([100, 200], FRESH, 1, HORIZON),
        *experiments.statistics_of_processes(200, FRESH, 1, HORIZON),
        *experiments.options_of_processes(200, FRESH, 1, HORIZON),
        *experiments.options_of_convex_learning(200, FRESH, 2, HORIZON),
        *experiments.seconds_of_a_look([100], 1, HORIZON),
    ]


def test_a_kernel_density_expects_what_a_random_walk_does():
    """E[x'^2 | x] = x^2 + 1 for x' = x + N(0, 1); the kernel's width adds its own variance."""
    random = np.random.default_rng(0)
    now = np.column_stack([random.normal(size=40_000), np.zeros(40_000)])
    later = now + np.column_stack([random.normal(size=40_000), np.zeros(40_000)])
    states = np.array([[-1.0, 0.0], [0.0, 0.0], [0.5, 0.0]])
    found = kernel_expectation(now, later, states, lambda drawn: drawn[:, 0] ** 2, draws=20_000)
    assert found == pytest.approx(states[:, 0] ** 2 + 1, abs=0.1)


def test_ratios_are_evidence_less_that_of_the_last_class():
    assert ratios(np.array([[3.0, 1.0, 2.0]])) == pytest.approx(np.array([[1.0, -1.0, 0.0]]))


def test_nobody_loses_less_than_the_optimum(rows):
    for row in rows:
        if row["experiment"] != "one look":
            assert row["regret"] >= 0
            assert 0 <= row["error_rate"] <= 0.7
            assert 1 <= row["mean_time"] <= HORIZON


def test_more_sequences_make_a_better_rule(trial):
    few, many = (
        np.mean([row["regret"] for row in trial.fitted(trial.training(size, 0), "cfl")]) for size in (30, 3_000)
    )
    assert many < few


def test_training_sequences_differ_from_repeat_to_repeat_and_from_fresh_ones(trial):
    first, second = (trial.training(FRESH, repeat) for repeat in (0, 1))
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, trial.fresh.evidence)


def test_our_look_is_quicker_and_no_wronger_than_monte_carlo(rows):
    looks = {row["method"]: row for row in rows if row["experiment"] == "one look"}
    for method in ("cfl", "gp"):
        assert looks[method]["look_cpu_seconds"] < looks["kernel density"]["look_cpu_seconds"]
        assert looks[method]["look_error"] < looks["kernel density"]["look_error"]


def test_every_setting_has_every_cost(rows):
    for experiment in ("small data", "statistic", "process options", "convex options"):
        own = [row for row in rows if row["experiment"] == experiment]
        for setting in {(row["method"], row["setting"], row["repeat"]) for row in own}:
            costs = [row["cost"] for row in own if (row["method"], row["setting"], row["repeat"]) == setting]
            assert costs == GaussianTrial(2, FRESH, HORIZON).costs


def test_figures_show_every_line(rows):
    def of(*names):
        return [row for row in rows if row["experiment"] in names]

    drawn = {
        figures.small_data: (of("small data"), 4),
        figures.statistics: (of("statistic"), 2),
        figures.option_sensitivity: (of("process options", "convex options"), 4),
        figures.seconds_of_a_look: (of("one look"), 3),
        figures.seconds_of_fitting: (of("small data"), 2),
    }
    for draw, (some, lines) in drawn.items():
        figure = draw(some)
        assert len(figure.axes[0].containers) == lines, draw.__name__
