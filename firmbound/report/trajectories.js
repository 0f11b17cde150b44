// Evidence of some sequences as it grows, step by step, until each is decided. Decisions were made in Python: here
// they are only shown.

const PLAYED = 7000, QUICKEST = 50, SLOWEST = 350; // milliseconds: all of a play at most, and of one step
// Ticks of shares, those that people know best first.
const SURE = [0.999999, 0.99999, 0.9999, 0.999, 0.99, 0.9, 0.5, 0.2, 0.95, 0.8, 0.7, 0.6, 0.4, 0.3, 0.1];

const logOdds = (share) => Math.log(share / (1 - share));
const shareOf = (odds) => 1 / (1 + Math.exp(-odds));

function stateOf(sequence, cost, t) {
  const time = sequence.times[cost], now = Math.min(t, time), decided = t >= time;
  const right = decided && sequence.said[cost] === sequence.label;
  return { now, decided, right, height: sequence.path[now - 1] };
}

// What is known of all of them after t observations, in one sentence.
function countTold(page, t) {
  const found = page.data.sequences.map((sequence) => stateOf(sequence, page.cost, t));
  const decided = found.filter((state) => state.decided), right = decided.filter((state) => state.right).length;
  const judged = `${right} right, ${decided.length - right} wrong`;
  return `After ${times(t)}: ${decided.length} of ${found.length} decided, ${judged}`;
}

function heightTold(page, sequence, state) {
  if (page.data.classes.length === 2) return `log-likelihood ratio ${fixed(state.height, 2)}`;
  return `${page.data.classes[sequence.leaders[state.now - 1]]} leads with ${percent(shareOf(state.height), 2)}`;
}

function headItem(page, sequence, place, t) {
  const state = stateOf(sequence, page.cost, t), { classes } = page.data;
  const said = classes[sequence.said[page.cost]];
  const told = [`truth: ${classes[sequence.label]}`, `after ${state.now}: ${heightTold(page, sequence, state)}`];
  told.push(state.decided ? `decided for ${said}: ${state.right ? "right" : "wrong"}` : "still looking");
  const [shape, size] = !state.decided ? ["ring", 3] : state.right ? ["dot", 4] : ["cross", 5];
  return {
    key: place, series: "sequences", x: state.now, y: state.height, shape, size, title: `sequence ${place + 1}`, told,
    look: `${shape === "dot" ? "full" : "open"} class-${sequence.label % 10}`,
    data: { "data-mark": shape, "data-time": state.now, "data-said": state.decided ? sequence.said[page.cost] : "" },
  };
}

// Two classes: ratios as they are. More: log odds of the leader, named by the share that they mean.
function heightAxis(page) {
  const { sequences, classes } = page.data;
  const ends = sequences.map((sequence) => sequence.path[sequence.times[page.cost] - 1]);
  if (classes.length === 2) {
    // A boundary may lie beyond all that was ever seen; the picture is about what was.
    const reach = 1.5 * Math.max(1, ...ends.map(Math.abs));
    return axis(`log-likelihood ratio: ${classes[1]} (up) to ${classes[0]}`.slice(0, 60), -reach, reach);
  }
  const shown = sequences.flatMap((sequence) => sequence.path.slice(0, sequence.times[page.cost]));
  const [low, high] = extent(shown);
  const [bottom, top] = [low - 0.3, high + 0.5], only = [];
  for (const share of SURE) {
    const at = logOdds(share), free = only.every((tick) => Math.abs(tick.at - at) > (top - bottom) / 12);
    if (free && at >= bottom && at <= top) only.push({ at, name: `${Number((100 * share).toFixed(4))} %` });
  }
  return axis("posterior of the leading class", bottom, top, { only });
}

function trajectorySpec(page, player, width) {
  const { sequences, horizon, classes } = page.data;
  const boundary = page.data.boundaries[page.cost];
  const ends = (points, look) => [1, 2].map((end) => ({ points: points.map((point) => [point[0], point[end]]), look }));
  const lines = sequences.map((sequence, place) => {
    const grown = sequence.path.slice(0, Math.min(player.t, sequence.times[page.cost]));
    const points = grown.map((height, step) => [step + 1, height]);
    return { points, look: `path class-${sequence.label % 10}`, data: { "data-path": place } };
  });
  if (boundary) lines.push(...ends(boundary.fitted, "ink"));
  if (boundary && boundary.optimal) lines.push(...ends(boundary.optimal, "optimum dashed"));
  return {
    label: "Evidence of sequences until they are decided. Arrow keys walk from sequence to sequence.",
    height: width > 700 ? 420 : 320,
    x: axis("observation", 1, horizon, { count: 10, whole: true }),
    y: heightAxis(page),
    areas: boundary ? [{ points: boundary.fitted }] : [],
    lines,
    items: sequences.map((sequence, place) => headItem(page, sequence, place, player.t)),
    onLight: (key) => player.place.querySelectorAll("[data-path]").forEach((path) => {
      path.classList.toggle("lit", path.dataset.path === String(key));
    }),
    legend: [
      ...(classes.length <= 10 ? classes.map((name, place) => ({ name, look: `class-${place}` })) : []),
      { name: "right", look: "full ink", shape: "dot" },
      { name: "wrong", look: "open ink", shape: "cross" },
      { name: "still looking", look: "open ink", shape: "ring" },
      ...(boundary ? [{ name: "boundary: decide outside", look: "ink" }] : []),
      ...(boundary && boundary.optimal ? [{ name: "the exact optimum's", look: "optimum dashed" }] : []),
    ],
  };
}

function playerControls() {
  const play = node("button", { type: "button", class: "play" }, ["Play"]);
  const back = node("button", { type: "button", "aria-label": "One observation back" }, ["‹"]);
  const forth = node("button", { type: "button", "aria-label": "One observation on" }, ["›"]);
  const time = node("input", { type: "range", min: 1, step: 1, "aria-label": "Observations so far" });
  const told = node("output", { class: "told" });
  return { play, back, forth, time, told };
}

function makeTrajectories(place, page) {
  const controls = playerControls();
  place.append(node("div", { class: "player" }, Object.values(controls)));
  const player = { place, t: 1, last: 1, started: null };
  const chart = makeChart(place, (width) => trajectorySpec(page, player, width));

  // The play ends with the last decision: there is nothing to see after it.
  const bound = () => Math.max(...page.data.sequences.map((sequence) => sequence.times[page.cost]));
  function show(t) {
    player.t = Math.min(Math.max(t, 1), player.last);
    const told = countTold(page, player.t);
    controls.time.max = player.last;
    controls.time.value = player.t;
    controls.time.setAttribute("aria-valuetext", told);
    controls.told.value = told;
    chart.draw();
  }
  function pause() {
    player.started = null;
    controls.play.textContent = "Play";
  }
  function play() {
    const from = player.t >= player.last ? 1 : player.t, begun = performance.now();
    const pace = Math.min(SLOWEST, Math.max(QUICKEST, PLAYED / player.last));
    player.started = begun;
    controls.play.textContent = "Pause";
    show(from);
    const frame = (now) => {
      if (player.started !== begun) return;
      const t = from + Math.max(0, Math.floor((now - begun) / pace));
      if (t > player.t) show(t);
      if (player.t >= player.last) pause();
      else requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }
  controls.play.addEventListener("click", () => (player.started === null ? play() : pause()));
  for (const [button, by] of [[controls.back, -1], [controls.forth, 1]]) {
    button.addEventListener("click", () => { pause(); show(player.t + by); });
  }
  controls.time.addEventListener("input", () => { pause(); show(Number(controls.time.value)); });
  return {
    draw() {
      const over = player.t >= player.last;
      player.last = bound();
      if (over) player.t = player.last;
      show(player.t);
    },
  };
}
