"""The scale of a data set's features, as the stage `features` left it."""

from firmbound.scaling import Scaling
from flows.stage import stage_folder


def scaling_of(dataset: str) -> Scaling | None:
    folder = stage_folder(dataset, "features") / "scaling"
    return Scaling.load(folder) if folder.is_dir() else None
