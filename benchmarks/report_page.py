"""The report's page in a real browser: bytes on disk, and how long until it answers, over several fresh loads."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Browser

import firmbound
from benchmarks.record import record
from firmbound.fitting import Method
from firmbound.oracle import solve_gaussian
from tests.browser.chromium import MISSING, find_chromium, launched
from tests.browser.pages import write_report

# Classes, method, sequences, observations; the default pipeline's horizons, and ten classes.
CASES: dict[str, tuple[int, Method, int, int]] = {
    "K=2, T=50": (2, "cfl", 4_000, 50),
    "K=3, T=50": (3, "gp", 4_000, 50),
    "K=10, T=20": (10, "gp", 2_000, 20),
}
COSTS = [0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0]
LOADS = 10
MOST_BYTES, MOST_MILLISECONDS = 5_000_000, 2_000


def main() -> None:
    program = find_chromium()
    if program is None:
        sys.exit(f"firmbound: {MISSING}")
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        pages = {name: make_page(Path(folder) / f"{place}.html", name) for place, name in enumerate(CASES)}
        with launched(program) as browser:
            for name, file in pages.items():
                results[name] = measure(browser, file)
                print(f"{name}: {results[name]}")
            results["browser"] = browser.version
    record("report_page", results)


def make_page(file: Path, name: str) -> Path:
    classes, method, sequences, horizon = CASES[name]
    problem = firmbound.datasets.gaussian(classes, sequences, horizon, seed=1)
    rule = firmbound.fit_stopping_rule(problem.evidence, costs=COSTS, penalty=10.0, method=method)
    oracle = solve_gaussian(problem, costs=COSTS, penalty=10.0) if classes == 2 else None
    return write_report(file, rule, problem, oracle=oracle, shown=40).file


def measure(browser: Browser, file: Path) -> dict[str, Any]:
    """Milliseconds from the start of navigation until all charts are drawn and listen, and of a move of the slider."""
    ready, moved = [], []
    for _ in range(LOADS):
        context = browser.new_context(viewport={"width": 1400, "height": 900})
        page = context.new_page()
        page.goto(file.as_uri())
        page.wait_for_selector("html[data-ready]")
        ready.append(float(page.evaluate("Number(document.documentElement.dataset.ready)")))
        moved.append(float(page.evaluate(MOVE)))
        context.close()
    found = {"bytes": file.stat().st_size, "interactive_ms": float(np.median(ready)), "slowest_ms": max(ready)}
    met = found["bytes"] <= MOST_BYTES and found["slowest_ms"] <= MOST_MILLISECONDS
    return found | {
        "move_ms": float(np.median(moved)),
        "bytes_bar": MOST_BYTES,
        "bar_ms": MOST_MILLISECONDS,
        "met": met,
    }


# All that one move changes is drawn before the event's listeners return.
MOVE = """() => {
  const slider = document.getElementById("cost"), begun = performance.now();
  slider.value = Number(slider.value) === 0 ? 1 : 0;
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  return performance.now() - begun;
}"""


if __name__ == "__main__":
    main()
