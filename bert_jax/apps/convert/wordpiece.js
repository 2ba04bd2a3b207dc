// BERT's tokenizer: basic tokenization, then WordPiece (Devlin et al. 2018, §3).

// The ideographs around which BERT puts spaces; not kana or hangul, as those are letters.
const CHINESE = new RegExp("[\\u4E00-\\u9FFF\\u3400-\\u4DBF\\uF900-\\uFAFF" +
  "\\u{20000}-\\u{2A6DF}\\u{2A700}-\\u{2B73F}\\u{2B740}-\\u{2B81F}" +
  "\\u{2B920}-\\u{2CEAF}\\u{2F800}-\\u{2FA1F}]", "gu");
// White space that is also a control character stays; all of ASCII's symbols count.
const REMOVED = /(?![\t\n\r])[\p{Cc}\p{Cf}\p{Co}\p{Cs}\uFFFD]/gu;
const PUNCTUATION = /[!-\/:-@[-`{-~\p{P}]/gu;
const SPACE = /\p{White_Space}+/u;

// Return the words of a text; each punctuation character is one.
function basicWords(text, { cased, stripAccents, chinese }) {
  text = text.replace(REMOVED, "");
  if (chinese) text = text.replace(CHINESE, " $& ");
  if (stripAccents) text = text.normalize("NFD").replace(/\p{Mn}/gu, "");
  // By character: the lower case of a whole text has two forms of sigma.
  if (!cased) text = Array.from(text, character => character.toLowerCase()).join("");
  return text.replace(PUNCTUATION, " $& ").split(SPACE).filter(word => word);
}

// Return the pieces of a word: from the left, always the longest in the vocabulary.
function wordPieces(word, { ids, maxWord }) {
  const characters = Array.from(word), pieces = [];
  if (characters.length > maxWord) return [ids.get("[UNK]")];
  for (let start = 0, end; start < characters.length; start = end) {
    const prefix = start ? "##" : "";
    for (end = characters.length; end > start; end--) {
      const id = ids.get(prefix + characters.slice(start, end).join(""));
      if (id !== undefined) { pieces.push(id); break; }
    }
    if (end === start) return [ids.get("[UNK]")];
  }
  return pieces;
}

// Return the ids of a text between [CLS] and [SEP]; each [MASK] in it is the mask token.
function encode(text, tokenizer) {
  const inner = text.split("[MASK]").flatMap((part, index) => [
    ...(index ? ["[MASK]"] : []).map(name => tokenizer.ids.get(name)),
    ...basicWords(part, tokenizer).flatMap(word => wordPieces(word, tokenizer)),
  ]);
  return [tokenizer.ids.get("[CLS]"), ...inner, tokenizer.ids.get("[SEP]")];
}
