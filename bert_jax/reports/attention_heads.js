// The attention of each head in a text: small squares, the chosen one as a large map with
// its tokens, and what a token attends to. The page has the functions of page_elements.js.

// Add it to `parent`; return show and chooseToken. `show` takes the tokens of a text,
// share(layer, head, from, to), the fraction of the attention of token `from` to token
// `to`, and the token to choose. onHead(layer, head) and onToken(token) are called when
// a reader chooses one.
function attentionHeads(parent, layers, heads, { onHead = () => {}, onToken = () => {} } = {}) {
  const ink = getComputedStyle(document.documentElement).getPropertyValue("--ink");
  const squares = [];
  let layer = 0, head = 0, token = 0, tokens = [], share;

  const both = element(parent, "div", undefined, { class: "heads" });
  const table = element(wideElement(both), "table");
  const place = element(both, "div", undefined, { class: "chosen" });
  const chosen = element(place, "div");
  const title = element(chosen, "h3", "", { "aria-live": "polite" });
  const controls = element(chosen, "p", undefined, { class: "controls" });
  const map = attentionMap(chosen, ink, point);
  const row = element(chosen, "p", "", { class: "row", "aria-live": "polite" });
  const bar = element(parent, "div", undefined,
    { class: "tokens", role: "toolbar", "aria-label": "tokens" });
  const dialog = element(parent, "dialog");
  const enlarge = () => {
    dialog.append(chosen);
    dialog.showModal();
    large.textContent = "Close (Esc)";
  };
  dialog.addEventListener("close", () => {
    place.append(chosen);
    large.textContent = "Enlarge";
    squares[layer * heads + head].parentElement.focus();
  });
  const step = by => () => {
    const next = (layer * heads + head + by + layers * heads) % (layers * heads);
    showHead(Math.floor(next / heads), next % heads);
  };
  for (const [text, label, by] of [["‹", "previous head", -1], ["›", "next head", 1]])
    element(controls, "button", text, { type: "button", "aria-label": label })
      .addEventListener("click", step(by));
  const large = element(controls, "button", "Enlarge", { type: "button" });
  large.addEventListener("click", () => dialog.open ? dialog.close() : enlarge());

  const name = index => `${tokens[index]} (${index + 1})`;

  function showToken(from, to) {
    token = from;
    const values = tokens.map((_, index) => share(layer, head, token, index));
    bar.querySelectorAll("button").forEach((button, index) => {
      button.style.backgroundColor = `rgba(${ink}, ${0.8 * Math.sqrt(values[index])})`;
      button.setAttribute("aria-pressed", index === token);
      button.tabIndex = index === token ? 0 : -1;
    });
    map.point(token, to);
    const most = values.map((value, index) => [value, index]);
    most.sort((a, b) => b[0] - a[0] || a[1] - b[1]);
    const listed = most.slice(0, 5).filter(([value]) => value > 0)
      .map(([value, index]) => `${name(index)} ${percent(value, 0)}`);
    const pointed = to === undefined ? ""
      : `${name(from)} → ${name(to)}: ${percent(values[to], 0)}. `;
    row.textContent =
      `${pointed}Token ${token + 1}, ${tokens[token]}, attends to: ${listed.join(", ")}`;
  }

  function point(from, to) {
    showToken(from, to);
    onToken(from);
  }

  function showHead(ofLayer, ofHead) {
    [layer, head] = [ofLayer, ofHead];
    squares.forEach((canvas, index) => canvas.parentElement.setAttribute(
      "aria-pressed", index === layer * heads + head));
    title.textContent = `Layer ${layer + 1} of ${layers}, head ${head + 1} of ${heads}`;
    map.draw(tokens, (from, to) => share(layer, head, from, to));
    onHead(layer, head);
    showToken(token);
  }

  const numbers = element(table, "tr");
  element(numbers, "th", "layer");
  for (let h = 0; h < heads; h++) element(numbers, "th", `head ${h + 1}`);
  for (let l = 0; l < layers; l++) {
    const line = element(table, "tr");
    element(line, "th", l + 1);
    for (let h = 0; h < heads; h++) {
      const button = element(element(line, "td"), "button", undefined, { type: "button" });
      button.setAttribute("aria-label", `layer ${l + 1}, head ${h + 1}`);
      button.addEventListener("click", () =>
        l === layer && h === head ? enlarge() : showHead(l, h));
      squares.push(element(button, "canvas"));
    }
  }
  bar.addEventListener("keydown", event => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    const next = (token + by + tokens.length) % tokens.length;
    bar.querySelectorAll("button")[next].focus();
    event.preventDefault();
  });
  return {
    chooseToken: index => showToken(index),
    show(ofText, ofShare, first = token) {
      [tokens, share, token] = [ofText, ofShare, Math.min(first, ofText.length - 1)];
      bar.replaceChildren();
      tokens.forEach((text, index) => {
        const button = element(bar, "button", text, { type: "button" });
        for (const event of ["mouseenter", "focus", "click"])
          button.addEventListener(event, () => point(index));
      });
      squares.forEach((canvas, index) => drawAttention(canvas, ink, tokens.length,
        (from, to) => share(Math.floor(index / heads), index % heads, from, to)));
      showHead(layer, head);
    },
  };
}

// Draw a pixel for each pair of tokens; the square root shows small fractions, too.
function drawAttention(canvas, ink, size, share) {
  canvas.width = canvas.height = size;
  const context = canvas.getContext("2d");
  for (let from = 0; from < size; from++)
    for (let to = 0; to < size; to++) {
      context.fillStyle = `rgba(${ink}, ${Math.sqrt(share(from, to))})`;
      context.fillRect(to, from, 1, 1);
    }
}

// Add a map of a head, with its tokens at the left and above; onPoint(from, to) is called
// by the pointer and by the arrow keys.
function attentionMap(parent, ink, onPoint) {
  const wide = wideElement(parent);
  const map = element(wide, "div", undefined, { class: "map" });
  const above = element(map, "div", undefined, { class: "to", "aria-hidden": "true" });
  const left = element(map, "div", undefined, { class: "from", "aria-hidden": "true" });
  const field = element(map, "div", undefined, { class: "field", role: "img", tabindex: "0",
    "aria-label": "attention of the chosen head; the arrow keys read the values" });
  const canvas = element(field, "canvas"), cell = element(field, "div", undefined, { class: "cell" });
  let size = 0, at = [0, undefined];

  const within = value => Math.min(Math.max(value, 0), size - 1);
  const read = event => {
    const box = canvas.getBoundingClientRect();
    onPoint(within(Math.floor((event.clientY - box.top) / box.height * size)),
      within(Math.floor((event.clientX - box.left) / box.width * size)));
  };
  for (const kind of ["pointermove", "pointerdown"]) field.addEventListener(kind, read);
  field.addEventListener("keydown", event => {
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1],
      ArrowRight: [0, 1] }[event.key] || [];
    if (down === undefined) return;
    const [from, to] = at;
    onPoint(within(from + down), to === undefined ? 0 : within(to + right));
    event.preventDefault();
  });
  return {
    draw(tokens, share) {
      size = tokens.length;
      map.style.setProperty("--tokens", size);
      for (const names of [above, left]) {
        names.replaceChildren();
        for (const text of tokens) element(names, "span", text, { title: text });
      }
      drawAttention(canvas, ink, size, share);
    },
    point(from, to) {
      at = [from, to];
      for (const [names, index] of [[left, from], [above, to]])
        [...names.children].forEach((made, i) => made.classList.toggle("on", i === index));
      const shown = to === undefined ? { "--from": from, "--to": 0, "--span": size }
        : { "--from": from, "--to": to, "--span": 1 };
      for (const [key, value] of Object.entries(shown)) cell.style.setProperty(key, value);
    },
  };
}
