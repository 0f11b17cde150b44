import base64
import hashlib
import html
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import firmbound
from firmbound.baselines.static_threshold import sweep
from firmbound.evaluation.score import score
from firmbound.report import figures
from firmbound.report.overview import overview_of
from firmbound.report.page import Section, inline_svg, render_page
from firmbound.report.page_data import page_data
from firmbound.temperature import in_words
from flows.report import doubt_at_decisions
from tests.conftest import COSTS

HEIGHTS = [0.5, 1.0, 2.0]


def rows_of(rule, problem):
    rows = []
    for cost in COSTS:
        arguments = {
            "evidence": problem.evidence,
            "labels": problem.labels,
            "prior": rule.prior,
            "problem": rule.problem,
            "cost": cost,
        }
        for method, decisions, extra in [
            ("firmbound", rule.decide(problem.evidence, cost=cost), {"regret": 0.0012}),
            *[
                ("static", d, {"threshold": height, "chosen": height == 1.0, "least_believed": height == 2.0})
                for height, d in zip(HEIGHTS, sweep(problem.evidence, HEIGHTS), strict=True)
            ],
        ]:
            counts = np.bincount(decisions.time, minlength=rule.problem.horizon + 1)[1:].tolist()
            found = score(decisions, **arguments)
            alarm = {"alarm": found.gap.alarm(), "time_counts": counts}
            rows.append({"method": method, **found.as_dict(), **alarm, **extra})
    return rows


@pytest.fixture(params=["two", "three"])
def case(request):
    name = request.param
    return request.getfixturevalue(f"{name}_class_rule"), request.getfixturevalue(f"{name}_classes")


def test_figures_show_the_numbers_they_are_given(case):
    rule, problem = case
    rows = rows_of(rule, problem)
    axes = figures.speed_accuracy(rows).axes[0]
    drawn = {line.get_label(): line for line in axes.get_lines()}
    ours = [row for row in rows if row["method"] == "firmbound"]
    assert drawn["firmbound"].get_xdata() == pytest.approx([row["mean_time"] for row in ours])
    assert drawn["firmbound"].get_ydata() == pytest.approx([row["error_rate"] for row in ours])
    assert [panel.get_title() for panel in figures.risk_curves(rows).axes] == [
        f"cost {c:g} an observation" for c in COSTS
    ]
    assert len(figures.hitting_times(rows).axes) == len(COSTS)
    surface = figures.risk_surface(rule, COSTS[0], [1, 3, 5])
    assert surface is not None
    assert len(surface.axes) == (1 if rule.problem.classes == 2 else 3)


def test_risk_curves_show_what_is_believed_and_what_is_paid(two_class_rule, two_classes):
    rows = rows_of(two_class_rule, two_classes)
    ours = next(row for row in rows if row["method"] == "firmbound")
    ours["realised_risk"] = 9 * ours["aapr"]  # far overconfident: what is paid must not leave the picture
    axes = figures.risk_curves(rows).axes[0]
    drawn = [line.get_ydata().tolist() for line in axes.get_lines()]
    assert [ours["aapr"], ours["realised_risk"]] in drawn
    assert axes.get_ylim()[1] > ours["realised_risk"]
    labels = axes.get_legend_handles_labels()[1]
    assert {"firmbound, believed", "firmbound, realised", "static, believed", "static, realised"} <= set(labels)


def test_paths_end_where_the_rule_decides(case):
    rule, problem = case
    figure = figures.trajectories(rule, problem.rows(slice(0, 5)), COSTS[0])
    ends = [line.get_xdata()[0] for line in figure.axes[0].get_lines() if line.get_marker() in {"o", "x"}]
    assert ends == rule.decide(problem.evidence[:5], cost=COSTS[0]).time.tolist()


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found, self.ids = [], []

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in {"src", "href", "xlink:href"} and not value.startswith(("#", "data:")):
                self.found.append(value)
            if name == "id":
                self.ids.append(value)


FACTS = {
    "classes": 2,
    "penalty": 10.0,
    "train": 6_000,
    "test": 6_000,
    "fit": {"gap": 1e-6},
    "doubt": 0.01234,
    "evidence": "learned",
    "temperature": in_words(np.array([1.25])),
    "refinement": "Evidence is as it came, not refined: asked for.",
    "risks": "It believes 1.70 and pays 3.29.",
    "warnings": ["beware <of> this"],
}
HONESTY = {
    "reliability": {"1": {"count": [40], "confidence": [0.8], "accuracy": [0.75]}},
    "error": [0.1],
    "chance": [0.01],
    "negative_log_likelihood": [0.6],
    "limit": None,
}


def page_of(rule, problem, rows, **changed):
    sections = [
        Section("speed_accuracy", "Speed", "text & <more>", figures.speed_accuracy(rows), charted=True),
        Section("hitting_times", "Times", "text", figures.hitting_times(rows)),
    ]
    data = page_data(rule, problem.rows(slice(0, 5)), rows, {}, HONESTY)
    told = overview_of(rule, rows, refined=False)
    return render_page("toy", FACTS | {"horizon": rule.problem.horizon} | changed, told, rows, data, sections)


def test_the_page_needs_nothing_else_and_says_the_numbers(case):
    rule, problem = case
    rows = rows_of(rule, problem)
    page = page_of(rule, problem, rows)
    links = Links()
    links.feed(page)
    assert links.found == []
    assert len(links.ids) == len(set(links.ids))
    assert not re.search(r"@import|<script src", page)
    for first in (row for row in rows if row["method"] == "firmbound"):
        assert f"<b>{first['mean_time']:.1f} of {rule.problem.horizon}</b>" in page
        assert f"<b>{100 * first['error_rate']:.2f} %</b>" in page
        assert f"<b>{first['realised_risk']:.3f}</b>" in page
        assert (
            f"± {first['realised_risk_error']:.3f} for errors and observations; it believes {first['aapr']:.3f}<"
            in page
        )
    assert '<p id="risks">It believes 1.70 and pays 3.29.</p>' in page
    # Both tables name them at every cost: that of rivals and that of all numbers.
    assert page.count("best static threshold</td>") == page.count("static, least believed</td>") == 2 * len(COSTS)
    for row in (row for row in rows if row["method"] == "firmbound" or row["chosen"]):
        assert page.count(f"{row['risk_gap']:+.4f}") >= 2
    assert "text &amp; &lt;more&gt;" in page
    assert "within 0.0001 %" in page
    assert "± 0.012" in page
    assert "divided by a temperature of 1.250" in page
    assert 'role="alert">beware &lt;of&gt; this' in page


def test_the_page_leaves_out_what_is_not_known(two_class_rule, two_classes):
    rows = rows_of(two_class_rule, two_classes)
    bare = {"doubt": None, "fit": {"jitter": 1e-8}, "evidence": "given", "temperature": None, "warnings": []}
    silent = page_of(two_class_rule, two_classes, rows, **bare)
    assert "temperature" not in silent[silent.index('id="behind"') :]
    assert 'role="alert"' not in silent
    assert "least possible objective" not in silent
    assert "standard deviation" not in silent


def test_scripts_are_the_pages_own_and_no_other_may_run(two_class_rule, two_classes):
    page = page_of(two_class_rule, two_classes, rows_of(two_class_rule, two_classes))
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    assert len(scripts) == 2
    allowed = re.search(r"script-src ([^\"]+)\"", html.unescape(page)).group(1).split()
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert allowed == [f"'sha256-{digest}'" for digest in digests]


def test_figures_that_the_page_draws_itself_are_kept_for_readers_without_scripts(two_class_rule, two_classes):
    page = page_of(two_class_rule, two_classes, rows_of(two_class_rule, two_classes))
    start, end = page.index('<section id="speed_accuracy">'), page.index('<section id="hitting_times">')
    assert page[start:end].index("<noscript>") < page[start:end].index("<svg")
    assert 'data-chart="speed_accuracy"' in page[start:end]
    assert "<noscript>" not in page[end : page.index('<section id="rivals">')]


def test_calibration_is_drawn_as_it_was_found():
    curve = {"count": [0, 29, 40], "confidence": [0.0, 0.7, 0.8], "accuracy": [0.0, 0.2, 0.75]}
    found = {
        "reliability": {"1": curve, "3": curve},
        "error": [0.1, 0.2, 0.3],
        "chance": [0.0, 0.01, 0.02],
        "limit": 0.25,
    }
    found["negative_log_likelihood"] = [0.7, 0.6, 0.5]
    curves, errors, losses = figures.calibration(found).axes
    drawn = {line.get_label(): line for line in curves.get_lines()}
    assert drawn["t = 3"].get_xdata().tolist() == [0.8]  # bins with few sequences are left out
    assert errors.get_lines()[0].get_ydata().tolist() == [0.1, 0.2, 0.3]
    assert errors.get_lines()[1].get_ydata().tolist() == [0.0, 0.01, 0.02]
    np.testing.assert_allclose(errors.get_lines()[2].get_ydata(), [0.25, 0.26, 0.27])
    assert losses.get_lines()[0].get_xdata().tolist() == [1, 2, 3]
    assert len(figures.calibration(found | {"limit": None}).axes[1].get_lines()) == 2


def test_doubt_is_drawn_where_it_is_known(two_class_rule, two_class_process):
    bands = [
        len(figures.risk_surface(rule, COSTS[0], [1, 5]).axes[0].collections)
        for rule in (two_class_rule, two_class_process)
    ]
    assert bands == [0, 2]
    titles = [
        figures.risk_surface(rule, COSTS[0], [1]).axes[0].get_title()
        for rule in (two_class_process, two_class_process.with_confidence(0.9))
    ]
    assert "confidence" not in titles[0]
    assert "confidence of 0.9" in titles[1]


def test_the_same_figure_gives_the_same_bytes(two_class_rule):
    def draw():
        figure = figures.risk_surface(two_class_rule, COSTS[0], [1, 2])
        assert figure is not None
        return inline_svg(figure, "surface")

    assert draw() == draw()


def test_more_classes_have_no_surface_to_draw():
    problem = firmbound.datasets.gaussian(classes=4, sequences=300, horizon=3, dimension=4)
    rule = firmbound.fit_stopping_rule(problem.evidence, costs=[0.2], options=firmbound.ConvexOptions(points=20))
    assert figures.risk_surface(rule, 0.2, [1]) is None


def test_a_rule_that_remembers_has_paths_but_no_surface_and_no_boundary():
    problem = firmbound.datasets.oscillating(1_000, 12, seed=3)
    rule = firmbound.fit_stopping_rule(problem.evidence, costs=[0.2], statistic="memory")
    batch = problem.batch(0).part(slice(20))
    assert figures.risk_surface(rule, 0.2, [1, 6]) is None
    (axes,) = figures.trajectories(rule, batch, 0.2).axes
    assert "boundary: decide outside" not in [line.get_label() for line in axes.lines]
    assert doubt_at_decisions(rule, batch) is None
    sure = firmbound.fit_stopping_rule(problem.evidence, costs=[0.2], method="gp", statistic="memory")
    assert doubt_at_decisions(sure, batch) > 0


def test_the_envelope_shows_both_surfaces_over_the_simplex(three_class_rule, two_class_rule):
    figure = figures.risk_envelope(three_class_rule, COSTS[0], 3)
    stopping, going_on = figure.axes[0].collections
    heights = [np.asarray(part._faces)[..., 2] for part in (stopping, going_on)]
    assert all(np.isfinite(part).all() for part in heights)
    assert heights[0].max() == pytest.approx(10 * 2 / 3, rel=0.01)  # where nothing is known, two of three are wrong
    assert heights[1].max() < heights[0].max()
    assert figures.risk_envelope(two_class_rule, COSTS[0], 3) is None
