// The order in which the search shows sections: a function of words and index alone, which tests call under Node.

/** What other libraries and papers call a thing, and the words for it here. */
const SYNONYMS = {
  "mixed precision": "sixteen bits", fp16: "float16", bf16: "bfloat16", backprop: "back propagation",
  ddp: "data parallelism", fsdp: "zero", "tensor parallel": "model parallelism", "gradient checkpointing": "activation checkpointing",
};

/** Lower case, and a space for all that is no letter, digit or underscore, so that all-reduce is two words. */
const plain = (text) => ` ${text.toLowerCase().replace(/[^\p{L}\p{N}_]+/gu, " ").trim()} `;

/** How well a text answers a word: 2 where it has the word, 1 where a word of it begins so, else 0. */
const match = (text, word) =>
  (text.includes(` ${word} `) || text.includes(` ${word}s `) ? 2 : Number(text.includes(` ${word}`)));

/** How often a word, or one that begins so, is in a text, at most so often. */
const count = (text, word, most = 8) => Math.min(most, text.split(` ${word}`).length - 1);

const prepared = new WeakMap(); // of an index: its sections with the words of their texts

/**
 * The sections that answer a query, best first; each is
 * [url, title, heading, text, first cells of its tables, weight of its kind].
 *
 * A section with all words comes before one with some of them. A word counts most in a heading, then in the
 * first cell of a table's row, in the page's title and in the text, and the more the fewer sections have it;
 * a section counts a little more where the other sections of its page have the words, too.
 */
export function searchOrder(index, query) {
  if (!prepared.has(index)) {
    prepared.set(index, index.map((section) => ({ section, parts: section.slice(1, 5).map(plain) })));
  }
  const sections = prepared.get(index);
  const phrase = ` ${SYNONYMS[plain(query).trim()] ?? plain(query).trim()} `;
  const words = [...new Set(phrase.split(" ").filter(Boolean))];
  const rarity = words.map((word) => {
    const known = sections.filter(({ parts }) => parts.some((part) => match(part, word))).length;
    return Math.log(1 + index.length / (1 + known));
  });
  const ofPages = {};
  const scored = sections.map(({ section, parts: [title, heading, text, terms] }) => {
    const points = words.map((word, i) => rarity[i] * (6 * match(heading, word) + 2 * match(terms, word)
      + 2 * match(title, word) + 2 * count(text, word)));
    const whole = (heading.includes(phrase) ? 2 : 1) * (words.length > 1 && text.includes(phrase) ? 1.5 : 1);
    const length = 1 + heading.split(" ").length / 20, matched = points.filter(Boolean).length;
    const score = (section[5] * whole * points.reduce((a, b) => a + b, 0)) / length;
    const page = section[0].split("#")[0];
    if (matched === words.length) ofPages[page] = (ofPages[page] ?? 0) + score;
    return { section, page, matched, score };
  });
  for (const one of scored) one.score += 0.2 * (ofPages[one.page] ?? 0);
  const found = scored.filter(({ matched }) => matched);
  return found.sort((a, b) => b.matched - a.matched || b.score - a.score).map(({ section }) => section);
}
