"""params.yaml as checked, frozen values: an unknown, missing or impossible entry is one clear error before any work."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from pydantic import ValidationError

from firmbound.continuation.convex import ConvexOptions
from firmbound.datasets import FeatureProblem, GeneratedProblem
from firmbound.errors import InvalidInput, ParameterError
from firmbound.tandem.options import check_sizes
from flows.recorded_sections import RecordedFeatures, VideoFeatures
from flows.schedule_section import check_schedule
from flows.sections import SPLITS, Evaluation, GeneratedFeatures, Params, Runner
from flows.sources import PLAIN_NAME
from flows.study_section import GROUPS, HEADS, Study
from flows.tandem_section import GivenEvidence, LearnedEvidence

__all__ = [
    "SPACES",
    "SPLITS",
    "Evaluation",
    "GeneratedFeatures",
    "GivenEvidence",
    "LearnedEvidence",
    "Params",
    "RecordedFeatures",
    "Runner",
    "VideoFeatures",
    "check_dataset_name",
    "is_space",
    "read_params",
    "study_of",
]
# Files of search spaces.
SPACES = Path("params/search")
# Beside the data sets' folders below data/.
TAKEN_NAMES = ("sources", "baselines", "experiments", "study")


def read_params(path: str | Path = "params.yaml") -> Params:
    """Read, check types and keys, then check that every data set's numbers make a problem that can be solved."""
    file = Path(path)
    if not file.is_file():
        raise ParameterError(str(file), "exist", "no such file", "Run from the project's root.")
    try:
        params = Params.model_validate(yaml.safe_load(file.read_text()))
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        raise ParameterError(str(file), "be YAML", str(problem).replace("\n", " ")) from None
    except ValidationError as problem:
        raise _explain(problem) from None
    check_schedule(params.schedule)
    for dataset in params.datasets:
        _check_dataset(params, dataset)
    return params


def check_dataset_name(params: Params, dataset: str) -> str:
    if dataset not in params.datasets:
        raise ParameterError("dataset", f"be one of {params.datasets} (params.yaml: datasets)", repr(dataset))
    return dataset


def study_of(params: Params) -> Study:
    unknown = [name for name in params.study.datasets if name not in params.datasets]
    if unknown:
        raise ParameterError("study.datasets", f"be some of {params.datasets}", unknown)
    apart = [name for name in params.study.rivals if name not in params.study.datasets]
    if apart:
        raise ParameterError("study.rivals", f"be some of {params.study.datasets}", apart)
    strangers = [name for name in params.study.leave_out if name not in GROUPS]
    if strangers:
        raise ParameterError("study.leave_out", f"be some of {GROUPS}", strangers)
    if len(set(params.study.costs)) < len(params.study.costs):
        raise ParameterError("study.costs", "be different ones", params.study.costs)
    if params.study.search is not None and not is_space(params.study.search):
        raise ParameterError("study.search", f"name a file of {SPACES}, or be null", repr(params.study.search))
    if params.study.networks.channels % HEADS:
        raise ParameterError("study.networks.channels", f"be a multiple of {HEADS}", params.study.networks.channels)
    return params.study


def is_space(name: str) -> bool:
    """Whether a search space has this name; one with a path in it has not."""
    return re.fullmatch(PLAIN_NAME, name) is not None and (SPACES / f"{name}.yaml").is_file()


def _check_dataset(params: Params, dataset: str) -> None:
    if dataset in TAKEN_NAMES or not re.fullmatch(PLAIN_NAME, dataset):
        rule = f"be names of folders, of letters, digits, dots, dashes and underscores, other than {TAKEN_NAMES}"
        raise ParameterError("datasets", rule, repr(dataset))
    for name in ("features", "tandem", "refinement", "boundary"):
        if dataset not in getattr(params, name):
            raise ParameterError(f"{name}.{dataset}", "be given, since `datasets` names it", "nothing")
    section = params.features[dataset]
    try:
        _check_refinement(params, dataset)
        if isinstance(section, RecordedFeatures):
            _check_recorded(section, params, dataset)
            return
        problem = section.problem("train")
        _check_evidence(params.tandem[dataset], problem)
        boundary = params.boundary[dataset]
        options = boundary.options()
        if isinstance(options, ConvexOptions):
            options.check_classes(problem.classes)
        boundary.decision_problem(classes=problem.classes, horizon=problem.horizon)
    except InvalidInput as found:
        raise ParameterError(f"{dataset}: {found.name}", found.rule, found.got, found.advice) from None


def _check_recorded(section: RecordedFeatures, params: Params, dataset: str) -> None:
    """What can be known without opening the files; sizes are checked by the stage that reads them."""
    section.sequence_options()
    params.boundary[dataset].options()
    if isinstance(section, VideoFeatures):
        check_frames(section)
    evidence = params.tandem[dataset]
    if isinstance(evidence, LearnedEvidence):
        evidence.options()
        _check_folds(section, evidence)
    if isinstance(evidence, GivenEvidence) == (section.held == "features"):
        rule = "be learned, since there are only features" if section.held == "features" else "be given"
        raise InvalidInput(
            "evidence", f"{rule} (tandem.{dataset}; features.{dataset} holds {section.held})", evidence.evidence
        )


def _check_folds(section: RecordedFeatures, evidence: LearnedEvidence) -> None:
    """Folds are drawn sequence by sequence, which keeps nobody apart who has several."""
    if evidence.folds is None:
        return
    rule = "be null, since sequences of one {} would lie in several folds"
    advice = "Fit rules on validation sequences instead (boundary: fit_on: validation)."
    if section.split.by == "group":
        raise InvalidInput("folds", rule.format("group"), evidence.folds, advice)
    if section.windows is not None and section.windows.segment is not None:
        raise InvalidInput("folds", rule.format("series"), evidence.folds, advice)


def _check_refinement(params: Params, dataset: str) -> None:
    options = params.refinement[dataset].options()
    if options.inputs == "features" and isinstance(params.tandem[dataset], GivenEvidence):
        rule = f"be evidence, since decisions are made from evidence alone (tandem.{dataset})"
        raise InvalidInput("inputs", rule, options.inputs)


def check_frames(section: VideoFeatures) -> None:
    from firmbound.datasets.clips import FrameOptions

    FrameOptions(frames=section.frames, every=section.every, resize=section.resize, crop=section.crop)


def _check_evidence(section: GivenEvidence | LearnedEvidence, problem: GeneratedProblem) -> None:
    if isinstance(section, GivenEvidence):
        return
    if not isinstance(problem, FeatureProblem):
        raise InvalidInput("evidence", "be given, since there are no features to learn it from", "learned")
    network, training = section.options()
    check_sizes(network, training, sequences=problem.sequences, horizon=problem.horizon)


def _explain(problem: ValidationError) -> ParameterError:
    """The first of pydantic's findings, in the house's words."""
    first = problem.errors()[0]
    # pydantic names the branch of a union in the path, after section and data set; nobody wrote that part.
    branches = {
        "gaussian",
        "autoregressive",
        "oscillating",
        "digits",
        "archive",
        "arrays",
        "video",
        "given",
        "learned",
        "cfl",
        "gp",
        "float",
        "list[float]",
        "list[list[float]]",
        "constrained-float",
        "literal['cv']",
    }
    # What is missing or unknown is a key, whatever its name; `arrays` is one, too.
    last = len(first["loc"]) - 1 if first["type"] in {"missing", "extra_forbidden"} else -1
    named = [str(part) for depth, part in enumerate(first["loc"]) if depth in {0, 1, last} or part not in branches]
    place = ".".join(named) or "params.yaml"
    more = f" ({problem.error_count() - 1} more like this)" if problem.error_count() > 1 else ""
    if first["type"] == "extra_forbidden":
        advice = f"Correct its spelling or remove it.{more}"
        return ParameterError(place, "be a known key", f"an unknown one with value {first['input']!r}", advice)
    if first["type"] in {"union_tag_invalid", "union_tag_not_found"}:
        place = f"{place}.{first['ctx']['discriminator'].strip(chr(39))}"
    if first["type"] == "union_tag_invalid":
        chosen = first["ctx"]
        return ParameterError(place, f"be one of {chosen['expected_tags']}", repr(chosen["tag"]), more.strip())
    if first["type"] in {"missing", "union_tag_not_found"}:
        return ParameterError(place, "be given", "nothing", f"See params.yaml of the release for its meaning.{more}")
    return ParameterError(place, f"be valid: {first['msg'].lower()}", repr(first["input"]), more.strip())
