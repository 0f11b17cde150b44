"""What tests share: small problems, fitted once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import firmbound
from firmbound.datasets import GaussianProblem
from firmbound.stopping_rule import StoppingRule

# The same examples on every run: a red build must be repeatable.
settings.register_profile(
    "firmbound", deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("firmbound")

COSTS = [0.05, 0.3]
RULES = ["two_class_rule", "three_class_rule", "two_class_process", "three_class_process"]
RULES += ["ranked_rule", "ranked_process"]
LONG = [
    "test_pipeline",
    "test_pipeline_recorded",
    "test_serve",
    "test_remote",
    "test_study",
    "test_early_classifier",
    "test_registry",
]
LONG += ["test_training", "test_own_evidence", "test_oracle"]
# Files that run the pipeline share a project, which takes a minute to make. Two projects, one a worker, for one worker
# with all of these files would still be at them long after the other has ended.
PROJECTS = {
    "stages": ["test_pipeline"],
    "recordings, pages, servers": [
        "test_pipeline_recorded",
        "test_pipeline_watch",
        "test_pipeline_pages",
        "test_serve",
        "test_remote",
    ],
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take minutes come first: begun last, one of them would keep one worker busy and the other idle."""
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Workers take file by file, and all files of a project together."""
    from xdist.scheduler import LoadFileScheduling

    class ByProject(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = str(super()._split_scope(nodeid))
            stem = Path(file).stem
            return next((name for name, files in PROJECTS.items() if stem in files), file)

    return ByProject(config, log)


@pytest.fixture(scope="session")
def two_classes() -> GaussianProblem:
    return firmbound.datasets.gaussian(classes=2, sequences=6_000, horizon=12, seed=7, dimension=3, separation=0.8)


@pytest.fixture(scope="session")
def three_classes() -> GaussianProblem:
    return firmbound.datasets.gaussian(classes=3, sequences=6_000, horizon=8, seed=8, dimension=3, separation=0.8)


@pytest.fixture(scope="session")
def two_class_rule(two_classes: GaussianProblem) -> StoppingRule:
    return firmbound.fit_stopping_rule(two_classes.evidence, costs=COSTS, penalty=10.0)


@pytest.fixture(scope="session")
def three_class_rule(three_classes: GaussianProblem) -> StoppingRule:
    options = firmbound.ConvexOptions(points=60)
    return firmbound.fit_stopping_rule(three_classes.evidence, costs=COSTS, penalty=10.0, options=options)


@pytest.fixture(scope="session")
def two_class_process(two_classes: GaussianProblem) -> StoppingRule:
    return firmbound.fit_stopping_rule(two_classes.evidence, costs=COSTS, penalty=10.0, method="gp")


@pytest.fixture(scope="session")
def three_class_process(three_classes: GaussianProblem) -> StoppingRule:
    return firmbound.fit_stopping_rule(three_classes.evidence, costs=COSTS, penalty=10.0, method="gp")


@pytest.fixture(scope="session")
def ranked_rule(three_classes: GaussianProblem) -> StoppingRule:
    """Of three alike classes ranks say all there is to know."""
    return firmbound.fit_stopping_rule(three_classes.evidence, costs=COSTS, penalty=10.0, statistic="ranked")


@pytest.fixture(scope="session")
def ranked_process(three_classes: GaussianProblem) -> StoppingRule:
    return firmbound.fit_stopping_rule(
        three_classes.evidence, costs=COSTS, penalty=10.0, method="gp", statistic="ranked"
    )


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(11)


@pytest.fixture(autouse=True)
def _strict_numpy() -> None:
    """Overflow, division by zero and invalid values are errors everywhere in the library."""
    np.seterr(all="raise", under="ignore")
