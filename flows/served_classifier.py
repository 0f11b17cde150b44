"""The registered model as MLflow loads it (models from code): prefixes in, decisions out. No pickle.

What goes in is what the classifier reads: features, or, where it was fitted on beliefs, evidence or posteriors.
"""

from typing import Any

import numpy as np
import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel, PythonModelContext
from numpy.typing import NDArray

from firmbound.early.prefix_decisions import decide_prefixes
from firmbound.early_classifier import EarlyClassifier


class ServedClassifier(PythonModel):  # type: ignore[misc]
    def load_context(self, context: PythonModelContext) -> None:
        self.classifier = EarlyClassifier.load(context.artifacts["classifier"])

    def predict(
        self,
        context: PythonModelContext,
        model_input: np.ndarray,
        params: dict[str, Any] | None = None,
    ) -> pd.DataFrame:
        """(n, t, d) of t observations so far -> a row a sequence: decided, label, time, posterior, risks.

        `time` is when the decision fell, or t where none has; risks and posterior are those at that time. What there is
        no number for (the continuation risk at the horizon, the deviation of a method without one) is None.
        """
        chosen = params or {}
        cost = chosen.get("cost")
        classifier = self.classifier if cost is None else self.classifier.at_cost(cost)
        found = decide_prefixes(classifier, np.asarray(model_input), ended=bool(chosen.get("ended", False)))
        return pd.DataFrame({name: _column(values) for name, values in found.items()})


def _column(values: NDArray[Any]) -> pd.Series:
    """A column that JSON knows: whoever asks over HTTP must be able to read the answer."""
    if values.ndim > 1:
        return pd.Series(values.tolist(), dtype=object)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        return pd.Series([value if np.isfinite(value) else None for value in values.tolist()], dtype=object)
    return pd.Series(values)


set_model(ServedClassifier())
