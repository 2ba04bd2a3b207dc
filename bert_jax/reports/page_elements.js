// Elements of a page, and numbers as text.

function element(parent, kind, text, attributes = {}) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  parent.append(made);
  return made;
}

// Add an element that scrolls sideways what is wider than it; a line above says so, and
// the edge behind which there is more fades.
function wideElement(parent) {
  const made = element(parent, "div", undefined, { class: "wide" });
  element(made, "small", "Scroll sideways for more columns →", { class: "more" });
  const mark = () => {
    const hidden = made.scrollWidth - made.clientWidth;
    made.classList.toggle("overflows", hidden > 1);
    made.classList.toggle("after", hidden - made.scrollLeft > 1);
    made.classList.toggle("before", hidden > 1 && made.scrollLeft > 1);
  };
  made.addEventListener("scroll", mark, { passive: true });
  const sizes = new ResizeObserver(mark);
  sizes.observe(made);
  new MutationObserver(() => [...made.children].forEach(child => sizes.observe(child)))
    .observe(made, { childList: true });
  return made;
}

// Return a fraction in percent, with this number of digits after the point; without it,
// with two significant digits at least. A value that is null is missing.
function percent(value, digits) {
  if (value === null) return "–";
  const hundredths = 100 * value;
  if (digits !== undefined) return hundredths.toFixed(digits) + " %";
  const isLarge = hundredths >= 10 || hundredths === 0;
  return (isLarge ? hundredths.toFixed(1) : hundredths.toPrecision(2)) + " %";
}
