"""The report's page in a real browser: from disk, without a network, by pointer and by keys."""

import io
import json
import re

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image

import firmbound
from firmbound.oracle import solve_gaussian
from tests.browser.pages import write_report

UGLY = ("</script><b>bold</b>", "a & 'b' \"c\" ${d}", "<!--\u2028é")
KINDS = ["two", "three", "ten", "sure", "unequal"]
MOST_BYTES = 5_000_000


@pytest.fixture(scope="module")
def reports(tmp_path_factory, two_classes, two_class_process, two_class_rule, three_classes, three_class_rule):
    folder = tmp_path_factory.mktemp("pages")
    costs = [0.6, 0.05, 0.1, 0.3]  # not in order: the page sorts them
    rule = firmbound.fit_stopping_rule(two_classes.evidence, costs=costs, penalty=10.0)
    many = firmbound.datasets.gaussian(classes=10, sequences=1_500, horizon=6, dimension=12, separation=2.0, seed=5)
    many_rule = firmbound.fit_stopping_rule(many.evidence, costs=[0.1, 0.5], penalty=10.0, method="gp")
    ends = np.random.default_rng(3).integers(2, 13, size=len(two_classes.labels))
    oracle = solve_gaussian(two_classes, costs=costs, penalty=10.0)
    return {
        "two": write_report(folder / "two.html", rule, two_classes, oracle=oracle),
        "three": write_report(folder / "3.html", three_class_rule, three_classes, dataset=UGLY[0], names=UGLY),
        "ten": write_report(folder / "ten.html", many_rule, many),
        "sure": write_report(folder / "sure.html", two_class_process.with_confidence(0.9), two_classes),
        "unequal": write_report(folder / "unequal.html", two_class_rule, two_classes, lengths=ends),
    }


@pytest.fixture
def open_page(browser):
    """Opens a report offline; at the end the browser must not have complained, nor asked for anything else."""
    contexts, complaints, asked, wanted = [], [], [], set()

    def opened(report, *, view="", clock=False, **options):
        context = browser.new_context(viewport=options.pop("viewport", {"width": 1400, "height": 900}), **options)
        contexts.append(context)
        context.set_offline(True)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url.split("#")[0]))
        wanted.add(report.file.as_uri())
        if clock:  # it stands still but where a test moves it
            page.clock.install(time=0)
            page.clock.pause_at(1)
        page.goto(report.file.as_uri() + view)
        if clock:
            page.clock.run_for(100)
        if options.get("java_script_enabled", True):
            page.wait_for_selector("html[data-ready]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
    assert set(asked) <= wanted


def fact(page, name):
    return page.locator(f".cards:visible [data-fact={name}] b").inner_text()


def heads(page):
    """What the trajectories show at the end of each path: time, label and mark by sequence."""
    found = page.locator("[data-chart=trajectories] .item[data-time]").evaluate_all(
        "all => all.map(one => [one.dataset.key, one.dataset.time, one.dataset.said, one.dataset.mark])"
    )
    return {int(key): (int(time), said, mark) for key, time, said, mark in found}


def shown_decisions(report, place):
    decisions = report.rule.decide(report.shown.evidence, cost=report.costs[place], lengths=report.shown.lengths)
    marks = np.where(decisions.label == report.shown.labels, "dot", "cross")
    return {
        key: (int(time), str(label), str(mark))
        for key, (time, label, mark) in enumerate(zip(decisions.time, decisions.label, marks, strict=True))
    }


@pytest.mark.parametrize("kind", KINDS)
def test_keys_move_the_cost_and_everything_follows(reports, open_page, kind):
    report = reports[kind]
    page = open_page(report)
    rows = json.loads(report.file.with_suffix(".json").read_text())
    slider = page.get_by_label("An observation costs")
    slider.focus()
    page.keyboard.press("Home")
    seen = []
    for place, cost in enumerate(report.costs):
        ours = next(row for row in rows if row["method"] == "firmbound" and row["cost"] == cost)
        assert page.locator("#cost-shown").inner_text() == f"{cost:g}"
        assert fact(page, "early") == f"{ours['mean_time']:.1f} of {report.rule.problem.horizon}"
        assert fact(page, "wrong") == f"{100 * ours['error_rate']:.2f} %"
        assert fact(page, "paid") == f"{ours['realised_risk']:.3f}"
        assert f"{100 * ours['error_rate']:.2f} % wrong" in slider.get_attribute("aria-valuetext")
        table = page.locator("#rivals tbody:visible tr.firmbound td")
        assert table.nth(1).inner_text() == f"{ours['mean_time']:.2f}"
        assert page.url.endswith(f"#cost={cost:g}") or place == 0
        assert (
            page.locator("[data-chart=hitting_times] .legend")
            .inner_text()
            .startswith(f"firmbound: {ours['mean_time']:.1f} ±")
        )
        assert heads(page) == shown_decisions(report, place)
        seen.append(fact(page, "early"))
        page.keyboard.press("ArrowRight")
    assert len(set(seen)) == len(report.costs)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_small_and_names_do_no_harm(reports, open_page, kind):
    report = reports[kind]
    assert report.file.stat().st_size < MOST_BYTES
    page = open_page(report)
    assert page.locator("script").count() == 3
    assert page.locator("main b").filter(has_text="bold").count() == 0
    if kind == "three":
        assert page.locator("h1").inner_text() == f"When to stop looking: {UGLY[0]}"
        legend = page.locator("[data-chart=trajectories] .legend li").all_text_contents()
        assert legend[:3] == list(UGLY)


def test_the_optimum_is_told_where_it_is_known_and_thresholds_where_not(reports, open_page):
    page = open_page(reports["two"], view="#cost=0.1")
    assert fact(page, "distance") == f"{100 * reports['two'].ours(1)['regret']:.3f} %"
    assert page.locator("[data-chart=trajectories] svg[role=group] .line.optimum").count() == 2  # low and high
    assert page.locator("[data-chart=speed_accuracy] .item.optimum[data-key]").count() == 4
    page = open_page(reports["ten"])
    assert re.fullmatch(r"\d+\.\d % (more|less)", fact(page, "distance"))
    assert page.locator("[data-chart=speed_accuracy] .item.optimum[data-key]").count() == 0
    assert page.locator("[data-chart=trajectories] svg[role=group] .line.ink").count() == 0  # ten classes: no interval
    page = open_page(reports["sure"])
    assert page.locator("[data-chart=trajectories] svg[role=group] .line.ink").count() == 2
    assert fact(page, "rule") == "Gaussian processes"
    assert "stops when 90 % sure" in page.locator(".cards:visible [data-fact=rule]").inner_text()


def test_a_view_can_be_linked(reports, open_page):
    report = reports["two"]
    page = open_page(report, view="#cost=0.6")
    assert page.get_by_label("An observation costs").input_value() == "3"
    assert fact(page, "early") == f"{report.ours(3)['mean_time']:.1f} of 12"
    page.evaluate("location.hash = '#cost=0.05'")
    page.wait_for_function("document.getElementById('cost').value === '0'")
    for nonsense in ("#cost=7", "#cost=</script>", "#else"):
        assert fact(open_page(report, view=nonsense), "early") == f"{report.ours(2)['mean_time']:.1f} of 12"


def test_points_say_their_numbers_to_pointer_and_keys(reports, open_page):
    report = reports["two"]
    page = open_page(report)
    tip = page.locator("#tip")
    assert tip.is_hidden()
    point = page.locator("[data-chart=speed_accuracy] [data-key=ours-0]")
    point.hover()
    cheap = report.ours(0)
    for words in (
        "firmbound at cost 0.05",
        f"{cheap['mean_time']:.2f} observations",
        f"pays {cheap['realised_risk']:.3f}",
    ):
        assert words in tip.inner_text()
    page.mouse.move(2, 2)
    assert tip.is_hidden()
    point.click()
    assert fact(page, "early") == f"{cheap['mean_time']:.1f} of 12"
    page.mouse.move(2, 2)

    # One Tab stop a chart; arrows walk inside, Enter chooses, Escape hides what covers the chart.
    assert page.locator("[data-chart=speed_accuracy] svg [tabindex='0']").count() == 1
    page.get_by_label("An observation costs").focus()
    page.keyboard.press("Tab")
    label = "document.activeElement.getAttribute('aria-label')"
    assert page.evaluate(label).startswith("firmbound at cost 0.05")
    assert "firmbound at cost 0.05" in tip.inner_text()
    page.keyboard.press("ArrowRight")
    assert "firmbound at cost 0.1" in tip.inner_text()
    page.keyboard.press("Enter")
    assert fact(page, "early") == f"{report.ours(1)['mean_time']:.1f} of 12"
    assert page.evaluate(label).startswith("firmbound at cost 0.1")  # focus outlives drawing
    page.keyboard.press("ArrowDown")
    assert page.evaluate(label).startswith("static threshold")
    page.keyboard.press("Escape")
    assert tip.is_hidden()
    page.keyboard.press("Tab")
    assert "risk" in page.evaluate(label)


@pytest.mark.parametrize("chart", ["speed_accuracy", "risk_curves", "hitting_times", "trajectories", "calibration"])
def test_every_chart_can_be_walked_by_keys(reports, open_page, chart):
    page = open_page(reports["unequal"])
    for svg in page.locator(f"[data-chart={chart}] svg[role=group]").all():
        svg.locator("[tabindex='0']").focus()
        labels = set()
        for key in ("Home", "ArrowRight", "End", "ArrowLeft", "ArrowUp", "ArrowDown"):
            page.keyboard.press(key)
            labels.add(page.evaluate("document.activeElement.getAttribute('aria-label')"))
            assert page.locator("#tip").is_visible()
        assert len(labels) > 2


def test_evidence_grows_until_the_decision(reports, open_page):
    report = reports["two"]
    page = open_page(report, clock=True, view="#cost=0.05")
    decided = shown_decisions(report, 0)
    last = max(time for time, _, _ in decided.values())
    time = page.get_by_label("Observations so far")
    page.clock.run_for(5_000)
    assert time.input_value() == str(last)  # nothing moves by itself
    page.get_by_role("button", name="Play").click()
    assert time.input_value() == "1"
    page.clock.run_for(1_200)
    now = int(time.input_value())
    assert 1 < now < last
    for key, (t, said, mark) in heads(page).items():
        stop, label, judged = decided[key]
        assert (t, said, mark) == ((stop, label, judged) if stop <= now else (now, "", "ring"))
    waiting = sum(stop > now for stop, _, _ in decided.values())
    told = page.locator(".told").inner_text()
    assert told.startswith(f"After {now} observations: {len(decided) - waiting} of {len(decided)} decided")
    page.get_by_role("button", name="Pause").click()
    page.clock.run_for(2_000)
    assert time.input_value() == str(now)
    page.get_by_role("button", name="Play").click()
    page.clock.run_for(20_000)
    assert time.input_value() == str(last)
    assert page.get_by_role("button", name="Play").is_visible()  # at the end it has stopped by itself
    assert heads(page) == decided
    wrong = sum(mark == "cross" for _, _, mark in decided.values())
    assert page.locator(".told").inner_text().endswith(f"{len(decided) - wrong} right, {wrong} wrong")


def test_time_is_stepped_by_keys_and_buttons(reports, open_page):
    page = open_page(reports["ten"])
    time = page.get_by_label("Observations so far")
    time.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert time.input_value() == "2"
    assert {t for t, _, mark in heads(page).values() if mark == "ring"} <= {2}
    assert time.get_attribute("aria-valuetext") == page.locator(".told").inner_text()
    page.get_by_role("button", name="One observation back").click()
    assert time.input_value() == "1"
    page.get_by_role("button", name="One observation on").click()
    assert time.input_value() == "2"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_it_fits_and_can_be_seen_by_day_and_night(reports, open_page, scheme, width):
    for kind in ("two", "three", "ten"):
        page = open_page(reports[kind], viewport={"width": width, "height": 800}, color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        pixels = np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("L"), dtype=float)
        assert (pixels.mean() > 180) == (scheme == "light")
        assert pixels.std() > 8
        page.get_by_role("button", name="Dark").click()
        turned = np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("L"), dtype=float)
        assert (turned.mean() > 180) == (scheme == "dark")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_nobody_is_kept_out(reports, open_page, scheme, kind):
    page = open_page(reports[kind], color_scheme=scheme)
    page.locator("[data-chart=trajectories] svg[role=group] [tabindex='0']").focus()  # with a tooltip, too
    found = Axe().run(page).response["violations"]
    grave = [
        (problem["id"], [node["html"][:200] for node in problem["nodes"]][:3])
        for problem in found
        if problem["impact"] in {"serious", "critical"}
    ]
    assert grave == []


def test_without_scripts_and_on_paper_the_overview_is_there(reports, open_page):
    report = reports["two"]
    page = open_page(report, java_script_enabled=False)
    assert page.locator(".cards:visible").count() == 1
    assert fact(page, "early") == f"{report.ours(2)['mean_time']:.1f} of 12"
    assert page.get_by_label("An observation costs").is_hidden()
    assert page.locator(".paper svg:visible").count() == 6
    assert page.locator("#rivals tbody:visible tr").count() == 4
    page = open_page(report)
    page.emulate_media(media="print")
    assert page.get_by_label("An observation costs").is_hidden()
    assert fact(page, "early") == f"{report.ours(2)['mean_time']:.1f} of 12"
