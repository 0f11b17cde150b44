"""The command line: `firmbound fit`, `decide`, `front`, `stream`, `drift`, `register`, `promote`, `models`;
`logs` and `doctor` look after a project.

Everything heavy is imported by the command that needs it, so that help comes at once.
"""

import io
import json
import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli_errors import one_line_errors
from flows.cli_watch import doctor, logs

if TYPE_CHECKING:
    from firmbound.early_classifier import EarlyClassifier

app = typer.Typer(
    name="firmbound",
    help="Decide when to stop looking: classify series as early as is safe.",
    epilog="Data are .npz files with X (n, T, d), y (n,) and, where series end early, lengths (n,); or a .zarr store.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

Model = Annotated[str, typer.Argument(help="A saved folder, or a registered model: models:/firmbound-gauss2@champion")]
Data = Annotated[Path, typer.Argument(help=".npz with X (n, T, d), y, lengths; .npy with X; or a .zarr store")]
Cost = Annotated[float | None, typer.Option(help="Cost of one observation, one of the front's.")]
Seed = Annotated[int, typer.Option(help="Makes the result repeatable.")]


class Evidence(StrEnum):
    AUTO = "auto"
    NETWORK = "network"
    LOGISTIC = "logistic"
    POSTERIORS = "posteriors"
    GIVEN = "given"


class Method(StrEnum):
    AUTO = "auto"
    CFL = "cfl"
    GP = "gp"


class Refine(StrEnum):
    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@app.command()
def fit(
    data: Data,
    folder: Annotated[Path, typer.Argument(help="Where the classifier is saved; must not exist yet.")],
    cost: Annotated[float, typer.Option(help="Cost of one observation.")] = 0.2,
    penalty: Annotated[float, typer.Option(help="Cost of a wrong decision.")] = 10.0,
    evidence: Annotated[
        Evidence,
        typer.Option(help="Who reads X: a network, logistic regressions of prefixes, or X is beliefs already."),
    ] = Evidence.AUTO,
    method: Annotated[Method, typer.Option(help="How the boundary is fitted.")] = Method.AUTO,
    refine: Annotated[Refine, typer.Option(help="Whether evidence learns to remember its past.")] = Refine.AUTO,
    order: Annotated[int | None, typer.Option(help="Network: observations that the series remembers.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Network: passes over the data.")] = None,
    skip_missing: Annotated[bool, typer.Option(help="Leave observations with a NaN out.")] = False,
    seed: Seed = 0,
) -> None:
    """Learn a classifier from labelled series and save it.

    **Example**: `firmbound fit train.npz my-classifier --cost 0.2 --order 1`
    """
    with one_line_errors():
        from firmbound.early.learning import usual_training
        from firmbound.early_classifier import EarlyClassifier
        from firmbound.errors import InvalidInput
        from firmbound.tandem.options import NetworkOptions
        from flows.cli_data import read_data
        from flows.cli_tables import show_front
        from flows.progress import progress

        if folder.exists():
            raise InvalidInput("folder", "not exist yet", folder, "Choose another, or remove it first.")
        beliefs = evidence in (Evidence.POSTERIORS, Evidence.GIVEN)
        X, y, lengths = read_data(data, labels=True, beliefs=beliefs)
        source: Any = evidence.value
        if evidence is Evidence.LOGISTIC:
            from sklearn.linear_model import LogisticRegression

            source = LogisticRegression(max_iter=2000)
        classifier = EarlyClassifier(
            cost,
            penalty,
            evidence=source,
            method=method.value,
            network=None if order is None else NetworkOptions(order=order),
            training=None if epochs is None else replace(usual_training(len(X) // 2, seed), epochs=epochs),
            missing="skip" if skip_missing else "refuse",
            refine=refine.value,
            seed=seed,
        )
        with progress(f"fitting on {len(X):,} series") as advance:
            classifier.fit(X, y, lengths=lengths, progress=lambda done, total, *_: advance(done, total))
        classifier.save(folder)
        if classifier.record_ is not None:
            points = classifier.record_.points(classifier.rule_)
            show_front(points, classifier.cost, f"on {classifier.record_.sequences:,} held-out series")
        told = f"{'refined' if classifier.about_['refined'] else 'not refined'}: {classifier.about_['refinement']}"
        print(f"evidence: {classifier.about_['evidence']}; {told}; saved in {folder}", file=sys.stderr)


@app.command()
def decide(
    model: Model,
    data: Data,
    cost: Cost = None,
    error: Annotated[float | None, typer.Option(help="Instead of a cost: err in at most this share, surely.")] = None,
    time: Annotated[float | None, typer.Option(help="Instead of a cost: mean number of observations.")] = None,
    out: Annotated[Path | None, typer.Option(help="CSV file to write instead of printing.")] = None,
) -> None:
    """Decide whole series: a CSV line for each, with the number of observations used and the label.

    **Example**: `firmbound decide my-classifier new.npz --error 0.05 --out decisions.csv`
    """
    with one_line_errors():
        from flows.cli_data import read_data, reads_beliefs, write_decisions

        classifier = _load(model, cost, error, time)
        X, y, lengths = read_data(data, labels=False, beliefs=reads_beliefs(classifier))
        chosen = classifier.decide(X, lengths)
        said = f"{len(chosen):,} series at cost {classifier.cost:g}: {chosen.time.mean():.2f} observations on average"
        if y is not None:
            wrong = classifier.encode(y, len(chosen)) != classifier.encode(chosen.label, len(chosen))
            said += f", {100 * wrong.mean():.2f} % wrong"
        write_decisions(chosen, out)
        print(said, file=sys.stderr)


@app.command()
def front(
    model: Model,
    data: Data,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list instead of a table.")] = False,
) -> None:
    """Error, time, believed and realised risk at every cost of the front, on labelled series.

    **Example**: `firmbound front models:/firmbound-gauss2@champion test.npz`
    """
    with one_line_errors():
        from dataclasses import asdict

        from flows.cli_data import read_data, reads_beliefs
        from flows.cli_tables import say_alarms, show_front

        classifier = _load(model)
        X, y, lengths = read_data(data, labels=True, beliefs=reads_beliefs(classifier))
        points = classifier.front(X, y, lengths)
        if as_json:
            print(json.dumps([asdict(point) for point in points]))
            say_alarms(points)
        else:
            show_front(points, classifier.cost, f"on {len(X):,} series")


@app.command()
def stream(
    model: Model,
    cost: Cost = None,
    every: Annotated[bool, typer.Option(help="A line for every observation, not for decisions alone.")] = False,
) -> None:
    """Read observations as JSON lines, print a JSON line for each decision as soon as it is made.

    A line is `{"id": "gate-3", "x": [0.1, 2.3]}`; `{"id": "gate-3", "end": true}` ends a series, and the id may begin a
    new one. Series that are still open when the input ends are decided then.

    **Example**: `tail -f observations.jsonl | firmbound stream my-classifier`
    """
    with one_line_errors():
        from flows.cli_stream import serve_lines

        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")  # what is no text is no JSON, and reported with its line
        bad = serve_lines(_load(model, cost), sys.stdin, sys.stdout, sys.stderr, every=every)
    if bad:
        raise typer.Exit(1)


@app.command()
def drift(
    model: Model,
    data: Data,
    cost: Cost = None,
    level: Annotated[float, typer.Option(help="Chance of any false alarm.")] = 0.05,
) -> None:
    """Compare new series with what the classifier did when it was fitted. Labels, if there are any, are used.

    Ends with exit code 3 if something changed.

    **Example**: `firmbound drift models:/firmbound-gauss2@champion last-week.npz`
    """
    with one_line_errors():
        from flows.cli_data import read_data, reads_beliefs
        from flows.cli_tables import show_table

        classifier = _load(model, cost)
        found = classifier.drift(*read_data(data, labels=False, beliefs=reads_beliefs(classifier)), level)
        rows = [
            [
                change.what,
                f"{change.before:.4g}",
                f"{change.now:.4g}",
                f"{change.p:.2g}",
                "yes" if change.changed else "no",
            ]
            for change in found.changes
        ]
        title = f"{found.new:,} new series against {found.held_out:,} held-out ones"
        show_table(title, ["what", "then", "now", "p, corrected", "changed"], rows)
    if found.found:
        raise typer.Exit(3)


@app.command()
def register(
    folder: Annotated[Path, typer.Argument(help="A saved classifier.")],
    name: Annotated[str, typer.Argument(help="Registered as firmbound-NAME.")],
    test: Annotated[Path | None, typer.Option(help="Labelled series to judge it against the champion by.")] = None,
) -> None:
    """Put a saved classifier into the MLflow registry, where it challenges the champion.

    **Example**: `firmbound register my-classifier engines --test test.npz`
    """
    with one_line_errors():
        from firmbound.early_classifier import EarlyClassifier
        from flows.cli_data import read_data, reads_beliefs
        from flows.promotion import of_arrays
        from flows.registry import model_name, one_at_a_time, register_classifier, standings

        model_name(name)  # a name that cannot be is refused before anything is touched
        classifier, parts = EarlyClassifier.load(folder), None
        if test is not None:
            parts = of_arrays(classifier, *read_data(test, labels=True, beliefs=reads_beliefs(classifier)))
        with one_at_a_time():
            version = register_classifier(folder, name, parts=parts)
        (found,) = [one for one in standings(model_name(name)) if one.version == version]
        print(f"{found.name} version {version}: {', '.join(found.aliases) or 'no alias'} ({found.reason})")


@app.command()
def promote(
    name: Annotated[str, typer.Argument(help="As it was registered, without firmbound-.")],
    version: Annotated[str, typer.Argument(help="The version to make champion.")],
    reason: Annotated[str, typer.Option(help="Written down with it.")],
) -> None:
    """Make a version the champion by hand, where test data alone do not decide.

    **Example**: `firmbound promote gauss2 4 --reason "the costs we now have"`
    """
    with one_line_errors():
        from flows.registry import one_at_a_time, promote_by_hand

        with one_at_a_time():
            promote_by_hand(name, version, reason)
        print(f"firmbound-{name} version {version} is champion")


@app.command()
def models(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list instead of a table.")] = False,
) -> None:
    """What the MLflow registry holds: versions, who is champion, and why.

    **Example**: `firmbound models`
    """
    with one_line_errors():
        from dataclasses import asdict

        from flows.cli_tables import show_table
        from flows.registry import standings

        found = standings()
        if as_json:
            print(json.dumps([asdict(one) for one in found]))
        elif not found:
            print("The registry holds no model of firmbound yet: `make run` or `firmbound register`.")
        else:
            rows = [[one.name, one.version, ", ".join(one.aliases), one.reason] for one in found]
            show_table("registered models", ["model", "version", "alias", "why"], rows)


app.command()(logs)
app.command()(doctor)


def _load(
    model: str, cost: float | None = None, error: float | None = None, time: float | None = None
) -> "EarlyClassifier":
    from firmbound.early_classifier import EarlyClassifier
    from firmbound.errors import InvalidInput

    if sum(choice is not None for choice in (cost, error, time)) > 1:
        raise InvalidInput("cost, error and time", "be given one at a time", "several")
    if model.startswith("models:/"):
        from flows.registry import load_classifier

        classifier = load_classifier(model)
    else:
        classifier = EarlyClassifier.load(model)
    if cost is not None:
        return classifier.at_cost(cost)
    if error is not None:
        return classifier.at_error(error)
    return classifier if time is None else classifier.at_time(time)


if __name__ == "__main__":
    app()
