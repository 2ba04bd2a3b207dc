// Tables that are sorted by a column, and matrices of confusions.

const FORMATS = { text: value => value, whole: integer, number, percent };

function formatCell(value, format) {
  return value === null ? "–" : typeof value === "string" ? value : FORMATS[format](value);
}

function sortRows(table, rows, fixed, column, descending) {
  const sorted = rows.slice(0, rows.length - fixed);
  const key = row => row.values[column];
  const compare = (a, b) => typeof a === "string" ? a.localeCompare(b, "en", { numeric: true })
    : (a === null) - (b === null) || a - b;
  sorted.sort((a, b) => (descending ? -1 : 1) * compare(key(a), key(b)));
  table.tBodies[0].replaceChildren(...[...sorted, ...rows.slice(rows.length - fixed)].map(row => row.made));
}

function addHead(table, columns, sort) {
  const head = element(table.createTHead(), "tr");
  columns.forEach(({ title, format }, index) => {
    const cell = element(head, "th", sort ? undefined : title, { scope: "col", class: format });
    if (!sort) return;
    const button = element(cell, "button", title, { type: "button" });
    button.addEventListener("click", () => {
      const descending = cell.ariaSort ? cell.ariaSort === "ascending" : format !== "text";
      for (const other of head.cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", descending ? "descending" : "ascending");
      sort(index, descending);
    });
  });
}

function addTable(parent, { title, columns, rows, last_rows }) {
  const table = element(wideElement(parent), "table", undefined,
    { class: "ruled" });
  element(table, "caption", title);
  const made = [], isSortable = rows.length - last_rows > 2;
  addHead(table, columns, isSortable && ((...by) => sortRows(table, made, last_rows, ...by)));
  const body = table.createTBody(), firstLast = rows.length - last_rows;
  rows.forEach((values, number) => {
    const kind = number < firstLast ? "" : number === firstLast ? "last first-of-last" : "last";
    const row = element(body, "tr", undefined, kind ? { class: kind } : {});
    values.forEach((value, i) => {
      const { format, has_bar } = columns[i], text = formatCell(value, format);
      if (i === 0) element(row, "th", text, { scope: "row", class: format });
      else {
        const cell = element(row, "td", text, { class: has_bar ? "bar" : format });
        if (has_bar && typeof value === "number") fillCell(cell, value);
      }
    });
    made.push({ values, made: row });
  });
}

// Add a matrix whose shading is the fraction of the row; a choice of a confusion shows
// its examples.
function addMatrix(parent, { title, gold, predicted, counts }) {
  const table = element(wideElement(parent), "table", undefined,
    { class: "matrix" });
  element(table, "caption", title);
  const head = table.createTHead();
  const above = element(head, "tr");
  element(above, "th", "gold ↓", { scope: "col", class: "axis" });
  element(above, "th", "predicted →", { scope: "colgroup", class: "axis", colspan: predicted.length });
  const names = element(head, "tr");
  element(names, "td", "");
  for (const name of predicted) element(names, "th", name, { scope: "col" });
  const colors = getComputedStyle(document.documentElement);
  const body = table.createTBody();
  gold.forEach((name, i) => {
    const row = element(body, "tr");
    element(row, "th", name, { scope: "row" });
    const total = counts[i].reduce((sum, count) => sum + (count || 0), 0);
    predicted.forEach((other, j) => {
      const count = counts[i][j], isWrong = name !== other;
      const cell = element(row, "td");
      const color = colors.getPropertyValue(isWrong ? "--other" : "--ink");
      cell.style.background = `rgba(${color}, ${(count || 0) / (total || 1) * 0.55})`;
      cell.title = `${percent((count || 0) / (total || 1))} of ${name}`;
      if (!count || !isWrong || !canShowExamples(name, other))
        return element(cell, "span", formatCell(count, "whole"));
      const label = `${count}: show examples of ${name} predicted as ${other}`;
      const button = element(cell, "button", integer(count), { type: "button", "aria-label": label });
      button.addEventListener("click", () => showExamples(name, other));
    });
  });
}
