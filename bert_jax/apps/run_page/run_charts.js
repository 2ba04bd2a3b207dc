// The curves of a run by step.

const redraw = [];
let logSteps = false;

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

function addRunChart(parent, chart) {
  const curves = chart.curves.map(curve =>
    ({ color: curve.name === "training" ? "c0" : "c1", ...curve, xs: curve.steps }));
  const values = curves.flatMap(curve => curve.values).filter(value => value > 0);
  const spread = values.length && Math.max(...values) >= 2 * Math.min(...values);
  const logValues = spread && /loss$|norm$|byte$/.test(chart.name);
  const drawn = { ...chart, curves, x: { name: "step", whole: true }, note: remarks(chart) };
  redraw.push(addChart(parent, drawn, { logX: () => logSteps, logValues }));
}

function addCharts(charts) {
  if (!charts.length) return;
  const part = section("curves", "Curves",
    "Point at a chart, or choose one by Tab and move over its steps with the arrow keys.");
  addLogButton(part, "logarithmic steps", () => {
    logSteps = !logSteps;
    redraw.forEach(draw => draw());
    return logSteps;
  });
  let group = "", grid;
  for (const chart of charts) {
    if (chart.section !== group) {
      group = chart.section;
      element(part, "h3", group);
      grid = element(part, "div", undefined, { class: "charts" });
    }
    addRunChart(grid, chart);
  }
}
