// The steps of a ring of keys, counted as lessons/minigrad_course/explorables/ring_table.py counts them.

/** Pairs of a query of rank i and a key of rank j that it may see; owners[token] is the rank that has it. */
export function pairsOf(owners, ranks) {
  const pairs = Array.from({ length: ranks }, () => Array(ranks).fill(0));
  const before = Array(ranks).fill(0); // the keys of each rank up to this query
  for (const owner of owners) {
    before[owner] += 1;
    for (let rank = 0; rank < ranks; rank++) pairs[owner][rank] += before[rank];
  }
  return pairs;
}

/** By step, the tiles and the messages of all ranks, and how long the step lasts; message is of one token. */
export function stepsOf(owners, ranks, message) {
  const pairs = pairsOf(owners, ranks), sizes = Array(ranks).fill(0);
  for (const owner of owners) sizes[owner] += 1;
  return Array.from({ length: ranks }, (_, t) => {
    const sources = sizes.map((_, rank) => (rank - t + ranks) % ranks);
    const tiles = sources.map((source, rank) => pairs[rank][source]);
    const messages = sources.map((source) => (t < ranks - 1 ? message * sizes[source] : 0));
    return { sources, tiles, messages, length: Math.max(...tiles, ...messages) };
  });
}

/** All pairs, shared evenly: how long the ring would last if no rank ever waited. */
export const balanced = (tokens, ranks) => (tokens * (tokens + 1)) / 2 / ranks;

/** "Ranks 1 and 2 wait most,": those that are busy for the shortest time, all that tie. */
export function whoWaits(busy) {
  const least = Math.min(...busy), ranks = [...busy.keys()].filter((rank) => busy[rank] === least);
  if (ranks.length === busy.length) return "Each rank waits";
  const last = ranks.pop();
  return ranks.length ? `Ranks ${ranks.join(", ")} and ${last} wait most,` : `Rank ${last} waits most,`;
}

/** The command that proves a ring of so many ranks. */
export const ringCommand = (ranks) => `minigrad prove --net transformer --sequence ${ranks}`;
