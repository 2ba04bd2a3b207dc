// The tables of several runs: a column for each.

function runsTable(part, runs) {
  const table = element(wideElement(part), "table", undefined, { class: "ruled runs" });
  const head = element(table.createTHead(), "tr");
  element(head, "th", "");
  for (const { name, color } of runs) {
    const cell = element(head, "th", undefined, { scope: "col" });
    const key = svgElement(cell, "svg", { viewBox: "0 0 26 8", "aria-hidden": "true" });
    svgElement(key, "line", { class: "curve " + color, x1: 0, x2: 26, y1: 4, y2: 4 });
    cell.append(name);
  }
  return table.createTBody();
}

function addScores({ runs, scores }) {
  const isRanked = scores.some(row => row.best.length);
  const part = section("scores", "Scores", "On the validation data, of each run's best evaluation." +
    (isRanked ? " The best of the runs is bold." : ""));
  const body = runsTable(part, runs);
  for (const { title, percent: isPercent, whole, values, best } of scores) {
    const row = element(body, "tr");
    element(row, "th", title, { scope: "row" });
    const format = value => value === null ? "–"
      : whole ? integer(value) : isPercent ? percent(value) : number(value);
    values.forEach((value, i) =>
      element(row, "td", format(value), best.includes(i) ? { class: "best" } : {}));
  }
  const row = element(body, "tr");
  element(row, "th", "run", { scope: "row" });
  for (const { progress } of runs) element(row, "td", progress);
}

// Add a table of texts by name: what differs, and by choice the others.
function addFields(runs, fields, id, title, note) {
  const different = fields.filter(field => field.differs).length;
  const counted = `${different || "None"} of ${fields.length} ${different > 1 ? "differ" : "differs"}.`;
  const part = section(id, title, `${counted} ${note}`);
  const label = element(part, "label");
  const box = element(label, "input", undefined, { type: "checkbox" });
  label.append(" also the others");
  const body = runsTable(part, runs), table = body.parentElement;
  table.classList.add("few");
  box.addEventListener("change", () => table.classList.toggle("few", !box.checked));
  for (const { name, about, values, differs } of fields) {
    const row = element(body, "tr", undefined, differs ? {} : { class: "equal" });
    const head = element(row, "th", undefined, { scope: "row", title: about });
    // A long name may be broken after a full stop or an underscore.
    for (const word of name.split(/(?<=[._])/)) head.append(word, document.createElement("wbr"));
    for (const value of values) element(row, "td", value === null ? "–" : value || "(empty)");
  }
}
