import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from firmbound import DecisionProblem, InvalidInput

SIMPLEX = arrays(np.float64, (5, 3), elements=st.floats(0.001, 1.0)).map(lambda a: a / a.sum(axis=1, keepdims=True))


def make(penalty=10.0, costs=(0.1,), classes=3, horizon=5, delay=None):
    return DecisionProblem.create(classes=classes, horizon=horizon, penalty=penalty, costs=costs, delay=delay)


@given(SIMPLEX)
def test_a_number_and_a_vector_give_the_papers_stopping_risk(belief):
    assert np.allclose(10.0 * make(10.0).stopping_risk(belief), 10.0 * (1 - belief).min(axis=1))
    penalty = np.array([1.0, 5.0, 10.0])
    problem = make(penalty, costs=[0.01])
    assert np.allclose(problem.scale * problem.stopping_risk(belief), (penalty * (1 - belief)).min(axis=1))
    assert np.array_equal(problem.best_label(belief), (penalty * (1 - belief)).argmin(axis=1))


def test_a_matrix_has_a_row_for_the_truth_and_a_column_for_the_decision():
    matrix = np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 4.0], [5.0, 6.0, 0.0]])
    problem = make(matrix)
    certain = np.array([[0.0, 1.0, 0.0]])
    assert np.allclose(problem.scale * problem.decision_risk(certain), [[3.0, 0.0, 4.0]])


@given(SIMPLEX, SIMPLEX, st.floats(0, 1))
def test_the_stopping_risk_is_concave_for_any_matrix(one, other, share):
    matrix = np.array([[0.5, 1.0, 2.0], [3.0, 0.0, 4.0], [5.0, 6.0, 1.0]])
    problem = make(matrix, costs=[0.01])
    mixed = share * one + (1 - share) * other
    chord = share * problem.stopping_risk(one) + (1 - share) * problem.stopping_risk(other)
    assert np.all(problem.stopping_risk(mixed) >= chord - 1e-12)


@given(st.floats(0.01, 1e6))
def test_a_common_factor_leaves_the_same_bits(factor):
    costs = np.array([0.02, 0.2, 0.4])
    penalty = np.array([3.0, 7.0, 10.0])
    one, other = make(penalty, costs), make(penalty * factor, costs * factor)
    assert np.array_equal(one.unit_costs, other.unit_costs)
    assert np.array_equal(one.unit_penalty, other.unit_penalty)


def test_the_first_observation_is_paid_for_and_delays_add_up():
    problem = make(costs=[0.5], delay=[1.0, 2.0, 0.0, 4.0, 1.0])
    assert problem.spent(np.array([1, 2, 3, 4]), 0.5).tolist() == [0.5, 1.5, 1.5, 3.5]
    assert problem.scale * problem.next_cost(3)[0] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"costs": [0.0]}, "positive"),
        ({"costs": [-1.0]}, "positive"),
        ({"costs": []}, "at least one"),
        ({"costs": [np.nan]}, "finite"),
        ({"costs": [0.1, 0.1]}, "differ"),
        ({"costs": [6.7]}, "below 6.66667.*observe twice"),
        ({"penalty": -1.0}, "non-negative"),
        ({"penalty": [1.0, 2.0]}, r"\(3,\) vector"),
        ({"penalty": np.inf}, "finite"),
        ({"penalty": 0.0}, "depend on the class"),
        ({"penalty": np.full((3, 3), 5.0)}, "depend on the class"),
        ({"penalty": "ten"}, "numeric"),
        ({"penalty": [[0.0, 1.0], [1.0]]}, "numeric"),
        ({"costs": [[0.1], [0.1, 0.2]]}, "numeric"),
        ({"costs": [[0.1]]}, "shape"),
        ({"costs": [1e-300]}, "of the penalty"),
        ({"costs": [1.0], "delay": [1.0, 10.0, 0.001, 0.001, 0.001]}, "second observation"),
        ({"classes": 1}, "at least 2"),
        ({"horizon": 1}, "at least 2"),
        ({"delay": [1.0]}, "shape"),
        ({"delay": [1.0, -1.0, 1.0, 1.0, 1.0]}, "non-negative"),
    ],
)
def test_bad_problems_are_refused_with_name_rule_and_value(arguments, message):
    with pytest.raises(InvalidInput, match=message) as caught:
        make(**arguments)
    assert caught.value.name in str(caught.value)


def test_the_largest_useful_cost_is_the_value_of_the_matrix_game():
    # Two classes with penalties 1 and 3: the worst belief is where 1 (1 - p) = 3 p, and the risk there is 3/4.
    with pytest.raises(InvalidInput, match=r"below 0\.75"):
        make([1.0, 3.0], costs=[0.75], classes=2)
    assert make([1.0, 3.0], costs=[0.749], classes=2).costs.tolist() == [0.749]
    # What is lost whatever one decides cannot be gained by looking: 5 of these 10 remain.
    with pytest.raises(InvalidInput, match=r"below 2\.5"):
        make([[5.0, 10.0], [10.0, 5.0]], costs=[3.0], classes=2)


def test_no_look_goes_below_the_risk_that_knowing_the_class_leaves():
    problem = make([[1.0, 4.0], [3.0, 2.0]], costs=[0.1], classes=2)
    assert problem.scale * problem.least_risk(np.array([[0.25, 0.75]])) == pytest.approx([0.25 * 1 + 0.75 * 2])


def test_costs_are_found_by_value():
    problem = make(costs=[0.1, 0.2])
    assert problem.cost_index(0.2) == 1
    with pytest.raises(InvalidInput, match=r"one of \[0.1, 0.2\]"):
        problem.cost_index(0.3)
    with pytest.raises(InvalidInput, match="named"):
        problem.cost_index(None)


def test_ties_go_to_the_lowest_index_whatever_the_number_of_rows():
    problem = DecisionProblem.create(classes=7, horizon=5, penalty=10.0, costs=[0.1])
    scores = np.random.default_rng(0).integers(-2, 2, (300, 7)).astype(float)
    belief = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    together = problem.best_label(belief)
    assert together.tolist() == [int(problem.best_label(row)) for row in belief]
    assert together.tolist() == scores.argmax(axis=1).tolist()
