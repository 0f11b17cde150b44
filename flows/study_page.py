"""The study's page: which figures there are, from what, and the words under them."""

from pathlib import Path
from typing import Any

from firmbound.evaluation.paired_tests import Ranking
from firmbound.report import experiment_figures, study_figures
from firmbound.report.page import Section, render_study
from firmbound.study.findings import OURS, pooled_curve
from firmbound.study.repeats import Repeat, by_dataset, methods_of
from firmbound.study.table import Row

# Rivals whose beliefs nobody calibrated, beside two that somebody did.
BELIEVERS = ("firmbound-cfl", "gru-threshold", "lstm-s", "lstm-m", "earliest", "tcn-transformer", "calimera")


def sections_of(
    repeats: list[Repeat], rows: list[Row], variances: list[Row], ranks: Ranking | None, tried: list[Row]
) -> list[Section]:
    """All figures. rows: the study's table; tried: that of the side experiments."""
    found = [*_curves(repeats, rows), *_beliefs(rows)]
    if ranks is not None:
        words = f"Ranks by realised risk, a data set a block (Friedman p = {ranks.chance:.2g}); a bar joins equals."
        found.append(Section("ranks", "Ranks", words, study_figures.critical_difference(ranks)))
    if variances:
        words = "Each point is one repeat and cost, at the same mean time."
        drawn = study_figures.variance_of_time(variances)
        found.append(Section("variance_figure", "Variance of the hitting time", words, drawn))
    words = "The rivals of the ablation: concave, straight and convex."
    tapering = Section("tapering", "Thresholds that sink by hand", words, study_figures.tapering_curves())
    return [*found, tapering, *_experiments(tried)]


def _curves(repeats: list[Repeat], rows: list[Row]) -> list[Section]:
    curves = {
        dataset: {method: pooled_curve(own, method) for method in methods_of(own) if method != "random"}
        for dataset, own in by_dataset(repeats).items()
    }
    return [
        Section(
            "speed_accuracy",
            "Speed and accuracy",
            "Error against mean number of observations: lower left is better. Bands and bars are one standard error.",
            study_figures.speed_accuracy_curves(curves),
        ),
        Section(
            "realised_risk",
            "Realised risk",
            "What decisions cost, relative to the best static threshold on the same evidence: below 0 is cheaper.",
            study_figures.risks_by_cost(rows, "realised_risk"),
        ),
        Section(
            "aapr",
            "Believed risk",
            "What methods believe that they pay. Where beliefs are not calibrated, this is too good to be true.",
            study_figures.risks_by_cost(rows, "aapr"),
        ),
    ]


def _beliefs(rows: list[Row]) -> list[Section]:
    """Where rivals with beliefs of their own took part."""
    strangers = {row["dataset"] for row in rows if row["method"] in BELIEVERS and row["method"] not in OURS}
    own = [row for row in rows if row["dataset"] in strangers and row["method"] in BELIEVERS]
    if not own:
        return []
    middle = len({row["cost"] for row in own if row["dataset"] == own[0]["dataset"]}) // 2
    return [
        Section(
            "beliefs",
            "Beliefs beside errors",
            "Believed risk, realised risk and error of rivals in all their ways. A belief far below what is paid is "
            "overconfidence: ranks by belief are then not ranks by error.",
            study_figures.beliefs_beside_errors(own, BELIEVERS, middle),
        )
    ]


def _experiments(tried: list[Row]) -> list[Section]:
    """On the paper's Gaussian problems, where the exact optimum is known."""

    def of(*names: str) -> list[Row]:
        return [row for row in tried if row["experiment"] in names]

    return [
        Section(
            "small_data",
            "Small data",
            "Three Gaussian classes, with fewer and fewer training sequences; bars are what repeats differ by.",
            experiment_figures.small_data(of("small data")),
        ),
        Section(
            "statistic",
            "What a Gaussian process sees",
            "Two Gaussian classes: log-likelihood ratios, or posteriors.",
            experiment_figures.statistics(of("statistic")),
        ),
        Section(
            "options",
            "Sensitivity to options",
            "Two Gaussian classes: risk above the exact optimum, by options of either estimator.",
            experiment_figures.option_sensitivity(of("process options", "convex options")),
        ),
        Section(
            "looks",
            "What a look takes",
            "One continuation risk of three classes: our estimators, and Monte Carlo over a kernel density.",
            experiment_figures.seconds_of_a_look(of("one look")),
        ),
        Section(
            "fitting",
            "What fitting takes",
            "A whole backward induction of three classes and all costs, CPU time.",
            experiment_figures.seconds_of_fitting(of("small data")),
        ),
    ]


def write_page(folder: Path, sections: list[Section], found: dict[str, Any]) -> None:
    (folder / "figures").mkdir()
    for section in sections:
        section.figure.savefig(folder / "figures" / f"{section.name}.png", dpi=130)
    (folder / "index.html").write_text(render_study(found, sections))
