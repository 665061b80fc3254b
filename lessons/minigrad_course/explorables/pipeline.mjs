// The pipeline workshop: an order for each rank, edited by hand, simulated at once, and the command that runs it.

import { fileText, proveCommand, recordCommand } from "./command.mjs";
import { svg } from "./elements.mjs";
import { scoreOf, simulate } from "./simulation.mjs";
import { ROUTES, errorOf, instructionOf, repr, same, splitOf, stagesOf, tableOf, upTo, wordOf } from "./timetable.mjs";

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const KINDS = { F: "forward", B: "backward", W: "weight gradients" };
const WAYS_IN_WORDS = { around: "through all ranks", "down-or-up": "down, odd ones up", "down-and-up": "down and back up" };
const LANE = 40, BOX = 30, LEFT = 62, RIGHT = 130;

const TASKS = [
  { name: "Free play" },
  { name: "1. Fill and drain", ranks: 2, micro: 2, start: null, weight: 0, goal: "Place all instructions, and reach par." },
  { name: "2. Half the memory", ranks: 4, micro: 8, start: "gpipe", cap: 4, weight: 0,
    goal: "GPipe holds 8 micro-batches. Keep to 4 and lose no time." },
  { name: "3. Fill the bubble", ranks: 3, micro: 3, start: "1f1b", cap: 3,
    goal: "Take weight gradients apart (S), and do them while a rank would wait." },
  { name: "4. No bubble inside", ranks: 3, micro: 5, start: "zb-h1", cap: 5, goal: "More memory: no rank waits once it has begun." },
  { name: "5. A slow stage", ranks: 3, micro: 4, start: "1f1b", slow: 1, goal: "Stage 1 takes twice as long. Does the order matter still?" },
  { name: "6. A slow link", ranks: 3, micro: 6, start: "1f1b", message: 1,
    goal: "A message takes as long as a forward. How far ahead should a rank be?" },
];

let state = { ranks: 4, micro: 4, chunks: 1, route: "around", rows: [], task: 0 };
let costs = { forward: [1, 1, 1, 1], backward: [1, 1, 1, 1], weight: [1, 1, 1, 1], message: 0 };
let cap = null;
let cursor = { rank: 0, at: 0 };
let past = [], future = [];

// The state and what follows from it

const copyOf = (rows) => rows.map((row) => [...row]);
const texts = (rows) => rows.map((row) => row.map(wordOf).join(" "));

function describe() {
  const { micro, chunks, route, rows } = state;
  const shape = { ...(chunks > 1 && { chunks }), ...(route !== "around" && { route }) };
  return { micro, ...shape, ranks: texts(rows) };
}

/** The costs of the table's stages: where a rank has two, each takes half of its rank's seconds. */
function stageCosts(table, given = costs) {
  const n = stagesOf(table), share = table.ranks / n;
  const cut = (times) => upTo(n).map((stage) => times[Math.floor(stage * share)] * share);
  return { forward: cut(given.forward), backward: cut(given.backward), weight: cut(given.weight), message: given.message };
}

function assess(description) {
  const table = tableOf(description);
  const done = simulate(table, stageCosts(table));
  return { table, done, error: errorOf(table, cap) ?? done.stuck, score: scoreOf(table, done) };
}

const written = (name, ranks = state.ranks, micro = state.micro) => {
  const { route, chunks, tables } = data.schedules[name];
  const text = tables[`${ranks},${micro}`];
  return text === undefined ? null : { micro, chunks, route, ranks: text.replace(/(?<=\d)(?=[FBW])/g, " ").split("|") };
};

/** The shortest of our schedules of the board's shape that keeps to the cap: its makespan and its name. */
function parOf() {
  const all = Object.keys(data.schedules).map((name) => [name, written(name)])
    .filter(([, d]) => d && d.route === state.route && d.chunks === state.chunks)
    .map(([name, d]) => [name, assess(d)]).filter(([, { error }]) => error === null)
    .sort(([, a], [, b]) => a.score.makespan - b.score.makespan);
  return all.length ? { name: all[0][0], makespan: all[0][1].score.makespan } : null;
}

const nameOf = () => Object.keys(data.schedules).find((name) => {
  const d = written(name);
  return d && d.route === state.route && d.chunks === state.chunks && d.ranks.join("|") === texts(state.rows).join("|");
});

/** What the rank could still place, in the order of the micro-batches. */
function remaining(rank) {
  const { routes, instructions } = tableOf(describe());
  const present = new Set(instructions[rank].flatMap((i) => i.micros.map((m) => `${i.kind}${m}/${i.chunk}`)));
  const places = routes.flatMap((route, micro) => route.filter(([r]) => r === rank).map(([, chunk]) => ({ micro, chunk })));
  places.sort((a, b) => a.chunk - b.chunk || a.micro - b.micro);
  return Object.fromEntries([..."FBW"].map((kind) => [kind, places
    .filter(({ micro, chunk }) => !present.has(`${kind}${micro}/${chunk}`))
    .map(({ micro, chunk }) => ({ kind, micros: [micro], chunk }))]));
}

// Changes

function change(rows, next = cursor) {
  past.push({ rows: state.rows, cursor });
  future = [];
  state = { ...state, rows };
  cursor = next;
  draw(true);
}

function place(instruction) {
  const rows = copyOf(state.rows), { rank, at } = cursor;
  const index = Math.min(at < rows[rank].length ? at + 1 : at, rows[rank].length);
  rows[rank].splice(index, 0, instruction);
  const end = index === rows[rank].length - 1;
  change(rows, { rank, at: end ? index + 1 : index });
}

function move(step) {
  const rows = copyOf(state.rows), { rank, at } = cursor, to = at + step;
  if (at >= rows[rank].length || to < 0 || to >= rows[rank].length) return;
  rows[rank].splice(to, 0, ...rows[rank].splice(at, 1));
  change(rows, { rank, at: to });
}

function removeChosen() {
  const rows = copyOf(state.rows), { rank, at } = cursor;
  const index = at < rows[rank].length ? at : at - 1;
  if (index < 0) return;
  rows[rank].splice(index, 1);
  change(rows, { rank, at: index });
}

/** Take the weight gradients of the chosen backward apart; where they are, put them back. */
function toggleApart() {
  const rows = copyOf(state.rows), { rank, at } = cursor, i = rows[rank][at];
  if (!i || i.kind === "F") return;
  const [micro] = i.micros;
  if (i.kind === "W") rows[rank].splice(at, 1);
  else if (splitOf(tableOf(describe()), rank).has(`${micro}/${i.chunk}`))
    rows[rank] = rows[rank].flatMap((one) => {
      if (one.kind !== "W" || one.chunk !== i.chunk) return [one];
      const micros = one.micros.filter((m) => m !== micro);
      return micros.length ? [{ ...one, micros }] : [];
    });
  else rows[rank].splice(at + 1, 0, { ...i, kind: "W" });
  change(rows, { rank, at: Math.min(at, rows[rank].length) });
}

/** One product of the chosen weight gradients and the next ones of the chunk. */
function joinNext() {
  const rows = copyOf(state.rows), { rank, at } = cursor, i = rows[rank][at];
  const isNext = (one, n) => n > at && one.kind === "W" && one.chunk === i.chunk;
  const next = i?.kind === "W" ? rows[rank].findIndex(isNext) : -1;
  if (next < 0) return;
  const joined = { ...i, micros: [...i.micros, ...rows[rank][next].micros] };
  rows[rank][next] = joined;
  rows[rank].splice(at, 1);
  change(rows, { rank, at: next - 1 });
}

function goBack(from, to) {
  if (!from.length) return;
  to.push({ rows: state.rows, cursor });
  const { rows, cursor: where } = from.pop();
  state = { ...state, rows };
  cursor = where;
  draw(true);
}

/** Put a description on the board; null empties it. */
function take(description, shape = {}) {
  const { micro, chunks = 1, route = "around", ranks } = description ?? { ...state, ...shape, ranks: null };
  const n = ranks ? ranks.length : shape.ranks ?? state.ranks;
  if (n !== costs.forward.length)
    for (const way of ["forward", "backward", "weight"]) costs[way] = upTo(n).map((s) => costs[way][s] ?? 1);
  const rows = ranks ? ranks.map((row) => row.split(" ").filter(Boolean).map(instructionOf)) : upTo(n).map(() => []);
  state = { ...state, ranks: n, micro, chunks, route, rows };
  cursor = { rank: 0, at: 0 };
  past = [];
  future = [];
  draw();
}

function resize(ranks, micro) {
  const name = nameOf();
  const next = name && written(name, ranks, micro);
  if (next) return take(next);
  state = { ...state, micro };
  return take(null, { ranks, chunks: state.chunks, route: state.route });
}

function begin(number) {
  const task = TASKS[number];
  state.task = number;
  if (!number) return draw();
  const { ranks, micro, weight = 1, message = 0, slow } = task;
  const times = (t) => upTo(ranks).map((stage) => (stage === slow ? 2 * t : t));
  costs = { forward: times(1), backward: times(1), weight: times(weight), message };
  cap = task.cap ?? null;
  state = { ...state, micro, chunks: 1, route: "around" };
  return take(task.start && written(task.start, ranks, micro), { ranks });
}

// What is seen

const number = (x) => String(Math.round(1000 * x) / 1000);
const percent = (x) => `${(100 * x).toFixed(1)} %`;
const shown = (i) => i.kind + wordOf(i).slice(1).replace("/1", "′");

function draw(focus = false) {
  const found = assess(describe());
  drawBoard(found, focus);
  drawVerdict(found);
  drawTray();
  drawSettings();
  drawCommand();
}

function drawBoard({ table, done, error, score }, focus) {
  const wrong = error && Number(/rank (\d+)/.exec(error)?.[1] ?? -1);
  const pieces = table.instructions.map((row, rank) => {
    let end = done.events[rank].at(-1)?.stop ?? 0;
    return row.map((i, at) => {
      const event = done.events[rank][at];
      if (event) return { i, ...event };
      end += 1;
      return { i, start: end - 1, stop: end, never: true };
    });
  });
  const last = Math.max(4, ...pieces.map((row) => row.at(-1)?.stop ?? 0));
  const width = $("board").clientWidth || 800;
  const scale = Math.max((width - LEFT - RIGHT) / (last + 1), table.chunks > 1 ? 56 : 27);
  const picture = svg("svg", { width: LEFT + RIGHT + (last + 1) * scale, height: LANE * table.ranks + 30,
    role: "group", "aria-label": "The ranks' instructions over time" });
  const step = Math.max(1, Math.round(36 / scale));
  for (let t = 0; t <= last; t += step) {
    const x = LEFT + t * scale, bottom = LANE * table.ranks;
    picture.append(svg("line", { class: "tick", x1: x, x2: x, y1: 0, y2: bottom }));
    picture.append(svg("text", { x, y: bottom + 18, "text-anchor": "middle" }, String(t)));
  }
  pieces.forEach((row, rank) => {
    const y = rank * LANE + (LANE - BOX) / 2;
    picture.append(svg("rect", { class: `lane ${rank === wrong ? "wrong" : ""}`, x: LEFT, y: y - 2, height: BOX + 4,
      width: (last + 1) * scale, "fill-opacity": 0.55 }));
    picture.append(svg("text", { x: 8, y: y + 20 }, `rank ${rank}`));
    row.forEach((piece, at) => picture.append(pieceOf(piece, { rank, at }, y, scale)));
    const x = LEFT + (row.at(-1)?.stop ?? 0) * scale + 3;
    picture.append(endOf({ rank, at: row.length }, x, y));
    const idle = score.makespan ? `${Math.round((100 * score.idle[rank]) / score.makespan)} % idle` : "";
    picture.append(svg("text", { x: LEFT + (last + 1) * scale + 6, y: y + 20 }, `${idle}, peak ${score.peak[rank]}`));
  });
  $("board").replaceChildren(picture);
  const chosen = picture.querySelector(".chosen");
  if (focus) chosen?.focus({ preventScroll: true });
  if (focus) chosen?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

const isChosen = ({ rank, at }) => rank === cursor.rank && at === cursor.at;

function pieceOf({ i, start, stop, never }, where, y, scale) {
  const w = Math.max((stop - start) * scale - 2, 4), x = LEFT + start * scale + 1;
  const text = shown(i), fits = 8.2 * text.length < w;
  const words = `rank ${where.rank}, ${KINDS[i.kind]} of micro-batch ${i.micros.join(", ")}` +
    (i.chunk ? `, chunk ${i.chunk}` : "") + (never ? ", never starts" : `, from ${number(start)} to ${number(stop)}`);
  return choosable(svg("g", { class: `piece ${i.kind} ${i.chunk ? "later" : ""} ${never ? "never" : ""}` },
    svg("title", {}, words),
    svg("rect", { x, y, width: w, height: BOX, rx: 3 }),
    svg("text", { x: x + w / 2, y: y + 20, "text-anchor": "middle" }, fits ? text : w > 10 ? i.kind : "")), where, words);
}

const endOf = (where, x, y) => choosable(svg("g", { class: "end piece" },
  svg("title", {}, `the end of rank ${where.rank}`),
  svg("rect", { x, y, width: 20, height: BOX, rx: 3 }),
  svg("text", { x: x + 10, y: y + 20, "text-anchor": "middle", style: "fill: var(--ink)" }, "+")), where,
  `the end of rank ${where.rank}`);

function choosable(group, where, words) {
  const chosen = isChosen(where);
  group.classList.toggle("chosen", chosen);
  for (const [key, value] of Object.entries({ role: "button", tabindex: chosen ? 0 : -1, "aria-label": words,
    "aria-pressed": chosen, "data-rank": where.rank, "data-at": where.at })) group.setAttribute(key, value);
  return group;
}

function drawVerdict({ error, score, table }) {
  const par = parOf(), task = TASKS[state.task], name = nameOf();
  const verdict = $("verdict");
  verdict.className = `verdict ${error ? "bad" : "good"}`;
  const mark = document.createElement("b");
  mark.textContent = error ? "✗ " : "✓ ";
  let words = error;
  if (!error) {
    const against = par === null ? "" : score.makespan < par.makespan ? ` That is ${number(par.makespan - score.makespan)} below par!`
      : score.makespan === par.makespan ? " That is par." : ` Par is ${number(par.makespan)}: ${number(score.makespan - par.makespan)} to gain.`;
    words = `Every micro-batch passes every stage once each way, and no rank waits for ever.${against}`;
  }
  verdict.replaceChildren(mark, words);
  $("about").textContent = [task.goal, name && `This is ${name}: ${data.schedules[name].about}`].filter(Boolean).join(" ");
  const rows = [
    ["Makespan", error && table ? `${number(score.makespan)} so far` : number(score.makespan)],
    ["Par", par ? `${number(par.makespan)} (${par.name})` : "–"],
    ["Idle", percent(score.bubble)],
    ["Peak in flight", Math.max(...score.peak)],
  ];
  $("score").replaceChildren(...rows.map(([term, value]) => {
    const group = document.createElement("div"), dt = document.createElement("dt"), dd = document.createElement("dd");
    dt.textContent = term;
    dd.textContent = value;
    group.append(dt, dd);
    return group;
  }));
}

function button(text, act, attributes = {}) {
  const element = document.createElement("button");
  element.textContent = text;
  element.onclick = act;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function drawTray() {
  const { rank, at } = cursor, left = remaining(rank), chosen = state.rows[rank][at];
  $("traytitle").textContent = `To place on rank ${rank}, ` + (chosen ? `after ${shown(chosen)}` : "at the end");
  $("tray").replaceChildren(...Object.entries(left).filter(([, all]) => all.length).map(([kind, all]) => {
    const group = document.createElement("div");
    group.className = "tray";
    group.append(`${KINDS[kind]}${kind === "W" ? " (only if apart)" : ""}: `,
      ...all.map((i) => button(shown(i), () => place(i), { class: kind, "aria-label": `place ${repr(i)}` })));
    return group;
  }));
  if (!$("tray").childElementCount) $("tray").textContent = "All is placed.";
  const none = !chosen;
  $("earlier").disabled = none || at === 0;
  $("later").disabled = none || at === state.rows[rank].length - 1;
  $("remove").disabled = !state.rows[rank].length;
  $("apart").disabled = none || chosen.kind === "F";
  $("apart").textContent = chosen?.kind === "W" || (chosen?.kind === "B" &&
    splitOf(tableOf(describe()), rank).has(`${chosen.micros[0]}/${chosen.chunk}`)) ? "Weights back" : "Weights apart";
  $("join").disabled = none || chosen.kind !== "W";
  $("undo").disabled = !past.length;
  $("redo").disabled = !future.length;
}

function options(select, values, chosen) {
  select.replaceChildren(...values.map(([value, text]) => new Option(text, value, false, String(value) === String(chosen))));
}

function drawSettings() {
  options($("task"), TASKS.map((task, i) => [i, task.name]), state.task);
  options($("ranks"), data.ranks.map((n) => [n, n]), state.ranks);
  options($("micro"), data.micros.map((n) => [n, n]), state.micro);
  options($("route"), Object.entries(WAYS_IN_WORDS).flatMap(([route, words]) =>
    (route === "around" ? [1, 2] : [2]).map((chunks) => [`${route},${chunks}`,
      route === "around" && chunks === 2 ? "through all ranks twice" : words])), `${state.route},${state.chunks}`);
  const names = Object.keys(data.schedules);
  const own = nameOf();
  options($("schedule"), [["", own ? "empty" : "your own"], ...(own ? [] : [["-", "empty"]]), ...names.map((name) => [name, name])], own ?? "");
  $("cap").value = cap ?? "";
  if ($("costs").contains(document.activeElement)) return;
  const cell = (tag, content) => {
    const element = document.createElement(tag);
    element.append(content);
    return element;
  };
  const line = (words, ways, values, set) => {
    const row = document.createElement("tr");
    row.append(cell("th", words), ...values.map((value, stage) => {
      const input = document.createElement("input");
      Object.assign(input, { type: "number", min: 0, max: 16, step: 0.5, value });
      input.setAttribute("aria-label", `${words} of stage ${stage}`);
      input.oninput = () => {
        const given = Number(input.value);
        if (input.value === "" || !(given >= 0 && given <= 16)) return;
        set(stage, given);
        draw();
      };
      return cell("td", input);
    }));
    return row;
  };
  const head = document.createElement("thead"), titles = document.createElement("tr");
  titles.append(cell("th", "Stage"), ...upTo(state.ranks).map((stage) => cell("th", String(stage))));
  head.append(titles);
  const body = document.createElement("tbody");
  for (const [way, words] of [["forward", "Forward F"], ["backward", "Backward B"], ["weight", "Weights W"]])
    body.append(line(words, way, costs[way], (stage, value) => { costs[way][stage] = value; }));
  body.append(line("Message", "message", [costs.message], (_, value) => { costs.message = value; }));
  $("costs").replaceChildren(head, body);
}

// Commands

function drawCommand() {
  const description = describe();
  $("command").textContent = proveCommand(description);
  $("record").textContent = recordCommand(description);
  $("download").href = `data:application/json,${encodeURIComponent(fileText(description))}`;
}

async function copy(source, note) {
  try {
    await navigator.clipboard.writeText(source.textContent);
    note.textContent = "Copied: paste it into a terminal.";
  } catch { // a page from file:// in some browsers
    getSelection().selectAllChildren(source);
    note.textContent = "Selected: press Ctrl+C (or ⌘C) to copy it.";
  }
}

const WORD = /^[FBW]\d{1,3}(-\d{1,3})?(,\d{1,3}(-\d{1,3})?)*(\/\d)?$/;

async function openSchedule(file) {
  try {
    const { micro, chunks = 1, route = "around", ranks } = JSON.parse(await file.text());
    if (!data.micros.includes(micro) || !data.ranks.includes(ranks?.length) || !(route in ROUTES) || ![1, 2].includes(chunks))
      throw new Error(`it is for ${ranks?.length} ranks, ${micro} micro-batches, ${chunks} chunks; this page draws ` +
        `${data.ranks.at(0)} to ${data.ranks.at(-1)} ranks, up to ${data.micros.at(-1)} micro-batches, 1 or 2 chunks`);
    const bad = ranks.flatMap((row) => row.split(" ")).find((word) => word && !WORD.test(word));
    if (bad) throw new Error(`${bad} is no instruction such as F0, B3/1 or W0-2`);
    state.task = 0;
    take({ micro, chunks, route, ranks });
    $("copied").textContent = `${file.name} is on the board.`;
  } catch (error) {
    $("copied").textContent = `${file.name} cannot be used: ${error.message}`;
  }
}

/** Draw below the board the step of median length of a trace that minigrad train --trace wrote. */
async function openTrace(file) {
  const note = $("traceword");
  try {
    const { traceEvents, otherData } = JSON.parse(await file.text());
    const { ranks: groups, timetable } = otherData?.pipeline ?? {};
    if (!groups) throw new Error("it is no trace of a pipeline that minigrad train --trace wrote");
    const steps = stepsOf(traceEvents, groups[0]);
    const { step, first, last } = steps[Math.floor((steps.length - 1) / 2)];
    const busy = step.reduce((sum, s) => sum + s.dur, 0), whole = groups[0].length * (last - first);
    const other = timetable && timetable.ranks.join("|") !== texts(state.rows).join("|");
    note.textContent = other ? "The run is of another schedule than that of the board." : "The run stands below the board.";
    $("measuredword").textContent = `The run, a step of median length: ${((last - first) / 1000).toFixed(2)} ms, ` +
      `${percent(1 - busy / whole)} of the time idle.`;
    measured = { ranks: groups[0].length, step, first, last };
    drawRun();
    $("measured").scrollIntoView({ block: "nearest" });
  } catch (error) {
    note.textContent = `${file.name} cannot be drawn: ${error.message}`;
  }
}

let measured = null;

/** The steps of a trace from the shortest, without the first one, which includes one-time work. */
function stepsOf(events, ranks) {
  const spans = events.filter((e) => e.ph === "X" && ranks.includes(e.tid)).map((e) => ({ ...e, rank: ranks.indexOf(e.tid) }));
  const updates = ranks.map((_, rank) => spans.filter((s) => s.rank === rank && s.name === "update").map((s) => s.ts));
  const steps = [];
  for (const span of spans) {
    const match = /^(forward|backward|weight) ([\d,-]+(\/\d)?)$/.exec(span.name);
    if (!match) continue;
    const number = updates[span.rank].filter((ts) => ts <= span.ts).length;
    (steps[number] ??= []).push({ ...span, i: instructionOf(match[1][0].toUpperCase() + match[2]) });
  }
  const all = steps.filter(Boolean).map((step) =>
    ({ step, first: Math.min(...step.map((s) => s.ts)), last: Math.max(...step.map((s) => s.ts + s.dur)) }));
  if (!all.length) throw new Error("no step in it has an instruction of a pipeline");
  return (all.length > 1 ? all.slice(1) : all).sort((a, b) => a.last - a.first - (b.last - b.first));
}

function drawRun() {
  const { ranks, step, first, last } = measured, box = $("run");
  $("measured").hidden = false;
  const width = Math.max(box.clientWidth, 500), scale = (width - LEFT - 20) / (last - first || 1);
  const picture = svg("svg", { width, height: LANE * ranks + 6, role: "img", "aria-label": "the measured step" });
  for (const rank of upTo(ranks)) picture.append(svg("text", { x: 8, y: rank * LANE + 25 }, `rank ${rank}`));
  for (const { i, rank, ts, dur } of step) {
    const x = LEFT + (ts - first) * scale, w = Math.max(dur * scale, 1.5), y = rank * LANE + 5;
    const words = `${KINDS[i.kind]} ${i.micros}: ${(dur / 1000).toFixed(2)} ms`;
    picture.append(svg("g", { class: `run ${i.kind}` }, svg("title", {}, words), svg("rect", { x, y, width: w, height: BOX }),
      svg("text", { x: x + w / 2, y: y + 20, "text-anchor": "middle" }, 8.2 * shown(i).length < w ? shown(i) : "")));
  }
  box.replaceChildren(picture);
}

/** The mean times of the measured step as costs; the slowest rank takes 3 seconds for a micro-batch. */
function takeSeconds() {
  const { ranks, step } = measured;
  const mean = (kind, rank) => {
    const mine = step.filter((s) => s.rank === rank && s.i.kind === kind);
    const each = mine.reduce((sum, s) => sum + s.i.micros.length, 0) / state.chunks;
    return each ? mine.reduce((sum, s) => sum + s.dur, 0) / each : 0;
  };
  const times = Object.fromEntries([["forward", "F"], ["backward", "B"], ["weight", "W"]].map(([way, kind]) =>
    [way, upTo(ranks).map((rank) => mean(kind, rank))]));
  const most = Math.max(...upTo(ranks).map((rank) => times.forward[rank] + times.backward[rank] + times.weight[rank]));
  if (ranks !== state.ranks || !most) return;
  for (const way of Object.keys(times)) costs[way] = times[way].map((time) => Math.round((300 * time) / most) / 100);
  draw();
}

// Keys, clicks and drags

function choose(rank, at) {
  cursor = { rank, at: Math.max(0, Math.min(at, state.rows[rank].length)) };
  draw(true);
}

function besides(step) {
  const rank = cursor.rank + step;
  if (rank < 0 || rank >= state.ranks) return;
  const middle = (group) => Number(group.querySelector("rect").getAttribute("x"));
  const groups = [...$("board").querySelectorAll(".piece")], here = middle(groups.find((g) => g.matches(".chosen")));
  const near = groups.filter((g) => Number(g.dataset.rank) === rank).sort((a, b) => Math.abs(middle(a) - here) - Math.abs(middle(b) - here));
  choose(rank, Number(near[0].dataset.at));
}

const KEYS = {
  ArrowLeft: () => choose(cursor.rank, cursor.at - 1),
  ArrowRight: () => choose(cursor.rank, cursor.at + 1),
  ArrowUp: () => besides(-1),
  ArrowDown: () => besides(1),
  Home: () => choose(cursor.rank, 0),
  End: () => choose(cursor.rank, Infinity),
  Delete: removeChosen,
  Backspace: removeChosen,
  s: toggleApart,
  j: joinNext,
};
for (const kind of "FBW") KEYS[kind.toLowerCase()] = () => remaining(cursor.rank)[kind].slice(0, 1).forEach(place);

$("board").addEventListener("keydown", (event) => {
  const control = event.ctrlKey || event.metaKey, key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const act = control ? { z: () => goBack(past, future), y: () => goBack(future, past) }[key]
    : event.shiftKey && key === "ArrowLeft" ? () => move(-1)
    : event.shiftKey && key === "ArrowRight" ? () => move(1) : event.altKey ? undefined : KEYS[key];
  if (!act) return;
  event.preventDefault();
  act();
});

let drag = null;
$("board").addEventListener("mousedown", (event) => event.preventDefault()); // choose() has set the focus
$("board").addEventListener("pointerdown", (event) => {
  const group = event.target.closest(".piece");
  if (!group) return;
  const rank = Number(group.dataset.rank), at = Number(group.dataset.at);
  drag = at < state.rows[rank].length ? { rank, at, x: event.clientX, touch: event.pointerType === "touch" } : null;
  choose(rank, at);
});
addEventListener("pointerup", (event) => {
  const from = drag;
  drag = null;
  if (!from || from.touch || Math.abs(event.clientX - from.x) < 12) return;
  const centers = [...$("board").querySelectorAll(`.piece[data-rank="${from.rank}"]:not(.end)`)].map((group) => {
    const { left, width } = group.querySelector("rect").getBoundingClientRect();
    return left + width / 2;
  });
  const to = centers.filter((x, at) => at !== from.at && x < event.clientX).length;
  cursor = { rank: from.rank, at: from.at };
  move(to - from.at);
});

const acts = { earlier: () => move(-1), later: () => move(1), remove: removeChosen, apart: toggleApart, join: joinNext,
  undo: () => goBack(past, future), redo: () => goBack(future, past) };
for (const [id, act] of Object.entries(acts)) $(id).onclick = () => { act(); if (!$(id).disabled) $(id).focus(); };
$("task").onchange = (event) => begin(Number(event.target.value));
$("ranks").onchange = (event) => resize(Number(event.target.value), state.micro);
$("micro").onchange = (event) => resize(state.ranks, Number(event.target.value));
$("schedule").onchange = ({ target: { value } }) => {
  if (!value || value === "-") return take(null, state);
  const found = written(value);
  if (found) return take(found);
  draw();
  $("about").textContent = data.schedules[value].refusals[`${state.ranks},${state.micro}`];
};
$("route").onchange = (event) => {
  const [route, chunks] = event.target.value.split(",");
  state = { ...state, route, chunks: Number(chunks) };
  take(null, state);
};
$("cap").oninput = (event) => {
  cap = event.target.value === "" ? null : Math.max(1, Number(event.target.value));
  draw();
};
$("copy").onclick = () => copy($("command"), $("copied"));
$("copyrecord").onclick = () => copy($("record"), $("traceword"));
$("seconds").onclick = takeSeconds;
$("open").onchange = (event) => openSchedule(event.target.files[0]);
$("trace").onchange = (event) => openTrace(event.target.files[0]);
addEventListener("resize", () => { draw(); if (measured) drawRun(); });
$("app").hidden = false;
take(written("1f1b"));
