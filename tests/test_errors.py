import pickle

import numpy as np
import pytest

from firmbound.errors import BundleError, InvalidInput, NumericalError, ParameterError, TrainingDiverged


@pytest.mark.parametrize(
    "error",
    [
        InvalidInput("penalty", "be positive", np.array([-1.0]), "Give another."),
        ParameterError("boundary.costs", "be given", "nothing"),
        NumericalError("The solver failed", step=3, residual=0.1, tolerance=0.01),
        TrainingDiverged(float("nan"), step=7, rate=0.1, advice="Lower it."),
        BundleError("no such bundle"),
    ],
)
def test_errors_are_whole_in_another_process(error):
    """Pools and clusters send errors by pickle; one that cannot be rebuilt there would hide what happened."""
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert set(vars(again)) == set(vars(error))
    if isinstance(error, InvalidInput):
        assert (again.name, again.rule, again.advice) == (error.name, error.rule, error.advice)
