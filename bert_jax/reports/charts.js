// Curves, dots and bars over one axis as charts in SVG, which are read by pointer and by
// keyboard. The page has an element with the id blank, an empty svg.
//
// A chart has a title and a note; x: the name of its axis, low and high if its range is
// given, percent, whole if its ticks are whole numbers; curves: name, xs, values, color,
// dots if no line joins them; lines: horizontal ones, name and value; bars: name, edges,
// heights; marks: vertical lines, at and name; diagonal: the name of the line of equal
// values; percent, limits, from_zero of its values. All but title, note and x may be absent.

const WIDTH = 540, HEIGHT = 250, LEFT = 58, RIGHT = 14, TOP = 10, BOTTOM = 36;
const blank = document.getElementById("blank");

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

function axisLabel(value, isPercent) {
  if (isPercent) return Number((100 * value).toPrecision(4)) + " %";
  if (Math.abs(value) >= 1e6) return Number((value / 1e6).toPrecision(4)) + " M";
  if (Math.abs(value) >= 1e4) return Number((value / 1e3).toPrecision(4)) + " k";
  if (value !== 0 && Math.abs(value) < 1e-2)
    return Number(value.toPrecision(3)).toExponential();
  return String(Number(value.toPrecision(6)));
}

// Ticks with their labels: numbers with all of their digits where fewer make them equal.
function labelled(values, isPercent) {
  let labels = values.map(value => axisLabel(value, isPercent));
  const [factor, unit] = isPercent ? [100, " %"] : [1, ""];
  if (new Set(labels).size < labels.length)
    labels = values.map(value => Number((factor * value).toPrecision(12)) + unit);
  return values.map((value, i) => [value, labels[i]]);
}

// A chart with all of its fields.
function completed(chart) {
  const curves = (chart.curves || []).map((curve, i) => ({ color: "c" + i, ...curve }));
  return { lines: [], marks: [], bars: null, limits: null, diagonal: "", ...chart, curves };
}

function valueRange(chart, log) {
  if (chart.limits) return chart.limits;
  let values = chart.curves.flatMap(curve => curve.values);
  values = values.concat(chart.lines.map(line => line.value), chart.bars ? [0, ...chart.bars.heights] : []);
  if (log) values = values.filter(value => value > 0);
  let low = Math.min(...values), high = Math.max(...values);
  if (log) return [low / 1.1, high * 1.1];
  const margin = (high - low || Math.abs(high) || 1) * 0.05;
  low = chart.from_zero && low >= 0 ? 0 : low >= 0 ? Math.max(0, low - margin) : low - margin;
  return [low, high + margin];
}

function axisRange(chart, logX) {
  if (chart.x.low !== undefined) return [chart.x.low, chart.x.high];
  const xs = chart.curves.flatMap(curve => curve.xs);
  let first = Math.min(...xs), last = Math.max(...xs);
  if (logX) first = Math.max(1, first);
  else if (first < last / 2) first = 0;
  if (first === last) [first, last] = [Math.max(logX ? 0.5 : 0, first - 1), last + 1];
  return [first, last];
}

function drawAxes(svg, chart, log, logX) {
  const [first, last] = axisRange(chart, logX), [low, high] = valueRange(chart, log);
  const x = scale(first, last, logX, LEFT, WIDTH - RIGHT);
  const y = scale(low, high, log, HEIGHT - BOTTOM, TOP);
  for (const [value, label] of labelled(ticks(low, high, log, 5), chart.percent)) {
    svgElement(svg, "line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) });
    svgElement(svg, "text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, label);
  }
  for (const [value, label] of labelled(ticks(first, last, logX, 6), chart.x.percent)) {
    if (chart.x.whole && !Number.isInteger(value)) continue;
    svgElement(svg, "line", { class: "grid", x1: x(value), x2: x(value), y1: TOP, y2: HEIGHT - BOTTOM });
    const isLast = x(value) > WIDTH - RIGHT - 4;
    const place = { x: isLast ? WIDTH - 1 : x(value), y: HEIGHT - BOTTOM + 16,
      "text-anchor": isLast ? "end" : "middle" };
    svgElement(svg, "text", place, label);
  }
  svgElement(svg, "text", { x: WIDTH - RIGHT, y: HEIGHT - 4, "text-anchor": "end" }, chart.x.name);
  svg.places = { x, y, first, last };
}

function drawBars(svg, { edges, heights }) {
  const { x, y } = svg.places;
  heights.forEach((value, i) => {
    const width = Math.max(x(edges[i + 1]) - x(edges[i]) - 1, 0.5);
    svgElement(svg, "rect", { class: "bar", x: x(edges[i]) + 0.5, y: y(value), width, height: y(0) - y(value) });
  });
}

function drawReferences(svg, chart, log) {
  const { x, y, first, last } = svg.places;
  for (const { value } of chart.lines.filter(line => !log || line.value > 0))
    svgElement(svg, "line", { class: "line", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) });
  if (chart.diagonal)
    svgElement(svg, "line", { class: "line", x1: x(first), y1: y(first), x2: x(last), y2: y(last) });
  for (const { at, name } of chart.marks) {
    svgElement(svg, "line", { class: "mark", x1: x(at), x2: x(at), y1: TOP, y2: HEIGHT - BOTTOM });
    const isLeft = at > (first + last) / 2;
    const place = { x: x(at) + (isLeft ? -5 : 5), y: HEIGHT - BOTTOM - 8, "text-anchor": isLeft ? "end" : "start" };
    svgElement(svg, "text", place, name);
  }
}

function drawChart(svg, chart, log, logX) {
  svg.replaceChildren();
  drawAxes(svg, chart, log, logX);
  const { x, y } = svg.places;
  if (chart.bars) drawBars(svg, chart.bars);
  drawReferences(svg, chart, log);
  for (const { xs, values, color, dots } of chart.curves) {
    const points = xs.map((at, i) => [at, values[i]])
      .filter(([at, value]) => (!log || value > 0) && (!logX || at > 0))
      .map(([at, value]) => [x(at).toFixed(1), y(value).toFixed(1)]);
    if (!dots) svgElement(svg, "polyline", { class: "curve " + color, points: points.join(" ") });
    if (dots || points.length <= 25)
      for (const [cx, cy] of points)
        svgElement(svg, "circle", { class: color + (dots ? " dot" : ""), cx, cy, r: dots ? 2.2 : 3 });
  }
}

function nearest(xs, x) {
  let best = 0;
  xs.forEach((other, index) => {
    if (Math.abs(other - x) < Math.abs(xs[best] - x)) best = index;
  });
  return best;
}

// The places at which a chart is read: those of its longest curve, or of its bars.
function readPlaces(chart) {
  if (!chart.curves.length)
    return chart.bars.heights.map((_, i) => (chart.bars.edges[i] + chart.bars.edges[i + 1]) / 2);
  return chart.curves.reduce((a, b) => a.xs.length >= b.xs.length ? a : b).xs;
}

function showPlace(svg, chart, read, index, visible = true) {
  const at = readPlaces(chart)[index];
  const format = chart.percent ? percent : number;
  const formatX = chart.x.whole ? integer : chart.x.percent ? percent : number;
  const { x, y } = svg.places;
  svg.querySelectorAll(".cursor").forEach(old => old.remove());
  if (visible)
    svgElement(svg, "line", { class: "cursor", x1: x(at), x2: x(at), y1: TOP, y2: HEIGHT - BOTTOM });
  const parts = chart.curves.map(curve => {
    const own = curve.xs[index] === at ? index : nearest(curve.xs, at);
    const place = { cx: x(curve.xs[own]), cy: y(curve.values[own]) };
    if (visible && Object.values(place).every(Number.isFinite))
      svgElement(svg, "circle", { class: "cursor " + curve.color, ...place, r: 4 });
    const other = curve.xs[own] === at ? "" : ` at ${chart.x.name} ${formatX(curve.xs[own])}`;
    return `${curve.name} ${format(curve.values[own])}${other}`;
  });
  if (chart.bars) {
    const { name, edges, heights } = chart.bars;
    const bar = Math.max(0, edges.slice(1, -1).filter(edge => at > edge).length);
    parts.push(`${name} ${format(heights[bar])} from ${formatX(edges[bar])} to ${formatX(edges[bar + 1])}`);
  }
  parts.push(...chart.lines.map(line => `${line.name} ${format(line.value)}`));
  const title = chart.x.name[0].toUpperCase() + chart.x.name.slice(1);
  read.textContent = `${title} ${formatX(at)}: ${parts.join(", ")}`;
}

function legend(parent, chart) {
  const made = element(parent, "p", undefined, { class: "legend" });
  const entries = chart.curves.map(({ name, color, dots }) => [name, dots ? color + " dot" : "curve " + color]);
  entries.push(...chart.lines.map(({ name }) => [name, "line"]));
  if (chart.diagonal) entries.push([chart.diagonal, "line"]);
  if (chart.bars) entries.push([chart.bars.name, "bar"]);
  for (const [name, color] of entries) {
    const entry = element(made, "span");
    const key = svgElement(entry, "svg", { viewBox: "0 0 26 8", "aria-hidden": "true" });
    if (color === "bar") svgElement(key, "rect", { class: color, x: 6, y: 0, width: 14, height: 8 });
    else if (color.endsWith("dot")) svgElement(key, "circle", { class: color, cx: 13, cy: 4, r: 3 });
    else svgElement(key, "line", { class: color, x1: 0, x2: 26, y1: 4, y2: 4 });
    entry.append(name);
  }
}

function addLogButton(caption, text, pressed) {
  const button = element(caption, "button", text, { "aria-pressed": "false" });
  button.addEventListener("click", () => button.setAttribute("aria-pressed", pressed()));
}

// Add a chart; return a function that draws it again.
function addChart(parent, given, { logX = () => false, logValues = false } = {}) {
  const chart = completed(given), figure = element(parent, "figure");
  const caption = element(figure, "figcaption");
  element(caption, "strong", chart.title);
  const svgLabel = `${chart.title} by ${chart.x.name}; the arrow keys read the values`;
  const svg = svgElement(figure, "svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img",
    tabindex: "0", "aria-label": svgLabel });
  legend(figure, chart);
  const read = element(figure, "p", "", { class: "read", "aria-live": "polite" });
  element(figure, "p", chart.note, { class: "note" });
  let log = false;
  const draw = () => drawChart(svg, chart, log, logX());
  if (logValues) addLogButton(caption, "logarithmic values", () => {
    log = !log;
    draw();
    return log;
  });
  const places = readPlaces(chart);
  let at = chart.marks.length ? nearest(places, chart.marks[0].at) : places.length - 1;
  const show = index => {
    at = Math.min(Math.max(index, 0), places.length - 1);
    showPlace(svg, chart, read, at);
  };
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect();
    const { first, last } = svg.places;
    const share = ((event.clientX - box.left) / box.width * WIDTH - LEFT) / (WIDTH - RIGHT - LEFT);
    show(nearest(places, logX() ? first * (last / first) ** share : first + (last - first) * share));
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
  showPlace(svg, chart, read, at, false);
  return draw;
}
