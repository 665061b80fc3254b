// node verdicts.mjs FOLDER: the verdicts of FOLDER's modules on the timetables that stand, as JSON, in stdin.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const load = (name) => import(new URL(name, pathToFileURL(`${process.argv[2]}/`)));
const { ROUTES, errorOf, instructionOf, upTo, wordOf } = await load("timetable.mjs");
const { scoreOf, simulate } = await load("simulation.mjs");

function verdict({ costs, bound, route, ...table }) {
  table.routes ??= upTo(table.micros).map((micro) => ROUTES[route](micro, table.ranks, table.chunks));
  table.instructions = table.instructions.map((mine) => mine.map(instructionOf));
  const error = errorOf(table, bound);
  if (error !== null) return { error };
  const done = simulate(table, costs);
  if (done.stuck !== null) return { error: done.stuck };
  const events = done.events.flat().map((e) => [e.rank, wordOf(e.instruction), e.start, e.stop]);
  return { ...scoreOf(table, done), events };
}

process.stdout.write(JSON.stringify(JSON.parse(readFileSync(0)).map(verdict)));
