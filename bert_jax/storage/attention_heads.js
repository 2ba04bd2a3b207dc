// The attention of each head in a text: small squares, and the tokens of the one that is
// chosen. The page has elements with the ids heads (a table), chosen, tokens and row, and
// the functions of page_elements.js.

// Return a function that shows a text, given its tokens and share(layer, head, from, to),
// the fraction of the attention of token `from` to token `to`; and the token to choose.
// onHead(layer, head) is called when a head is chosen.
function attentionHeads(layers, heads, onHead = () => {}) {
  const ink = getComputedStyle(document.documentElement).getPropertyValue("--ink");
  const table = document.getElementById("heads");
  const bar = document.getElementById("tokens");
  const squares = [];
  let layer = 0, head = 0, token = 0, tokens = [], share;

  function draw(canvas, ofLayer, ofHead) {
    canvas.width = canvas.height = tokens.length;
    const context = canvas.getContext("2d");
    for (let from = 0; from < tokens.length; from++)
      for (let to = 0; to < tokens.length; to++) {
        // The square root shows small fractions, too.
        const alpha = Math.sqrt(share(ofLayer, ofHead, from, to));
        context.fillStyle = `rgba(${ink}, ${alpha})`;
        context.fillRect(to, from, 1, 1);
      }
  }

  function showToken(chosen) {
    token = chosen;
    const to = tokens.map((_, index) => share(layer, head, token, index));
    bar.querySelectorAll("button").forEach((button, index) => {
      button.style.backgroundColor = `rgba(${ink}, ${0.8 * Math.sqrt(to[index])})`;
      button.setAttribute("aria-pressed", index === token);
      button.tabIndex = index === token ? 0 : -1;
    });
    const most = to.map((value, index) => [value, index]);
    most.sort((a, b) => b[0] - a[0] || a[1] - b[1]);
    const listed = most.slice(0, 5).filter(([value]) => value > 0)
      .map(([value, index]) => `${tokens[index]} (${index + 1}) ${percent(value, 0)}`);
    document.getElementById("row").textContent =
      `Token ${token + 1}, ${tokens[token]}, attends to: ${listed.join(", ")}`;
  }

  function showHead(ofLayer, ofHead) {
    [layer, head] = [ofLayer, ofHead];
    squares.forEach((canvas, index) => canvas.parentElement.setAttribute(
      "aria-pressed", index === layer * heads + head));
    document.getElementById("chosen").textContent =
      `Layer ${layer + 1} of ${layers}, head ${head + 1} of ${heads}`;
    onHead(layer, head);
    showToken(token);
  }

  const numbers = element(table, "tr");
  element(numbers, "th", "layer");
  for (let h = 0; h < heads; h++) element(numbers, "th", `head ${h + 1}`);
  for (let l = 0; l < layers; l++) {
    const row = element(table, "tr");
    element(row, "th", l + 1);
    for (let h = 0; h < heads; h++) {
      const button = element(element(row, "td"), "button");
      button.setAttribute("aria-label", `layer ${l + 1}, head ${h + 1}`);
      button.addEventListener("click", () => showHead(l, h));
      squares.push(element(button, "canvas"));
    }
  }
  bar.addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const next = (token + step + tokens.length) % tokens.length;
    bar.querySelectorAll("button")[next].focus();
    event.preventDefault();
  });
  return (ofText, ofShare, chosen = token) => {
    [tokens, share, token] = [ofText, ofShare, Math.min(chosen, ofText.length - 1)];
    bar.replaceChildren();
    tokens.forEach((text, index) => {
      const button = element(bar, "button", text);
      for (const event of ["mouseenter", "focus", "click"])
        button.addEventListener(event, () => showToken(index));
    });
    squares.forEach((canvas, index) =>
      draw(canvas, Math.floor(index / heads), index % heads));
    showHead(layer, head);
  };
}
