"""Pieces that are never the lowest anywhere on the simplex are dropped: the surface stays the same."""

from __future__ import annotations

import numpy as np
from scipy.spatial import HalfspaceIntersection, QhullError

from firmbound.arrays import Bools, Floats, Ints
from firmbound.simplex import highest_minimum

# Largest change of the surface, in units of the penalty, anywhere on the simplex: rounding of risks, no more.
TOLERANCE = 1e-9
# Up to so many classes all vertices of the surface can be enumerated, which is quick; above there are too many.
FEW_CLASSES = 4


def prune(slopes: Floats, offsets: Floats, witnesses: Floats) -> tuple[Floats, Floats]:
    """The pieces of min <slope, x> + offset that are needed on the simplex.  (P, K), (P,) -> (P', K), (P',).

    A piece that is the lowest by more than TOLERANCE at one of the `witnesses` (w, K), points of the simplex, is
    needed. The others are needed if they are the lowest at a vertex of the surface (few classes) or if a linear
    programme finds a place where they undercut the rest.
    """
    needed = _lowest_somewhere(slopes, offsets, witnesses)
    alive = np.ones(len(offsets), dtype=np.bool_)
    if not needed.all() and slopes.shape[1] <= FEW_CLASSES:
        try:
            alive = needed | _lowest_somewhere(slopes, offsets, _vertices(slopes, offsets), shared=True)
            return slopes[alive], offsets[alive]
        except QhullError:
            pass  # flat beyond the enumeration's precision: ask piece by piece
    for piece in np.flatnonzero(~needed):
        others = alive.copy()
        others[piece] = False
        alive[piece] = not others.any() or _undercut(slopes, offsets, int(piece), np.flatnonzero(others)) > TOLERANCE
    return slopes[alive], offsets[alive]


def _lowest_somewhere(slopes: Floats, offsets: Floats, places: Floats, shared: bool = False) -> Bools:
    """Pieces that are the lowest at one of the places: alone, or, if `shared`, together with others."""
    heights = places @ slopes.T + offsets
    least = heights.min(axis=1, keepdims=True)
    low = heights <= least + TOLERANCE
    return np.asarray((low if shared else low & (low.sum(axis=1, keepdims=True) == 1)).any(axis=0), dtype=np.bool_)


def _vertices(slopes: Floats, offsets: Floats) -> Floats:
    """Points of the simplex where the surface has its vertices."""
    classes = slopes.shape[1]
    free = classes - 1
    # height - <slope, x> - offset <= 0 in the coordinates (x_1 .. x_{K-1}, height); then the sides of the simplex
    tilted = slopes[:, :free] - slopes[:, free:]
    below = np.column_stack([-tilted, np.ones(len(offsets)), -(slopes[:, free] + offsets)])
    walls = np.vstack([-np.eye(free), np.ones((1, free))])
    sides = np.column_stack([walls, np.zeros(classes), np.append(np.zeros(free), -1.0)])
    centre = np.full(classes, 1.0 / classes)
    inner = float((slopes @ centre + offsets).min()) - 1.0
    # A concave surface is lowest at a corner: nothing of it is below this floor.
    bottom = min(float((slopes + offsets[:, None]).min()), inner) - 1.0
    floor = np.append(np.zeros(free), [-1.0, bottom])
    found = HalfspaceIntersection(np.vstack([below, sides, floor]), np.append(centre[:free], inner))
    places = np.clip(found.intersections[:, :free], 0.0, 1.0)
    return np.column_stack([places, 1.0 - places.sum(axis=1)])


def _undercut(slopes: Floats, offsets: Floats, piece: int, others: Ints) -> float:
    """max over the simplex of (lowest other piece) - piece; a piece that cannot be judged is kept."""
    depth = highest_minimum(slopes[others] - slopes[piece], offsets[others] - offsets[piece])
    return np.inf if depth is None else depth
