// Whose numbers each rank holds in each part of its array, as a recorded all-reduce's messages arrive.
//
// A message is [source, destination, round, bytes, [[part, ranks], ...]]; ranks is a number whose bits are the
// ranks whose numbers are in the sum.

/** Before the first message each rank holds its own numbers in all parts: holdings[rank][part]. */
export const atFirst = (size) =>
  Array.from({ length: size }, (_, rank) => Array.from({ length: size }, () => 2 ** rank));

/** After a message: what came is added to what is there, or is a larger sum, which takes its place. */
export function afterMessage(holdings, [, destination, , , parts]) {
  const next = holdings.map((row) => [...row]);
  for (const [part, ranks] of parts) {
    const own = next[destination][part];
    next[destination][part] = own & ranks ? ((own & ranks) === own ? ranks : own) : own | ranks;
  }
  return next;
}

/** The holdings before each round, and after the last. */
export function holdingsByRound(size, messages, rounds) {
  const all = [atFirst(size)];
  for (let round = 0; round < rounds; round++)
    all.push(messages.filter((m) => m[2] === round).reduce(afterMessage, all.at(-1)));
  return all;
}
