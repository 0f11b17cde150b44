"""Which evidence the stages after `refinement` go by: refined where that was chosen, else as `tandem` left it."""

import json
from pathlib import Path
from typing import Any

from firmbound.refinement.refiner import Refiner
from firmbound.store import TrajectoryStore
from flows.stage import stage_folder

REFINER, CHOICE = "refiner", "choice.json"


def evidence_store(dataset: str, split: str) -> TrajectoryStore:
    stage = "refinement" if _refiner_folder(dataset).is_dir() else "tandem"
    return TrajectoryStore(stage_folder(dataset, stage) / f"{split}.zarr")


def refiner_of(dataset: str) -> Refiner | None:
    """What refined the evidence; None where it is as it was."""
    folder = _refiner_folder(dataset)
    return Refiner.load(folder) if folder.is_dir() else None


def choice_of(dataset: str) -> dict[str, Any]:
    """What was chosen and why, as `refinement.choice.Choice` has it."""
    found: dict[str, Any] = json.loads((stage_folder(dataset, "refinement") / CHOICE).read_text())
    return found


def _refiner_folder(dataset: str) -> Path:
    return stage_folder(dataset, "refinement") / REFINER
