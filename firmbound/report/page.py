"""The report: one HTML file that needs nothing else, neither files beside it nor a network."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure

from firmbound.report.overview import Fact
from firmbound.report.page_data import as_json
from firmbound.version import __version__

# One after the other they are the page's script.
SCRIPTS = ("charts.js", "focus.js", "curves.js", "calibration.js", "trajectories.js", "page.js")
# Before anything is shown, so that nothing jumps: what needs a script is there, or is not.
SCRIPTED = 'document.documentElement.classList.add("scripted");'


@dataclass(frozen=True)
class Section:
    """A figure with what to see in it; charted: the page's script draws the same, the figure is for pages without."""

    name: str
    title: str
    text: str
    figure: Figure
    charted: bool = False


def render_page(
    dataset: str,
    facts: Mapping[str, Any],
    overview: Sequence[Sequence[Fact]],
    rows: Sequence[Mapping[str, Any]],
    data: Mapping[str, Any],
    sections: Sequence[Section],
) -> str:
    """HTML of the report: the overview of each cost first, then curves, boundary, calibration and rivals.

    overview: five facts at every cost, as `overview_of` tells them; data: what the script draws, from `page_data`.
    """
    script = _script()
    return _render(
        "page.html",
        sections,
        dataset=dataset,
        facts=facts,
        overview=overview,
        rows=sorted(rows, key=lambda row: (row["cost"], row["method"])),
        costs=data["costs"],
        classes=data["classes"],
        middle=len(data["costs"]) // 2,
        bounded=data["boundaries"][0] is not None,
        data=as_json(data),
        scripted=Markup(SCRIPTED),
        script=Markup(script),
        allowed=" ".join(_checksum(text) for text in (SCRIPTED, script)),
    )


def render_study(findings: Mapping[str, Any], sections: Sequence[Section]) -> str:
    """HTML of a study: first where a rival is ahead, then who pays what, then figures."""
    return _render("study.html", sections, findings=findings)


def _render(template: str, sections: Sequence[Section], **found: Any) -> str:
    environment = Environment(
        loader=PackageLoader("firmbound.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    drawn = [(section, Markup(inline_svg(section.figure, section.name))) for section in sections]
    return environment.get_template(template).render(version=__version__, sections=drawn, **found)


def _script() -> str:
    """All files in one function, so that their names are theirs alone."""
    parts = [Path(__file__).with_name(name).read_text() for name in SCRIPTS]
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "})();\n"


def _checksum(script: str) -> str:
    """How a browser is told that it may run this script and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def inline_svg(figure: Figure, name: str) -> str:
    """The figure as SVG markup; text stays text, and ids are made unique and repeatable from `name`."""
    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, facecolor="none")
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    # Several figures share one page, so what one defines must not answer to another's name.
    svg = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{name.replace("_", " ")}" ', 1)
