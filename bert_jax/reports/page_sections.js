// The sections of a page of a report, and numbers as text. The page has a main element,
// and an element with the id contents.

function section(id, title, note) {
  const link = element(document.getElementById("contents"), "a", title);
  link.href = "#" + id;
  const made = element(document.querySelector("main"), "section");
  element(made, "h2", title, { id });
  if (note) addNote(made, note);
  return made;
}

// Add a note, in which what is between backquotes is code.
function addNote(parent, note) {
  const made = element(parent, "p", undefined, { class: "note" });
  note.split("`").forEach((text, i) => i % 2 ? element(made, "code", text) : made.append(text));
}

const integer = value => Math.round(value).toLocaleString("en");

function number(value) {
  if (value === null) return "–";
  const size = Math.abs(value);
  if (size >= 1000) return integer(value);
  if (size !== 0 && size < 0.001) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

// Fill the background of a cell from the left, as a bar of this fraction.
function fillCell(cell, fraction) {
  const ink = getComputedStyle(document.documentElement).getPropertyValue("--ink");
  const filled = 100 * (fraction || 0) + "%";
  cell.style.background = `linear-gradient(to right, rgba(${ink}, .22) ${filled}, transparent ${filled})`;
}
