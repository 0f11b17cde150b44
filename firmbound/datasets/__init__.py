"""Problems with known answers, generated block by block.

A data set is a frozen description: the same description gives the same numbers, whichever blocks are made, in whatever
order, by however many workers.
"""

from firmbound.datasets.autoregressive import AutoregressiveProblem, autoregressive
from firmbound.datasets.gaussian import GaussianProblem, gaussian
from firmbound.datasets.generated import BLOCK_ROWS, FeatureProblem, GeneratedProblem
from firmbound.datasets.oscillating import OscillatingProblem, oscillating

__all__ = [
    "BLOCK_ROWS",
    "AutoregressiveProblem",
    "FeatureProblem",
    "GaussianProblem",
    "GeneratedProblem",
    "OscillatingProblem",
    "autoregressive",
    "gaussian",
    "oscillating",
]
