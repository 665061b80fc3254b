// The time and memory of a schedule, as backends/pipeline/simulation.py computes them.
//
// An instruction starts when its rank is free and its input is there. costs is {forward, backward, weight}, each
// with the seconds of one micro-batch in every stage, and {message}, the seconds of a message between ranks.

import { inFlight, repr, splitOf, stageOf, stagesOf, upTo } from "./timetable.mjs";

const WAYS = { F: "forward", B: "backward", W: "weight" };

/** Seconds that an instruction takes. */
function seconds(table, costs, split, rank, { kind, micros, chunk }) {
  const stages = micros.map((micro) => stageOf(table, micro, rank, chunk));
  if (kind === "W") return stages.reduce((sum, stage) => sum + costs.weight[stage], 0);
  if (kind === "F") return costs.forward[stages[0]];
  return costs.backward[stages[0]] + (split.has(`${micros[0]}/${chunk}`) ? 0 : costs.weight[stages[0]]);
}

/** The tasks, as [kind, micro-batch, stage], that must have ended before an instruction starts. */
function needs(table, rank, { kind, micros, chunk }) {
  return micros.flatMap((micro) => {
    const stage = stageOf(table, micro, rank, chunk);
    if (kind === "F") return stage ? [["F", micro, stage - 1]] : [];
    if (kind === "W") return [["B", micro, stage]];
    return [["F", micro, stage], ...(stage + 1 < stagesOf(table) ? [["B", micro, stage + 1]] : [])];
  });
}

/**
 * Carry out every rank's instructions in their order, each as soon as it can start.
 *
 * Returns events, by rank, with start and stop; stuck, the sentence about ranks that wait for one another for
 * ever, or null; and todo, by rank, the instructions that never start.
 */
export function simulate(table, costs) {
  const ends = new Map(); // of a task: the time at which it ended, and its rank
  const asleep = new Map(); // of a task: the ranks that wait for it
  const awake = upTo(table.ranks);
  const now = awake.map(() => 0);
  const splits = awake.map((rank) => splitOf(table, rank));
  const todo = table.instructions.map((mine) => [...mine].reverse());
  const events = table.instructions.map(() => []);
  while (awake.length) {
    const rank = awake.pop();
    while (todo[rank].length) {
      const i = todo[rank].at(-1);
      const needed = needs(table, rank, i).map(String);
      const absent = needed.find((task) => !ends.has(task));
      if (absent !== undefined) {
        asleep.set(absent, [...(asleep.get(absent) ?? []), rank]);
        break;
      }
      todo[rank].pop();
      const arrivals = needed.map((task) => ends.get(task)).map(([t, who]) => t + (who === rank ? 0 : costs.message));
      const start = Math.max(now[rank], ...arrivals);
      now[rank] = start + seconds(table, costs, splits[rank], rank, i);
      events[rank].push({ rank, instruction: i, start, stop: now[rank] });
      for (const micro of i.micros) {
        const task = String([i.kind, micro, stageOf(table, micro, rank, i.chunk)]);
        ends.set(task, [now[rank], rank]);
        awake.push(...(asleep.get(task) ?? []));
        asleep.delete(task);
      }
    }
  }
  for (const mine of todo) mine.reverse();
  const waits = upTo(table.ranks).filter((rank) => todo[rank].length).map((rank) => {
    const tasks = needs(table, rank, todo[rank][0]).filter((task) => !ends.has(String(task)));
    const words = tasks.map(([kind, micro, stage]) => `${WAYS[kind]} of micro-batch ${micro} in stage ${stage}`);
    return `rank ${rank} waits to do ${repr(todo[rank][0])}, which needs ${words.join(" and ")}`;
  });
  const stuck = waits.length
    ? `schedule ${table.name} of ${table.ranks} ranks never ends: ${waits.join("; ")}`
    : null;
  return { events, todo, stuck };
}

/** The makespan, the idle share of all ranks' time and of each rank's, and each rank's peak in flight. */
export function scoreOf(table, { events }) {
  const makespan = Math.max(0, ...events.flat().map((event) => event.stop));
  const busy = events.map((mine) => mine.reduce((sum, event) => sum + (event.stop - event.start), 0));
  const whole = table.ranks * makespan;
  const all = events.flat().reduce((sum, event) => sum + (event.stop - event.start), 0);
  return {
    makespan,
    bubble: whole ? (whole - all) / whole : 0,
    idle: busy.map((time) => makespan - time),
    peak: upTo(table.ranks).map((rank) => Math.max(0, ...inFlight(table, rank))),
  };
}
