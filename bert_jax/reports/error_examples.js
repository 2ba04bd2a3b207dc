// The worst examples, and the parts of a section.

const FIRST = 10;
let shownExamples;

const examplesOf = parts => parts.filter(part => part.kind === "examples").flatMap(part => part.items);
const hasConfusion = (item, gold, predicted) => item.confusions.some(([own, other]) =>
  (!gold || own === gold) && (!predicted || other === predicted));

function canShowExamples(gold, predicted) {
  const all = data.sections.flatMap(({ parts }) => examplesOf(parts));
  return all.some(item => hasConfusion(item, gold, predicted));
}

function showExamples(gold, predicted) {
  shownExamples(gold, predicted);
  document.getElementById("worst").scrollIntoView();
}

function addPassage(parent, { name, spans }, isAlone) {
  const line = element(parent, "p", undefined, { class: "passage" });
  if (!isAlone) element(line, "small", name + "  ");
  for (const { text, mark, label } of spans) {
    const place = mark ? element(line, "mark", undefined, { class: mark }) : line;
    place.append(text);
    if (label) element(place, "small", label);
  }
}

function addItem(parent, { where, facts, passages }) {
  const article = element(parent, "article");
  const line = element(article, "p", undefined, { class: "facts" });
  for (const [name, value] of facts) {
    const fact = element(line, "span", name + " ");
    element(fact, "b", value);
  }
  passages.forEach(passage => addPassage(article, passage, passages.length === 1));
  element(element(article, "p"), "small", where);
}

function addSelect(parent, name, options) {
  const label = element(parent, "label", name + " ");
  const select = element(label, "select");
  for (const [value, text] of [["", "any"], ...options.map(option => [option, option])])
    element(select, "option", text, { value });
  return select;
}

function addExamples(parent, { items }) {
  const pairs = items.flatMap(item => item.confusions);
  const choice = element(parent, "div", undefined, { class: "choice" });
  const [gold, predicted] = ["gold", "predicted"].map((name, i) =>
    addSelect(choice, name, [...new Set(pairs.map(pair => pair[i]))].sort()));
  choice.hidden = !pairs.length;
  const count = element(parent, "p", "", { class: "note", "aria-live": "polite" });
  const list = element(parent, "div"), more = element(parent, "button", "", { type: "button" });
  const show = limit => {
    const chosen = items.filter(item =>
      !gold.value && !predicted.value || hasConfusion(item, gold.value, predicted.value));
    const isChosen = gold.value || predicted.value;
    count.textContent = isChosen ? `${chosen.length} of the ${items.length} listed examples.` : "";
    list.replaceChildren();
    chosen.slice(0, limit).forEach(item => addItem(list, item));
    more.textContent = `Show all ${chosen.length}`;
    more.hidden = chosen.length <= limit;
  };
  more.addEventListener("click", () => show(Infinity));
  for (const select of [gold, predicted]) select.addEventListener("change", () => show(FIRST));
  shownExamples = (own, other) => {
    [gold.value, predicted.value] = [own, other];
    show(FIRST);
  };
  show(FIRST);
}

const ADD = { table: addTable, matrix: addMatrix, chart: addChart, examples: addExamples };

// Add the parts of a section; tables and charts stand beside each other.
function addParts(parent, parts) {
  const place = element(parent, "div", undefined, { class: "parts" });
  for (const part of parts) ADD[part.kind](part.kind === "examples" ? parent : place, part);
}
