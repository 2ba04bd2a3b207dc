// BERT for one text, by the checkpoint's float32 values, in double precision. Arrays are
// flat, row by row: T tokens, D hidden, F feed-forward, V vocabulary. A kernel is [in, out].

// Return the float32 values that Python packed: base64 of zlib's format of the bytes, the
// lowest byte of every value first, then the next one of every value, and so on.
async function unpack(text) {
  if (typeof DecompressionStream === "undefined")
    throw new Error("This browser has no DecompressionStream; use one of 2023 or later.");
  const binary = atob(text), packed = new Uint8Array(binary.length);
  for (let i = 0; i < packed.length; i++) packed[i] = binary.charCodeAt(i);
  const inflated = new Blob([packed]).stream()
    .pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(inflated).arrayBuffer());
  const size = planes.length / 4, bytes = new Uint8Array(planes.length);
  for (let plane = 0; plane < 4; plane++)
    for (let i = 0; i < size; i++) bytes[4 * i + plane] = planes[plane * size + i];
  return new Float32Array(bytes.buffer);
}

// Return a function from names to arrays, given the size of each in their order.
function tensorsOf(values, sizes) {
  const tensors = new Map();
  let start = 0;
  for (const [name, size] of sizes)
    tensors.set(name, values.subarray(start, start += size));
  return name => tensors.get(name);
}

function dense(input, tensors, name) {
  const kernel = tensors(name + "/kernel"), bias = tensors(name + "/bias");
  const outs = bias.length, ins = kernel.length / outs, rows = input.length / ins;
  const output = new Float64Array(rows * outs);
  for (let row = 0; row < rows; row++) {
    const sums = output.subarray(row * outs, (row + 1) * outs);
    sums.set(bias);
    for (let i = 0; i < ins; i++) {
      const value = input[row * ins + i], start = i * outs;
      for (let o = 0; o < outs; o++) sums[o] += value * kernel[start + o];
    }
  }
  return output;
}

// LayerNorm of each row (Ba et al. 2016), in place.
function layerNorm(values, tensors, name, epsilon) {
  const scale = tensors(name + "/scale"), bias = tensors(name + "/bias");
  const width = scale.length;
  for (let start = 0; start < values.length; start += width) {
    const row = values.subarray(start, start + width);
    const mean = row.reduce((sum, value) => sum + value, 0) / width;
    const variance = row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / width;
    const deviation = Math.sqrt(variance + epsilon);
    for (let i = 0; i < width; i++)
      row[i] = (row[i] - mean) / deviation * scale[i] + bias[i];
  }
  return values;
}

// The error function, by a series of terms of one sign (Abramowitz & Stegun, 7.1.6).
function erf(x) {
  if (Math.abs(x) > 6) return Math.sign(x);
  let term = 2 * x / Math.sqrt(Math.PI) * Math.exp(-x * x), sum = term;
  for (let n = 1; Math.abs(term) > 1e-17; n++) sum += term *= 2 * x * x / (2 * n + 1);
  return sum;
}

const ACTIVATIONS = {
  relu: x => Math.max(x, 0),
  gelu: x => x * (0.5 + 0.5 * erf(x * Math.SQRT1_2)),
  gelu_new: x => x * (0.5 + 0.5 * Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
};

function softmax(scores) {
  const largest = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = scores.map(score => Math.exp(score - largest));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map(power => power / sum);
}

// Return what the heads of a layer add up from the values of the tokens [T, D]; write
// their attention to `shares` [N, T, T].
function attend(hidden, tensors, name, numHeads, shares) {
  const [query, key, value] = ["query", "key", "value"]
    .map(part => dense(hidden, tensors, `${name}/${part}`));
  const width = tensors(name + "/query/bias").length, headWidth = width / numHeads;
  const length = hidden.length / width, mixed = new Float64Array(hidden.length);
  for (let head = 0; head < numHeads; head++)
    for (let from = 0; from < length; from++) {
      const own = from * width + head * headWidth, scores = new Float64Array(length);
      for (let to = 0; to < length; to++) {
        const other = to * width + head * headWidth;
        for (let i = 0; i < headWidth; i++) scores[to] += query[own + i] * key[other + i];
        scores[to] /= Math.sqrt(headWidth);
      }
      const row = softmax(scores);
      shares.set(row, (head * length + from) * length);
      for (let to = 0; to < length; to++) {
        const other = to * width + head * headWidth;
        for (let i = 0; i < headWidth; i++) mixed[own + i] += row[to] * value[other + i];
      }
    }
  return mixed;
}

// Return the hidden states of the last layer [T, D], and all attention [L, N, T, T].
function encoder(ids, tensors, { layers, heads, activation, epsilon }) {
  const tables = ["token", "position", "segment"]
    .map(name => tensors(`encoder/embeddings/${name}/embedding`));
  const width = tables[2].length, length = ids.length, square = heads * length ** 2;
  const add = (values, more) => values.map((value, index) => value + more[index]);
  let hidden = new Float64Array(length * width);
  for (let t = 0; t < length; t++)
    for (let i = 0; i < width; i++)
      hidden[t * width + i] =
        tables[0][ids[t] * width + i] + tables[1][t * width + i] + tables[2][i];
  layerNorm(hidden, tensors, "encoder/embeddings/layer_norm", epsilon);
  const attention = new Float64Array(layers * square);
  for (let layer = 0; layer < layers; layer++) {
    const name = `encoder/layer_${layer}`;
    const shares = attention.subarray(layer * square, (layer + 1) * square);
    const mixed = attend(hidden, tensors, name + "/attention", heads, shares);
    hidden = add(hidden, dense(mixed, tensors, name + "/attention/output"));
    layerNorm(hidden, tensors, name + "/attention/layer_norm", epsilon);
    const inner = dense(hidden, tensors, name + "/feed_forward/in");
    hidden = add(hidden, dense(
      inner.map(ACTIVATIONS[activation]), tensors, name + "/feed_forward/out"));
    layerNorm(hidden, tensors, name + "/feed_forward/layer_norm", epsilon);
  }
  return { hidden, attention };
}

// Return the score of each token [V] for a place with the hidden state [D].
function maskedLmScores(state, tensors, { activation, epsilon }) {
  const inner = dense(state, tensors, "masked_lm/dense").map(ACTIVATIONS[activation]);
  layerNorm(inner, tensors, "masked_lm/layer_norm", epsilon);
  const table = tensors("encoder/embeddings/token/embedding");
  return Float64Array.from(tensors("masked_lm/bias"), (bias, id) => {
    let score = bias;
    for (let i = 0; i < inner.length; i++) score += inner[i] * table[id * inner.length + i];
    return score;
  });
}
