// The sections of a run's report without its charts and samples. The page has an element
// with the id scores.

function addEvaluations({ columns, rows, evaluations }) {
  const score = (column, value) => column.percent ? percent(value) : number(value);
  if (!rows.length) return;
  const extent = rows.length === evaluations ? "" : ` ${rows.length} of ${integer(evaluations)} are listed.`;
  const part = section("scores-by-step", "Evaluations",
    `Scores on the validation data, by step.${extent} Checkpoints that are still there are marked.`);
  const table = element(wideElement(part), "table", undefined,
    { id: "evaluations", class: "ruled" });
  const head = element(table, "tr");
  for (const name of ["step", ...columns.map(({ title }) => title), "checkpoint"])
    element(head, "th", name, { scope: "col" });
  for (const { step, values, kept, best } of rows) {
    const row = element(table, "tr", undefined, best ? { class: "best" } : {});
    element(row, "th", integer(step), { scope: "row" });
    values.forEach((value, i) => element(row, "td", score(columns[i], value)));
    element(row, "td", kept ? best ? "kept, the best" : "kept" : "");
  }
  const last = rows.at(-1);
  const listed = columns.map((column, i) => `${column.title} ${score(column, last.values[i])}`);
  document.getElementById("scores").textContent =
    `Last evaluation, at step ${integer(last.step)}: ${listed.join(", ")}.`;
}

function addConfiguration(allFields) {
  const part = section("configured", "Configuration",
    "Values that differ from the defaults are bold, with the default after them; the others are " +
    "dimmed. A value marked “filled in” comes from the data. Point at a name for its meaning.");
  const label = element(part, "label");
  const box = element(label, "input", undefined, { type: "checkbox" });
  label.append(" only what differs");
  const all = element(part, "div", undefined, { id: "configuration" });
  box.addEventListener("change", () => all.classList.toggle("few", box.checked));
  const groups = new Map();
  for (const field of allFields) {
    const [group, name] = field.name.includes(".") ? field.name.split(".") : ["run", field.name];
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push({ ...field, name });
  }
  const order = ["run", ...[...groups.keys()].filter(name => name !== "run")];
  for (const group of order) {
    const fields = groups.get(group);
    const isDefault = fields.every(field => field.value === field.default);
    const made = element(all, "section", undefined, isDefault ? { class: "all-default" } : {});
    element(made, "h3", group);
    const table = element(made, "table");
    for (const field of fields) {
      const changed = field.value !== field.default;
      const row = element(table, "tr", undefined, { class: changed ? "changed" : "default" });
      element(row, "th", field.name, { scope: "row", title: field.about });
      const cell = element(row, "td", field.value || "(empty)");
      const origin = field.resolved ? "filled in" : `default ${field.default || "(empty)"}`;
      if (changed) { cell.append(" "); element(cell, "small", origin); }
    }
  }
}

function addProvenance(rows) {
  const part = section("origin", "Provenance", "What the workdir records, and when this page was made.");
  const table = element(part, "table", undefined, { id: "provenance", class: "ruled" });
  for (const [name, text] of rows) {
    const row = element(table, "tr");
    element(row, "th", name, { scope: "row" });
    element(row, "td", text);
  }
}
