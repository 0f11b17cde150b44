// Charts as SVG, drawn anew at the size of their place; colours come from style sheets alone.

const SVG_SPACE = "http://www.w3.org/2000/svg";
const LINE_HEIGHT = 14, LETTER = 6.7; // of the text beside axes, in pixels

function svgNode(name, attributes = {}, children = []) {
  const found = document.createElementNS(SVG_SPACE, name);
  for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
  found.append(...children);
  return found;
}

function node(name, attributes = {}, children = []) {
  const found = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
  found.append(...children);
  return found;
}

// Numbers in words: what is not known says so.
function fixed(value, digits) {
  return value === null || value === undefined ? "unknown" : value.toFixed(digits);
}
function percent(value, digits = 2) {
  return value === null || value === undefined ? "unknown" : `${(100 * value).toFixed(digits)} %`;
}
function withError(value, error, digits) {
  return fixed(value, digits) + (error === null || error === undefined ? "" : ` ± ${fixed(error, digits)}`);
}
function times(t) {
  return `${t} observation${t === 1 ? "" : "s"}`;
}
function extent(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  return known.length ? [Math.min(...known), Math.max(...known)] : [0, 1];
}

// About `count` round numbers in [low, high].
function roundTicks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  const ticks = Array.from({ length: Math.max(last - first + 1, 0) }, (_, place) => (first + place) * step);
  return { ticks, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

// An axis with its own ticks. `only` names the ticks where round numbers would mean nothing.
function axis(label, low, high, { count = 6, unit = 1, sign = "", only = null, whole = false } = {}) {
  const top = high > low ? high : low + 1;
  const round = roundTicks(low * unit, top * unit, count);
  const ticks = only || round.ticks.map((at) => ({ at: at / unit, name: `${at.toFixed(round.digits)}${sign}` }));
  return { label, low, high: top, ticks: whole ? ticks.filter((tick) => Number.isInteger(tick.at)) : ticks };
}

const outlined = (path) => svgNode("path", { class: "shape", d: path });
const SHAPES = {
  dot: (size) => svgNode("circle", { class: "shape", r: size }),
  ring: (size) => svgNode("circle", { class: "shape", r: size }),
  square: (size) => svgNode("rect", { class: "shape", x: -size, y: -size, width: 2 * size, height: 2 * size }),
  diamond: (size) => outlined(`M0 ${-1.3 * size}L${1.3 * size} 0L0 ${1.3 * size}L${-1.3 * size} 0Z`),
  triangle: (size) => outlined(`M0 ${-1.2 * size}L${1.2 * size} ${size}L${-1.2 * size} ${size}Z`),
  cross: (size) => outlined(`M${-size} ${-size}L${size} ${size}M${-size} ${size}L${size} ${-size}`),
};

// Where numbers lie on the screen, and how much room axes take.
function frameOf(spec, width) {
  const longest = Math.max(...spec.y.ticks.map((tick) => tick.name.length), 1);
  const left = Math.ceil(longest * LETTER) + LINE_HEIGHT + 14, right = 14, top = 10, bottom = 46;
  const height = spec.height || Math.round(Math.min(340, Math.max(230, 0.62 * width)));
  const across = (value) => left + ((value - spec.x.low) / (spec.x.high - spec.x.low)) * (width - left - right);
  const up = (value) => height - bottom - ((value - spec.y.low) / (spec.y.high - spec.y.low)) * (height - top - bottom);
  return { width, height, left, right: width - right, top, bottom: height - bottom, across, up };
}

function drawAxes(svg, spec, frame) {
  const every = Math.ceil((spec.x.ticks.length * 44) / Math.max(frame.right - frame.left, 1));
  spec.y.ticks.forEach(({ at, name }) => {
    const y = frame.up(at);
    svg.append(
      svgNode("line", { class: "grid", x1: frame.left, x2: frame.right, y1: y, y2: y }),
      svgNode("text", { x: frame.left - 7, y: y + 4, "text-anchor": "end" }, [name]),
    );
  });
  spec.x.ticks.filter((_, place) => place % every === 0).forEach(({ at, name }) => {
    const x = frame.across(at);
    svg.append(
      svgNode("line", { class: "grid", x1: x, x2: x, y1: frame.top, y2: frame.bottom }),
      svgNode("text", { x, y: frame.bottom + 17, "text-anchor": "middle" }, [name]),
    );
  });
  const centre = (frame.left + frame.right) / 2, middle = (frame.top + frame.bottom) / 2;
  const turned = `translate(11 ${middle}) rotate(-90)`;
  svg.append(
    svgNode("line", { class: "axis", x1: frame.left, x2: frame.right, y1: frame.bottom, y2: frame.bottom }),
    svgNode("text", { x: centre, y: frame.bottom + 37, "text-anchor": "middle" }, [spec.x.label]),
    svgNode("text", { transform: turned, "text-anchor": "middle" }, [spec.y.label]),
  );
}

// A line with gaps where a number is missing.
function pathOf(points, frame) {
  let pen = "M";
  const parts = [];
  for (const [x, y] of points) {
    if (y === null || y === undefined) { pen = "M"; continue; }
    parts.push(`${pen}${frame.across(x).toFixed(1)} ${frame.up(y).toFixed(1)}`);
    pen = "L";
  }
  return parts.join("");
}

// Between a lower and an upper end; where either is missing there is nothing.
function areaOf(points, frame) {
  const whole = points.filter(([, low, high]) => low !== null && high !== null);
  const lower = whole.map(([x, low]) => [x, low]), upper = whole.map(([x, , high]) => [x, high]).reverse();
  return whole.length ? `${pathOf(lower, frame)}L${pathOf(upper, frame).slice(1)}Z` : "";
}

function drawLines(svg, spec, frame) {
  for (const area of spec.areas || []) svg.append(svgNode("path", { class: "area", d: areaOf(area.points, frame) }));
  for (const line of spec.lines || []) {
    svg.append(svgNode("path", { class: `line ${line.look}`, d: pathOf(line.points, frame), ...(line.data || {}) }));
  }
  for (const { x, low, high, look } of spec.whiskers || []) {
    const place = frame.across(x), [y1, y2] = [frame.up(low), frame.up(high)];
    const d = `M${place} ${y1}V${y2}M${place - 4} ${y1}h8M${place - 4} ${y2}h8`;
    svg.append(svgNode("path", { class: `line ${look}`, d }));
  }
}

function drawItem(item, frame) {
  const attributes = {
    class: `item ${item.look}`, role: item.act ? "button" : "img", tabindex: -1,
    "aria-label": [item.title, ...item.told].join("; "), "data-key": item.key, ...(item.data || {}),
  };
  const y = Math.min(Math.max(frame.up(item.y), frame.top), frame.bottom);
  if (item.shape === "bar") {
    const [x1, x2] = [frame.across(item.from), frame.across(item.to)];
    const size = { x: x1 + 0.5, y, width: Math.max(x2 - x1 - 1, 0.5), height: Math.max(frame.bottom - y, 0) };
    const element = svgNode("g", attributes, [svgNode("rect", { class: "shape", ...size })]);
    return { item, x: (x1 + x2) / 2, y, element };
  }
  const x = frame.across(item.x);
  const parts = [SHAPES[item.shape](item.size || 5)];
  if (item.chosen) parts.unshift(svgNode("circle", { class: "halo", r: (item.size || 5) + 5 }));
  const transform = `translate(${x.toFixed(1)} ${y.toFixed(1)})`;
  return { item, x, y, element: svgNode("g", { ...attributes, transform }, parts) };
}

// Lines may leave the frame; what is in it is cut to it, points are not.
let clips = 0;
function drawChart(spec, width) {
  const frame = frameOf(spec, width);
  const viewBox = `0 0 ${frame.width} ${frame.height}`;
  const svg = svgNode("svg", { viewBox, role: "group", "aria-label": spec.label });
  const clip = `cut-${(clips += 1)}`;
  const size = { x: frame.left, y: frame.top, width: frame.right - frame.left, height: frame.bottom - frame.top };
  const inside = svgNode("g", { "clip-path": `url(#${clip})` });
  svg.append(svgNode("defs", {}, [svgNode("clipPath", { id: clip }, [svgNode("rect", size)])]));
  drawAxes(svg, spec, frame);
  drawLines(inside, spec, frame);
  const placed = spec.items.filter(({ y }) => y !== null).map((item) => drawItem(item, frame));
  svg.append(inside, ...placed.map(({ element }) => element));
  return { svg, placed };
}

function drawLegend(entries) {
  return entries.map(({ name, look, shape }) => {
    const mark = svgNode("svg", { viewBox: "0 0 26 14", class: "chart", "aria-hidden": "true" });
    const drawn = shape
      ? svgNode("g", { class: `item ${look}`, transform: "translate(13 7)" }, [SHAPES[shape](4.5)])
      : svgNode("path", { class: `line ${look}`, d: "M1 7H25" });
    mark.append(drawn);
    return node("li", {}, [mark, name]);
  });
}
