// The curves of a run as charts in SVG, which are read by pointer and by keyboard.
// The page has an element with the id blank, an empty svg.

const WIDTH = 540, HEIGHT = 250, LEFT = 58, RIGHT = 14, TOP = 10, BOTTOM = 36;
const redraw = [], blank = document.getElementById("blank");
let logSteps = false;

function svgElement(parent, kind, attributes, text) {
  const made = document.createElementNS(blank.namespaceURI, kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

function ticks(low, high, log, most) {
  const places = [];
  if (log) {
    const decades = Math.log10(high / low);
    const factors = decades < 0.8 ? [1, 1.5, 2, 3, 4, 5, 7] : decades < 2.2 ? [1, 2, 5] : [1];
    const stride = Math.max(1, Math.ceil(decades / most));
    for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); e += stride)
      for (const factor of factors) places.push(factor * 10 ** e);
    const inside = places.filter(value => value >= low * 0.999 && value <= high * 1.001);
    if (inside.length > 1) return inside;
    places.length = 0;
  }
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(factor => factor * power >= rough);
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++)
    places.push(i * step);
  return places;
}

function scale(low, high, log, from, to) {
  const transform = log ? Math.log : value => value;
  const [a, b] = [transform(low), transform(high)];
  return value => from + (to - from) * (transform(value) - a) / (b - a || 1);
}

function axisLabel(value, chart) {
  if (chart && chart.percent) return Number((100 * value).toPrecision(4)) + " %";
  if (Math.abs(value) >= 1e6) return Number((value / 1e6).toPrecision(4)) + " M";
  if (Math.abs(value) >= 1e4) return Number((value / 1e3).toPrecision(4)) + " k";
  if (value !== 0 && Math.abs(value) < 1e-2)
    return Number(value.toPrecision(3)).toExponential();
  return String(Number(value.toPrecision(6)));
}

function colorOf(curve) { return curve.name === "training" ? "c0" : "c1"; }

function domain(chart, log) {
  let values = chart.curves.flatMap(curve => curve.values);
  values = values.concat(chart.lines.map(line => line.value));
  if (log) values = values.filter(value => value > 0);
  let low = Math.min(...values), high = Math.max(...values);
  if (log) return [low / 1.1, high * 1.1];
  const margin = (high - low || Math.abs(high) || 1) * 0.05;
  low = chart.from_zero && low >= 0 ? 0 : low >= 0 ? Math.max(0, low - margin) : low - margin;
  return [low, high + margin];
}

function drawChart(svg, chart, log) {
  svg.replaceChildren();
  const steps = chart.curves.flatMap(curve => curve.steps);
  let first = Math.min(...steps), last = Math.max(...steps);
  if (logSteps) first = Math.max(1, first);
  else if (first < last / 2) first = 0;
  if (first === last) [first, last] = [Math.max(logSteps ? 0.5 : 0, first - 1), last + 1];
  const [low, high] = domain(chart, log);
  const x = scale(first, last, logSteps, LEFT, WIDTH - RIGHT);
  const y = scale(low, high, log, HEIGHT - BOTTOM, TOP);
  for (const value of ticks(low, high, log, 5)) {
    svgElement(svg, "line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) });
    svgElement(svg, "text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, axisLabel(value, chart));
  }
  for (const value of ticks(first, last, logSteps, 6).filter(Number.isInteger)) {
    svgElement(svg, "line", { class: "grid", x1: x(value), x2: x(value), y1: TOP, y2: HEIGHT - BOTTOM });
    const place = { x: x(value), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" };
    svgElement(svg, "text", place, axisLabel(value));
  }
  svgElement(svg, "text", { x: WIDTH - RIGHT, y: HEIGHT - 4, "text-anchor": "end" }, "step");
  for (const line of chart.lines)
    if (!log || line.value > 0) {
      const [y1, y2] = [y(line.value), y(line.value)];
      svgElement(svg, "line", { class: "line", x1: LEFT, x2: WIDTH - RIGHT, y1, y2 });
    }
  chart.curves.forEach(curve => {
    const points = curve.steps.map((step, i) => [step, curve.values[i]])
      .filter(([step, value]) => (!log || value > 0) && (!logSteps || step > 0))
      .map(([step, value]) => [x(step).toFixed(1), y(value).toFixed(1)]);
    const color = colorOf(curve);
    svgElement(svg, "polyline", { class: "curve " + color, points: points.join(" ") });
    if (points.length <= 25)
      for (const [cx, cy] of points) svgElement(svg, "circle", { class: color, cx, cy, r: 3 });
  });
  svg.places = { x, y, first, last };
}

function nearest(steps, step) {
  let best = 0;
  steps.forEach((other, index) => {
    if (Math.abs(other - step) < Math.abs(steps[best] - step)) best = index;
  });
  return best;
}

function showStep(svg, chart, read, step, visible = true) {
  const format = chart.percent ? percent : number;
  const { x, y } = svg.places;
  svg.querySelectorAll(".cursor").forEach(old => old.remove());
  if (visible)
    svgElement(svg, "line", { class: "cursor", x1: x(step), x2: x(step), y1: TOP, y2: HEIGHT - BOTTOM });
  const parts = chart.curves.map(curve => {
    const at = nearest(curve.steps, step);
    const color = colorOf(curve);
    const place = { cx: x(curve.steps[at]), cy: y(curve.values[at]) };
    if (visible && Object.values(place).every(Number.isFinite))
      svgElement(svg, "circle", { class: "cursor " + color, ...place, r: 4 });
    const other = curve.steps[at] === step ? "" : ` at step ${integer(curve.steps[at])}`;
    return `${curve.name} ${format(curve.values[at])}${other}`;
  });
  parts.push(...chart.lines.map(line => `${line.name} ${format(line.value)}`));
  read.textContent = `Step ${integer(step)}: ${parts.join(", ")}`;
}

function legend(parent, chart) {
  const made = element(parent, "p", undefined, { class: "legend" });
  const entries = chart.curves.map(curve => [curve.name, "curve " + colorOf(curve)]);
  for (const [name, color] of [...entries, ...chart.lines.map(line => [line.name, "line"])]) {
    const entry = element(made, "span");
    const key = svgElement(entry, "svg", { viewBox: "0 0 26 8", "aria-hidden": "true" });
    svgElement(key, "line", { class: color, x1: 0, x2: 26, y1: 4, y2: 4 });
    entry.append(name);
  }
}

function remarks(chart) {
  const parts = [chart.note];
  for (const { name, steps, logged, not_finite } of chart.curves) {
    if (steps.length < logged)
      parts.push(`Of ${integer(logged)} ${name} points, ${integer(steps.length)} are drawn: ` +
        "the lowest and the highest of equal parts.");
    if (not_finite)
      parts.push(`${integer(not_finite)} ${name} values are not finite and are left out.`);
  }
  return parts.join(" ");
}

function addChart(parent, chart) {
  const figure = element(parent, "figure");
  const caption = element(figure, "figcaption");
  element(caption, "strong", chart.title);
  let log = false;
  const values = chart.curves.flatMap(curve => curve.values).filter(value => value > 0);
  const svgLabel = `${chart.title} by step; the arrow keys read the values`;
  const svg = svgElement(figure, "svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img",
    tabindex: "0", "aria-label": svgLabel });
  legend(figure, chart);
  const read = element(figure, "p", "", { class: "read", "aria-live": "polite" });
  element(figure, "p", remarks(chart), { class: "note" });
  const draw = () => drawChart(svg, chart, log);
  const spread = values.length && Math.max(...values) >= 2 * Math.min(...values);
  if (spread && /loss$|norm$|byte$/.test(chart.name)) {
    const button = element(caption, "button", "logarithmic values", { "aria-pressed": "false" });
    button.addEventListener("click", () => {
      log = !log;
      button.setAttribute("aria-pressed", log);
      draw();
    });
  }
  redraw.push(draw);
  const longest = chart.curves.reduce((a, b) => a.steps.length >= b.steps.length ? a : b);
  let at = longest.steps.length - 1;
  const show = index => {
    at = Math.min(Math.max(index, 0), longest.steps.length - 1);
    showStep(svg, chart, read, longest.steps[at]);
  };
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect();
    const { first, last } = svg.places;
    const share = ((event.clientX - box.left) / box.width * WIDTH - LEFT) / (WIDTH - RIGHT - LEFT);
    const step = logSteps ? first * (last / first) ** share : first + (last - first) * share;
    show(nearest(longest.steps, step));
  });
  svg.addEventListener("focus", () => show(at));
  svg.addEventListener("keydown", event => {
    const far = event.shiftKey ? 20 : 1;
    const to = { ArrowLeft: at - far, ArrowRight: at + far, Home: 0, End: Infinity }[event.key];
    if (to === undefined) return;
    show(to);
    event.preventDefault();
  });
  draw();
  showStep(svg, chart, read, longest.steps[at], false);
}

function addCharts(charts) {
  if (!charts.length) return;
  const part = section("curves", "Curves",
    "Point at a chart, or choose one by Tab and move over its steps with the arrow keys.");
  const button = element(part, "button", "logarithmic steps", { "aria-pressed": "false" });
  button.addEventListener("click", () => {
    logSteps = !logSteps;
    button.setAttribute("aria-pressed", logSteps);
    redraw.forEach(draw => draw());
  });
  let group = "", grid;
  for (const chart of charts) {
    if (chart.section !== group) {
      group = chart.section;
      element(part, "h3", group);
      grid = element(part, "div", undefined, { class: "charts" });
    }
    addChart(grid, chart);
  }
}
