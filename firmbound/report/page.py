"""The report: one HTML file that needs nothing else, neither files beside it nor a network."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure

from firmbound.version import __version__


@dataclass(frozen=True)
class Section:
    """A figure with what to see in it."""

    name: str
    title: str
    text: str
    figure: Figure


def render_page(
    dataset: str, facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], sections: Sequence[Section]
) -> str:
    """HTML of the report: overview first, then each section with its figure inlined."""
    return _render(
        "page.html",
        sections,
        dataset=dataset,
        facts=facts,
        rows=sorted(rows, key=lambda row: (row["cost"], row["method"])),
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
