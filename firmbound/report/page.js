// One cost is chosen for the whole page: slider, address and points of the front move it, everything follows.

const page = { data: JSON.parse(document.getElementById("data").textContent), cost: 0, choose: chooseAndLink };
const slider = document.getElementById("cost");
const charts = [];

function choose(index) {
  page.cost = index;
  slider.value = index;
  const cost = String(page.data.costs[index]);
  document.getElementById("cost-shown").value = cost;
  document.querySelectorAll("[data-cost]").forEach((part) => { part.hidden = Number(part.dataset.cost) !== index; });
  const shown = (fact) => document.querySelector(`.cards:not([hidden]) [data-fact="${fact}"] b`).textContent;
  slider.setAttribute("aria-valuetext", `${cost}: ${shown("early")} observations, ${shown("wrong")} wrong`);
  charts.forEach((chart) => chart.draw());
  tip.place();
}

// A view can be linked: page.html#cost=0.2
function costOfAddress() {
  const asked = /^#cost=(.+)$/.exec(location.hash);
  const index = asked ? page.data.costs.indexOf(Number(asked[1])) : -1;
  return index < 0 ? null : index;
}

function chooseAndLink(index) {
  choose(index);
  history.replaceState(null, "", `#cost=${page.data.costs[index]}`);
}

const theme = document.getElementById("theme"), night = matchMedia("(prefers-color-scheme: dark)");
function light(dark) {
  document.documentElement.style.colorScheme = dark ? "dark" : "light";
  theme.setAttribute("aria-pressed", dark);
}
theme.setAttribute("aria-pressed", night.matches);
theme.addEventListener("click", () => light(theme.getAttribute("aria-pressed") !== "true"));
night.addEventListener("change", () => light(night.matches));

function begin() {
  const place = (name) => document.querySelector(`[data-chart="${name}"]`);
  charts.push(
    makeChart(place("speed_accuracy"), () => speedAccuracy(page)),
    makeChart(place("risk_curves"), () => riskCurves(page)),
    makeChart(place("hitting_times"), (width) => hittingTimes(page, width)),
    makeTrajectories(place("trajectories"), page),
  );
  makeCalibration(place("calibration"), page);
  slider.addEventListener("input", () => chooseAndLink(Number(slider.value)));
  slider.form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", () => choose(costOfAddress() ?? page.cost));
  choose(costOfAddress() ?? Number(slider.getAttribute("value")));
  // Charts are drawn when their places have a size, with the first frame; after it the page is ready.
  requestAnimationFrame(() => requestAnimationFrame(() => {
    document.documentElement.dataset.ready = Math.round(performance.now());
  }));
}
begin();
