"""The registered model as MLflow loads it (models from code): prefixes in, decisions out. No pickle.

Where evidence was learned the network is part of the model, and features go in; else evidence does.
"""

from typing import Any

import numpy as np
import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel, PythonModelContext

from firmbound.errors import InvalidInput
from firmbound.stopping_rule import StoppingRule


class ServedRule(PythonModel):  # type: ignore[misc]
    def load_context(self, context: PythonModelContext) -> None:
        self.rule = StoppingRule.load(context.artifacts["rule"])
        self.network = None
        if "network" in context.artifacts:
            from firmbound.tandem.model import TandemModel  # torch, which a rule alone does not need

            self.network = TandemModel.load(context.artifacts["network"])

    # MLflow reads type hints of `model_input` as a schema; the signature says it better, so there are none.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        """(n, t, d) features or (n, t, K) evidence of t observations, t in 1..T -> a row a sequence.

        A row holds decided, label, time, risks, posterior.

        `time` is when the decision fell, or t where none has; risks and posterior are those at that time. `deviation`
        is the continuation risk's, nan where the rule's method gives none.
        """
        given = np.asarray(model_input, dtype=np.float64)
        if given.ndim != 3 or given.shape[1] < 1:
            raise InvalidInput("model_input", "have shape (n, t, ..) with t >= 1", f"shape {given.shape}")
        evidence = given if self.network is None else self.network.evidence(given)
        cost = (params or {}).get("cost")
        rows: dict[int, dict[str, Any]] = {}
        waiting = np.arange(len(evidence))
        for t in range(1, evidence.shape[1] + 1):
            outlook = self.rule.outlook(evidence[waiting, t - 1], t=t, cost=cost)
            settled = outlook.decided | (t == evidence.shape[1])
            for place in np.flatnonzero(settled):
                rows[int(waiting[place])] = {
                    "decided": bool(outlook.decided[place]),
                    "label": int(outlook.label[place]),
                    "time": t,
                    "stopping_risk": float(outlook.stopping_risk[place]),
                    "continuation_risk": float(outlook.continuation_risk[place]),
                    "deviation": float(outlook.deviation[place]),
                    "posterior": outlook.posterior[place].tolist(),
                }
            waiting = waiting[~settled]
        return pd.DataFrame([rows[index] for index in range(len(evidence))])


set_model(ServedRule())
