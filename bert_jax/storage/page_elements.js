// Elements of a page, and numbers as text.

function element(parent, kind, text, attributes = {}) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  parent.append(made);
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
