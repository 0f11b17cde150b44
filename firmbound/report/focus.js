// Points that answer: the nearest one to the pointer, or the one that keys have reached, says its numbers.

const NEAR = 36; // pixels from the pointer

const tip = {
  element: document.getElementById("tip"),
  anchor: null,
  show(item, anchor) {
    this.anchor = anchor;
    this.element.replaceChildren(node("b", {}, [item.title]), ...item.told.map((line) => node("div", {}, [line])));
    this.element.hidden = false;
    this.place();
  },
  place() {
    if (!this.anchor) return;
    const at = this.anchor.getBoundingClientRect(), own = this.element.getBoundingClientRect();
    const room = document.documentElement.clientWidth - own.width - 6;
    const left = Math.max(Math.min(at.left + at.width / 2 - own.width / 2, room), 6);
    const above = at.top - own.height - 10;
    this.element.style.left = `${left}px`;
    this.element.style.top = `${above > 4 ? above : at.bottom + 10}px`;
  },
  hide() {
    this.anchor = null;
    this.element.hidden = true;
  },
};
window.addEventListener("scroll", () => tip.place(), { passive: true });
window.addEventListener("keydown", (event) => event.key === "Escape" && tip.hide());

// A chart in its place. specOf() says what to draw now; draw() draws it and keeps focus and tooltip where they were.
function makeChart(place, specOf) {
  const legend = node("ul", { class: "legend" }), canvas = node("div");
  const chart = { canvas, placed: [], spec: null, current: null, pointer: null, width: 0 };
  place.append(node("div", { class: "chart" }, [legend, canvas]));
  chart.draw = () => {
    if (!chart.width) return;
    const held = canvas.contains(document.activeElement);
    const pointed = canvas.contains(tip.anchor);
    chart.spec = specOf(chart.width);
    const drawn = drawChart(chart.spec, chart.width);
    chart.placed = drawn.placed;
    canvas.replaceChildren(drawn.svg);
    legend.replaceChildren(...drawLegend(chart.spec.legend || []));
    const start = rove(chart);
    if (held && start) start.element.focus({ preventScroll: true });
    else if (pointed && chart.pointer) pointAt(chart);
    else if (pointed) tip.hide();
  };
  new ResizeObserver(() => {
    const width = Math.round(canvas.clientWidth);
    if (width && width !== chart.width) {
      chart.width = width;
      chart.draw();
    }
  }).observe(canvas);
  listen(chart);
  return chart;
}

// One point of a chart is reached by Tab: where one was last, else what is chosen, else the first.
function rove(chart) {
  const last = chart.placed.find(({ item }) => item.key === chart.current);
  const found = last || chart.placed.find(({ item }) => item.chosen) || chart.placed[0];
  chart.placed.forEach((other) => other.element.setAttribute("tabindex", other === found ? 0 : -1));
  return found;
}

function nearest(chart, event) {
  const box = chart.canvas.getBoundingClientRect();
  const x = event.clientX - box.left, y = event.clientY - box.top;
  const rise = (point) => (point.item.shape === "bar" ? 0 : point.y - y); // a bar answers above and below its end
  const distance = (point) => Math.hypot(point.x - x, rise(point));
  let best = null;
  for (const point of chart.placed) if (!best || distance(point) < distance(best)) best = point;
  return best && distance(best) <= NEAR ? best : null;
}

function pointAt(chart) {
  const found = nearest(chart, chart.pointer);
  if (found) tip.show(found.item, found.element);
  else tip.hide();
  chart.spec.onLight?.(found ? found.item.key : null);
}

function listen(chart) {
  const { canvas } = chart;
  const at = (element) => chart.placed.find((point) => point.element === element);
  for (const name of ["pointermove", "pointerdown"]) {
    canvas.addEventListener(name, (event) => {
      chart.pointer = { clientX: event.clientX, clientY: event.clientY };
      pointAt(chart);
    });
  }
  canvas.addEventListener("pointerleave", () => {
    chart.pointer = null;
    tip.hide();
    chart.spec.onLight?.(null);
  });
  canvas.addEventListener("click", (event) => nearest(chart, event)?.item.act?.());
  canvas.addEventListener("focusin", (event) => {
    const found = at(event.target);
    if (!found) return;
    chart.current = found.item.key;
    rove(chart);
    tip.show(found.item, found.element);
    chart.spec.onLight?.(found.item.key);
  });
  canvas.addEventListener("focusout", () => {
    tip.hide();
    chart.spec.onLight?.(null);
  });
  canvas.addEventListener("keydown", (event) => {
    const from = at(event.target);
    if (!from) return;
    if ((event.key === "Enter" || event.key === " ") && from.item.act) from.item.act();
    else {
      const next = step(chart.placed, from, event.key);
      if (!next) return;
      next.element.focus();
    }
    event.preventDefault();
  });
}

// Left and right walk along a series, up and down go to the next one, to its point that is nearest.
function step(placed, from, key) {
  const series = [...new Set(placed.map(({ item }) => item.series))];
  const own = placed.filter(({ item }) => item.series === from.item.series);
  const place = own.indexOf(from);
  if (key === "ArrowRight") return own[Math.min(place + 1, own.length - 1)];
  if (key === "ArrowLeft") return own[Math.max(place - 1, 0)];
  if (key === "Home") return own[0];
  if (key === "End") return own[own.length - 1];
  if (key !== "ArrowUp" && key !== "ArrowDown") return null;
  const turn = key === "ArrowDown" ? 1 : series.length - 1;
  const other = series[(series.indexOf(from.item.series) + turn) % series.length];
  const away = (point) => Math.abs(point.x - from.x);
  return placed.filter(({ item }) => item.series === other).reduce((a, b) => (away(b) < away(a) ? b : a));
}
