// Speed against accuracy, risks, and when decisions fall: every method at the chosen cost, and the front of all costs.

const NAMES = {
  ours: "firmbound", best: "best static threshold", optimum: "exact optimum", static: "static threshold",
};

function pointTold(point) {
  const told = [
    `${fixed(point.time, 2)} observations on average`,
    `${percent(point.error)} wrong${point.error_se === null ? "" : ` ± ${percent(point.error_se)}`}`,
    `pays ${withError(point.realised, point.realised_se, 3)}, believes ${fixed(point.believed, 3)}`,
  ];
  return point.threshold === undefined ? told : [...told, `threshold ${fixed(point.threshold, 2)}`];
}

// One standard error up and down, where it is known.
function whisker(point, kind) {
  const value = point[kind], error = point[`${kind}_se`];
  return error === null ? [] : [{ x: point.time, low: value - error, high: value + error, look: "ours" }];
}

function speedAccuracy(page) {
  const { fronts, costs } = page.data;
  const swept = fronts[page.cost].static;
  const front = (method) => fronts.map((found, index) => [found[method], index]).filter(([point]) => point);
  const items = swept.map((point, place) => ({
    key: `static-${place}`, series: "static", x: point.time, y: point.error, shape: "dot", size: 2, look: "full static",
    title: NAMES.static, told: pointTold(point),
  }));
  for (const [method, shape, size, look] of [["optimum", "ring", 8, "open optimum"], ["ours", "dot", 5, "full ours"]]) {
    for (const [point, index] of front(method)) {
      const own = method === "ours";
      items.push({
        key: `${method}-${index}`, series: method, x: point.time, y: point.error, shape, look, size,
        chosen: own && index === page.cost, act: own ? () => page.choose(index) : null,
        title: `${NAMES[method]} at cost ${costs[index]}`, told: pointTold(point),
      });
    }
  }
  const [, top] = extent(items.map(({ y }) => y));
  return {
    label: "Speed against accuracy: error by mean number of observations. Arrow keys walk along the points.",
    x: axis("mean number of observations", 0, page.data.horizon),
    y: axis("error", 0, 1.05 * top, { unit: 100, sign: " %" }),
    lines: [{ points: swept.map((point) => [point.time, point.error]), look: "static" }],
    whiskers: whisker(fronts[page.cost].ours, "error"),
    items,
    legend: [
      { name: "firmbound, a point a cost", look: "full ours", shape: "dot" },
      { name: "static thresholds", look: "static" },
      ...(front("optimum").length ? [{ name: "exact optimum", look: "open optimum", shape: "ring" }] : []),
    ],
  };
}

const RISK_MARKS = { believed: "dot", realised: "cross" };

// Risks that beliefs and labels give to each method at the chosen cost.
function riskCurves(page) {
  const found = page.data.fronts[page.cost];
  const marked = ["optimum", "ours"].filter((method) => found[method]);
  const all = [...found.static, ...marked.map((method) => found[method])];
  const [low] = extent(all.flatMap((point) => [point.believed, point.realised]));
  const high = Math.max(1.8 * low, ...marked.map((method) => 1.15 * found[method].realised));
  const items = ["believed", "realised"].flatMap((kind) => found.static.map((point, place) => ({
    key: `static-${kind}-${place}`, series: `static-${kind}`, x: point.time, y: point[kind], size: 2,
    shape: RISK_MARKS[kind], look: `${kind === "believed" ? "full" : "open"} static`,
    title: `${NAMES.static}, ${kind}`, told: pointTold(point),
  }))).filter(({ y }) => y <= high);
  for (const method of marked) {
    const point = found[method], size = method === "optimum" ? 8 : 5;
    for (const [kind, shape] of Object.entries(RISK_MARKS)) {
      items.push({
        key: `${method}-${kind}`, series: method, x: point.time, y: point[kind], shape, size,
        look: `${method === "ours" && kind === "believed" ? "full" : "open"} ${method}`,
        chosen: method === "ours" && kind === "realised",
        title: `${NAMES[method]}, ${kind} risk ${fixed(point[kind], 3)}`, told: pointTold(point),
      });
    }
  }
  const curve = (kind) => found.static.map((point) => [point.time, point[kind]]);
  return {
    label: "Believed and realised risk by mean number of observations. Arrow keys walk along the points.",
    x: axis("mean number of observations", 0, page.data.horizon),
    y: axis("risk", 0.85 * low, high),
    lines: [{ points: curve("believed"), look: "static" }, { points: curve("realised"), look: "static dotted" }],
    whiskers: [...whisker(found.ours, "believed"), ...whisker(found.ours, "realised")],
    items,
    legend: [
      { name: "firmbound believes", look: "full ours", shape: "dot" },
      { name: "firmbound pays", look: "open ours", shape: "cross" },
      { name: "static thresholds believe", look: "static" },
      { name: "and pay", look: "static dotted" },
      ...(found.optimum ? [{ name: "exact optimum", look: "open optimum", shape: "ring" }] : []),
    ],
  };
}

// A histogram as one line.
function outlineOf(bars) {
  const steps = bars.flatMap(([from, to, share]) => [[from - 0.5, share], [to + 0.5, share]]);
  return [[steps[0][0], 0], ...steps, [steps[steps.length - 1][0], 0]];
}

// Shares of sequences by the number of observations that they used.
function hittingTimes(page, width) {
  const found = page.data.fronts[page.cost];
  const methods = ["ours", "best", "optimum"].filter((method) => found[method]);
  const highest = Math.max(...methods.flatMap((method) => found[method].times.map(([, , share]) => share)));
  const items = found.ours.times.map(([from, to, share], place) => ({
    key: `bar-${place}`, series: "times", shape: "bar", from: from - 0.5, to: to + 0.5, x: (from + to) / 2, y: share,
    look: "bar ours", title: `decided after ${from === to ? times(from) : `${from} to ${times(to)}`}`,
    told: methods.map((method) => `${NAMES[method]}: ${percent(found[method].times[place][2], 1)}`),
  }));
  const told = (method) => `${NAMES[method]}: ${fixed(found[method].time, 1)} ± ${fixed(found[method].spread, 1)}`;
  const rivals = methods.slice(1), looks = { best: "static", optimum: "optimum dashed" };
  return {
    label: "Share of sequences by the number of observations used. Arrow keys walk along the bars.",
    height: width > 700 ? 260 : 230,
    x: axis("observations used", 0.5, page.data.horizon + 0.5, { count: 10, whole: true }),
    y: axis("share of sequences", 0, 1.05 * highest, { unit: 100, sign: " %", count: 5 }),
    lines: rivals.map((method) => ({ points: outlineOf(found[method].times), look: looks[method] })),
    items,
    legend: [
      { name: told("ours"), look: "full ours", shape: "square" },
      ...rivals.map((method) => ({ name: told(method), look: looks[method] })),
    ],
  };
}
