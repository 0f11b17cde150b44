// Whether beliefs are honest: how sure against how often right, and errors over time.

const ENOUGH = 30; // sequences that a group must hold before its share means anything
const MARKS = ["dot", "square", "diamond", "triangle"];

function reliability(page) {
  const items = page.data.honesty.reliability.flatMap(({ t, bins }, place) => {
    const mark = { shape: MARKS[place % MARKS.length], size: 4, look: `full class-${place % 10}` };
    return bins.filter(({ count }) => count >= ENOUGH).map(({ sure, right, count }) => ({
      ...mark, key: `${t}-${sure}`, series: t, x: sure, y: right, title: `after ${times(t)}`,
      told: [`${percent(sure, 1)} sure, ${percent(right, 1)} right`, `${count} sequences`],
    }));
  });
  const [least] = extent(items.flatMap(({ x, y }) => [x, y]));
  const low = items.length ? Math.max(0, least - 0.03) : 0;
  const series = [...new Set(items.map((item) => item.series))];
  const scale = { unit: 100, sign: " %", count: 5 };
  return {
    label: "How often right, by how sure. Arrow keys walk along the points.",
    x: axis("how sure", low, 1, scale),
    y: axis("how often right", low, 1.005, scale),
    lines: [
      { points: [[low, low], [1, 1]], look: "static dotted" },
      ...series.map((t) => {
        const own = items.filter((item) => item.series === t);
        return { points: own.map(({ x, y }) => [x, y]), look: own[0].look.replace("full ", "") };
      }),
    ],
    items,
    legend: series.map((t) => {
      const { look, shape } = items.find((item) => item.series === t);
      return { name: `t = ${t}`, look, shape };
    }),
  };
}

function overTime(page, name, words, lines, digits) {
  const { steps } = page.data.honesty;
  const bounds = Object.entries(lines).filter(([key]) => steps.some((step) => step[key] !== null));
  const told = (step) => bounds.map(([key, line]) => `${line.words} ${fixed(step[key], digits)}`);
  const [, top] = extent(steps.flatMap((step) => [name, ...Object.keys(lines)].map((key) => step[key])));
  return {
    label: `${words} by the number of observations. Arrow keys walk along the points.`,
    x: axis("observations", 1, Math.max(steps.length ? steps[steps.length - 1].t : 1, 2), { whole: true }),
    y: axis(words, 0, 1.08 * (top || 1), { count: 5 }),
    lines: [
      ...bounds.map(([key, { look }]) => ({ points: steps.map((step) => [step.t, step[key]]), look })),
      { points: steps.map((step) => [step.t, step[name]]), look: "ours" },
    ],
    items: steps.map((step) => ({
      key: step.t, series: name, x: step.t, y: step[name], shape: "dot", size: 2.5, look: "full ours",
      title: `after ${times(step.t)}`, told: [`${words} ${fixed(step[name], digits)}`, ...told(step)],
    })),
    legend: [{ name: words, look: "ours" }, ...bounds.map(([, line]) => ({ name: line.words, look: line.look }))],
  };
}

function makeCalibration(place, page) {
  const bounds = {
    chance: { words: "by chance", look: "static dotted" },
    limit: { words: "limit above chance", look: "optimum dashed" },
  };
  const parts = [node("div"), node("div"), node("div")];
  place.append(node("div", { class: "trio" }, parts));
  return [
    makeChart(parts[0], () => reliability(page)),
    makeChart(parts[1], () => overTime(page, "error", "calibration error", bounds, 4)),
    makeChart(parts[2], () => overTime(page, "loss", "negative log-likelihood", {}, 3)),
  ];
}
