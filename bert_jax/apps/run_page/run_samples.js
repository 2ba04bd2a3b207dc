// What the checkpoints of a run predict for masked words, or write after prompts.

function addMasked(part, steps, text, index) {
  element(part, "h3", `Text ${index + 1}`);
  const quote = element(part, "blockquote");
  const [before, after] = text.text.split("[MASK]");
  quote.append(before);
  element(quote, "mark", "[MASK]");
  quote.append(after);
  const word = text.answer.replace(/^▁/, "");
  const table = element(wideElement(part), "table", undefined,
    { class: "ruled" });
  const head = element(table, "tr");
  element(head, "th", "step", { scope: "col" });
  for (const step of steps) element(head, "th", integer(step), { scope: "col" });
  const ranks = text.by_step[0].top.length;
  for (let rank = 0; rank < ranks; rank++) {
    const row = element(table, "tr");
    element(row, "th", `prediction ${rank + 1}`, { scope: "row" });
    for (const { top } of text.by_step) {
      const [token, p] = top[rank], right = token === text.answer;
      const name = token.replace(/^▁/, "") || token;
      const cell = element(row, "td", `“${name}” `, right ? { class: "right" } : {});
      element(cell, "small", percent(p) + (right ? " ✓" : ""));
      fillCell(cell, p);
    }
  }
  for (const [title, format] of [
    [`rank of “${word}”`, ({ rank }) => integer(rank)],
    [`probability of “${word}”`, ({ probability }) => percent(probability)],
  ]) {
    const row = element(table, "tr");
    element(row, "th", title, { scope: "row" });
    for (const filling of text.by_step) element(row, "td", format(filling));
  }
}

function addContinued(part, steps, text) {
  element(part, "h3", text.text ? "Prompt" : "Without a prompt");
  if (text.text) element(part, "blockquote", text.text);
  const table = element(wideElement(part), "table", undefined,
    { class: "ruled continued" });
  const head = element(table, "tr");
  for (const name of ["step", "most probable tokens", "drawn tokens"])
    element(head, "th", name, { scope: "col" });
  text.by_step.forEach(({ greedy, drawn }, index) => {
    const row = element(table, "tr", undefined, { class: "row" });
    element(row, "th", integer(steps[index]), { scope: "row" });
    for (const continuation of [greedy, drawn]) element(row, "td", continuation, { class: "text" });
  });
}

function addSamples({ steps, checkpoints, problems, texts }) {
  const continued = texts.length && "greedy" in (texts[0].by_step[0] || {});
  const of = steps.length < checkpoints ? `${steps.length} of the ${checkpoints}` : "the";
  const note = !steps.length ? "" : continued
    ? `What ${of} kept checkpoints write after the beginnings of validation rows: always the ` +
      "most probable token, and tokens drawn by their probabilities with one seed for all."
    : `What ${of} kept checkpoints predict for a masked word of validation texts: the five most ` +
      "probable tokens, and the rank and probability of the word that stood there (✓).";
  const part = section("samples-of-text", "Samples", note);
  part.id = "samples";
  if (problems.length) {
    const list = element(part, "ul", undefined, { class: "problems" });
    for (const problem of problems) element(list, "li", problem);
  }
  if (steps.length)
    texts.forEach((text, index) => (continued ? addContinued : addMasked)(part, steps, text, index));
}
