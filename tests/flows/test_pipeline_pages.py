"""The pages that the pipeline wrote, opened as a reader would: in a browser, from disk."""

import json

import pytest

from tests.browser.chromium import MISSING, find_chromium, launched
from tests.flows.small_project import SMALL

pytestmark = pytest.mark.pipeline


def test_reports_of_the_pipeline_open_and_say_what_metrics_say(project):
    program = find_chromium()
    if program is None:
        pytest.skip(MISSING)
    complaints = []
    with launched(program) as browser:
        page = browser.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        for dataset in SMALL["datasets"]:
            folder = project.folder / "data" / dataset
            metrics = json.loads((folder / "evaluation" / "metrics.json").read_text())
            for cost in (float(name.split()[1]) for name in metrics if name.startswith("cost ")):
                page.goto("about:blank")
                page.goto(f"{(folder / 'report' / 'index.html').as_uri()}#cost={cost}")
                page.wait_for_selector("html[data-ready]")
                shown = page.locator(".cards:visible [data-fact] b").all_inner_texts()
                found = metrics[f"cost {cost:g}"]
                assert shown[1].startswith(f"{found['mean_time']:.1f} of ")
                assert shown[2] == f"{100 * found['error_rate']:.2f} %"
                assert shown[3] == f"{found['realised_risk']:.3f}"
                if "regret" in found:
                    assert shown[4] == f"{100 * found['regret']:.3f} %"
                assert page.locator("[data-chart] svg[role=group]").count() == 7
        page.goto((project.folder / "data" / "spoken" / "report" / "index.html").as_uri())
        names = page.locator("[data-chart=trajectories] .legend li").all_inner_texts()
    assert complaints == []
    classes = json.loads((project.folder / "data/spoken/features/test.zarr/zarr.json").read_text())
    assert names[: len(classes["attributes"]["firmbound"]["names"])] == [
        str(name) for name in classes["attributes"]["firmbound"]["names"]
    ]
