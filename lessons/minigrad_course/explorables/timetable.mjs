// The instructions of a pipeline's ranks, and the errors of backends/pipeline/validator.py in its own words.
//
// A table is {name, ranks, micros, chunks, routes, instructions}: routes[micro] are the [rank, chunk] pairs of
// stages 0, 1, ...; instructions[rank] are {kind: "F", "B" or "W", micros: [0], chunk: 0} in order.

const NAMES = { F: "Forward", B: "Backward", W: "Weight" };

/** The way of a micro-batch through the ranks, as in backends/pipeline/schedule_file.py. */
export const ROUTES = {
  around: (micro, ranks, chunks) => upTo(chunks).flatMap((chunk) => upTo(ranks).map((rank) => [rank, chunk])),
  "down-or-up": (micro, ranks) => {
    const down = upTo(ranks).map((rank) => [rank, micro % 2]);
    return micro % 2 ? down.reverse() : down;
  },
  "down-and-up": (micro, ranks) => [
    ...upTo(ranks).map((rank) => [rank, 0]),
    ...upTo(ranks).reverse().map((rank) => [rank, 1]),
  ],
};

export const upTo = (n) => Array.from({ length: n }, (_, i) => i);

/** The table of a schedule file's content: {name, micro, chunks, route, ranks: ["F0 B0", ...]}. */
export function tableOf({ name = "mine", micro, chunks = 1, route = "around", ranks }) {
  return {
    name,
    ranks: ranks.length,
    micros: micro,
    chunks,
    routes: upTo(micro).map((m) => ROUTES[route](m, ranks.length, chunks)),
    instructions: ranks.map((row) => row.split(" ").filter(Boolean).map(instructionOf)),
  };
}

/** The instruction that a word such as F3 or W0-2,5/1 stands for. */
export function instructionOf(word) {
  const [runs, chunk = "0"] = word.slice(1).split("/");
  const micros = (runs ? runs.split(",") : []).flatMap((run) => {
    const [first, last = first] = run.split("-").map(Number);
    return upTo(last - first + 1).map((i) => first + i);
  });
  return { kind: word[0], micros, chunk: Number(chunk) };
}

/** The word for an instruction, from which instructionOf makes it again. */
export function wordOf({ kind, micros, chunk }) {
  const runs = [];
  for (const micro of micros) {
    const run = runs.at(-1);
    if (run && run[1] + 1 === micro) run[1] = micro;
    else runs.push([micro, micro]);
  }
  const text = runs.map(([first, last]) => (first === last ? first : `${first}-${last}`)).join(",");
  return kind + text + (chunk ? `/${chunk}` : "");
}

/** As Python prints an instruction. */
export function repr({ kind, micros, chunk }) {
  const several = `micros=(${micros.length === 1 ? `${micros[0]},` : micros.join(", ")})`;
  return `${NAMES[kind]}(${kind === "W" ? several : `micro=${micros[0]}`}, chunk=${chunk})`;
}

export const same = (a, b) => repr(a) === repr(b);

/** The number of parts of the model. */
export const stagesOf = (table) => table.routes[0].length;

/** The stage of a rank's chunk for a micro-batch; -1 where its route does not pass the chunk. */
export const stageOf = (table, micro, rank, chunk) =>
  table.routes[micro].findIndex(([r, c]) => r === rank && c === chunk);

/** The (micro-batch, chunk) pairs, as "0/1", whose weight gradients the rank computes in a Weight. */
export function splitOf(table, rank) {
  const weights = table.instructions[rank].filter((i) => i.kind === "W");
  return new Set(weights.flatMap((i) => i.micros.map((micro) => `${micro}/${i.chunk}`)));
}

/** The sentence about the first error of a table, or null; bound is the most micro-batches in flight. */
export function errorOf(table, bound = null) {
  const ranks = upTo(table.ranks);
  const error =
    routeError(table) ??
    firstOf(ranks, (rank) => orderError(table, rank)) ??
    firstOf(ranks, (rank) => memoryError(table, rank, bound));
  return error === null ? null : `schedule ${table.name} of ${table.ranks} ranks: ${error}`;
}

function firstOf(list, errorFor) {
  for (const one of list) {
    const error = errorFor(one);
    if (error !== null) return error;
  }
  return null;
}

function routeError(table) {
  const first = new Map();
  for (const [micro, route] of table.routes.entries()) {
    if (route.length !== stagesOf(table))
      return (
        `the route of micro-batch ${micro} has ${route.length} stages, that of micro-batch 0 has ` +
        `${stagesOf(table)}; each needs all parts of the model`
      );
    for (const [stage, [rank, chunk]] of route.entries()) {
      if (rank < 0 || rank >= table.ranks || chunk < 0 || chunk >= table.chunks)
        return (
          `the route of micro-batch ${micro} goes to rank ${rank}, chunk ${chunk} for stage ${stage}; ` +
          `there are ranks 0 to ${table.ranks - 1} and chunks 0 to ${table.chunks - 1}`
        );
      const place = `${rank}/${chunk}`;
      if (!first.has(place)) first.set(place, [stage, micro]);
      const [other, by] = first.get(place);
      if (other !== stage)
        return (
          `rank ${rank}, chunk ${chunk} is stage ${other} for micro-batch ${by} and stage ${stage} for ` +
          `micro-batch ${micro}; it holds one part of the model`
        );
    }
  }
  for (const rank of upTo(table.ranks))
    for (const chunk of upTo(table.chunks))
      if (!first.has(`${rank}/${chunk}`)) return `no route goes to rank ${rank}, chunk ${chunk}; it would hold no layers`;
  return null;
}

function orderError(table, rank) {
  const mine = table.instructions[rank];
  const wrong = firstOf(mine, (i) => instructionError(table, rank, i));
  if (wrong !== null) return wrong;
  const complete = new Set(mine.flatMap(partsOf).map(repr));
  const before = new Set();
  for (const i of mine)
    for (const part of partsOf(i)) {
      if (before.has(repr(part))) {
        const again = same(part, i) ? "" : ` does ${repr(part)}`;
        return `rank ${rank}: ${repr(i)}${again} a second time; each is done once`;
      }
      const earlier = part.kind === "F" ? null : { ...part, kind: part.kind === "W" ? "B" : "F" };
      if (earlier && !before.has(repr(earlier))) {
        const how = complete.has(repr(earlier)) ? "comes before" : "is there without";
        const way = part.kind === "W" ? "back" : "forward";
        return `rank ${rank}: ${repr(i)} ${how} ${repr(earlier)}; take it ${way} first`;
      }
      before.add(repr(part));
    }
  for (const [micro, route] of table.routes.entries())
    for (const [stage, [at, chunk]] of route.entries())
      for (const kind of at === rank ? "FB" : "") {
        const needed = { kind, micros: [micro], chunk };
        if (!complete.has(repr(needed)))
          return `rank ${rank}: ${repr(needed)} is missing; micro-batch ${micro} finds stage ${stage} there`;
      }
  return null;
}

function instructionError(table, rank, i) {
  if (!i.micros.length) return `rank ${rank}: ${repr(i)} is for no micro-batches; name some, or leave it out`;
  if (i.chunk >= table.chunks)
    return `rank ${rank}: ${repr(i)} is for chunk ${i.chunk}; there are 0 to ${table.chunks - 1}`;
  return firstOf(i.micros, (micro) => {
    if (micro >= table.micros)
      return `rank ${rank}: ${repr(i)} is for micro-batch ${micro}; there are 0 to ${table.micros - 1}`;
    if (stageOf(table, micro, rank, i.chunk) < 0)
      return (
        `rank ${rank}: ${repr(i)} is not on the route of micro-batch ${micro}, which goes to ` +
        table.routes[micro].map(([r, c]) => `rank ${r} chunk ${c}`).join(", ")
      );
    return null;
  });
}

/** The instruction as one for each of its micro-batches. */
const partsOf = (i) => i.micros.map((micro) => ({ ...i, micros: [micro] }));

function memoryError(table, rank, bound) {
  if (bound === null) return null;
  const numbers = inFlight(table, rank);
  const n = numbers.findIndex((number) => number > bound);
  if (n < 0) return null;
  return (
    `rank ${rank}: ${repr(table.instructions[rank][n])} makes ${numbers[n]} micro-batches in flight; ` +
    `the bound given is ${bound}: finish one first`
  );
}

/** After each of the rank's instructions, the number of micro-batches of which it holds activations. */
export function inFlight(table, rank) {
  const split = splitOf(table, rank);
  let number = 0;
  return table.instructions[rank].map(({ kind, micros, chunk }) => {
    if (kind === "F") number += 1;
    else if (kind === "W") number -= micros.length;
    else if (!split.has(`${micros[0]}/${chunk}`)) number -= 1; // else a Weight still needs its activations
    return number;
  });
}
