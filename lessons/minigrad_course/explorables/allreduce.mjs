// The all-reduce player: a recorded run, round by round, and what followed when a message was lost.

import { html, svg } from "./elements.mjs";
import { holdingsByRound } from "./holdings.mjs";

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const WIDE = 560, HIGH = 560;

let view = { name: "ring", size: data.sizes[0], round: 0 };
let chosen = null; // the number of a message
let fate = "arrives"; // or "lost", "zeros"
let timer = null;

const run = () => data.runs[`${view.name},${view.size}`];
const numbered = () => run().messages.map((message, number) => ({ message, number }));
const ofRound = () => numbered().filter(({ message }) => message[2] === view.round);
const members = (bits) => Array.from({ length: view.size }, (_, rank) => rank).filter((rank) => (bits >> rank) & 1);
const list = (numbers) => numbers.join(", ");

function centerOf(rank) {
  const angle = (2 * Math.PI * rank) / view.size - Math.PI / 2 - Math.PI / view.size;
  const radius = view.size > 4 ? 222 : 195;
  return [WIDE / 2 + radius * Math.cos(angle), HIGH / 2 + radius * Math.sin(angle)];
}

const cellOf = () => (view.size > 4 ? 11 : 28);

function drawBox(rank, held, before) {
  const [x, y] = centerOf(rank), cell = cellOf(), half = (view.size * cell) / 2;
  const words = held.map((bits, part) => `part ${part}: ${list(members(bits)) || "nothing"}`).join("; ");
  const group = svg("g", { role: "img", "aria-label": `rank ${rank} holds ${words}` }, svg("title", {}, `rank ${rank}: ${words}`));
  group.append(svg("text", { x: x - half - 4, y: y - half - 9 }, `rank ${rank}`));
  group.append(svg("rect", { class: "box", x: x - half - 4, y: y - half - 4, width: 2 * half + 8, height: 2 * half + 8, rx: 4 }));
  held.forEach((bits, part) => {
    for (let who = 0; who < view.size; who++) {
      const inside = (bits >> who) & 1, came = inside && before && !((before[part] >> who) & 1);
      const kind = inside ? (came ? "new" : "in") : fate === "zeros" ? "lacks" : "";
      group.append(svg("rect", { class: `cell ${kind}`, x: x - half + who * cell + 1, y: y - half + part * cell + 1,
        width: cell - 2, height: cell - 2 }));
    }
  });
  return group;
}

function arrow(from, to, kind, words) {
  const [x1, y1] = centerOf(from), [x2, y2] = centerOf(to), length = Math.hypot(x2 - x1, y2 - y1);
  const reach = (view.size * cellOf()) / 2 + 16, ux = (x2 - x1) / length, uy = (y2 - y1) / length;
  const edge = Math.min(reach / Math.max(Math.abs(ux), Math.abs(uy)), length * 0.42);
  const [nx, ny] = [-uy * 6, ux * 6]; // so that two in opposite directions do not cover each other
  const [ax, ay, bx, by] = [x1 + ux * edge + nx, y1 + uy * edge + ny, x2 - ux * edge + nx, y2 - uy * edge + ny];
  return svg("path", { class: `arrow ${kind}`, d: `M${ax} ${ay}L${bx} ${by}` }, svg("title", {}, words));
}

const head = (id, kind) => svg("marker", { id, viewBox: "0 0 10 10", refX: 8, refY: 5, markerWidth: 9, markerHeight: 9,
  markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" }, svg("path", { class: kind, d: "M0 0L10 5L0 10z" }));

const inWords = ([source, destination, , bytes, parts]) => {
  const numbers = [...new Set(parts.map(([, bits]) => bits))];
  const what = parts.length === view.size ? "all parts" : `part ${list(parts.map(([part]) => part))}`;
  return `${source} → ${destination}: ${what}, ${bytes} bytes, sum of ${numbers.map((bits) => `{${list(members(bits))}}`).join(" and ")}`;
};

function draw() {
  const { messages, rounds, losses } = run(), steps = holdingsByRound(view.size, messages, rounds);
  const loss = chosen === null || fate === "arrives" ? null : losses[chosen];
  const picture = svg("svg", { viewBox: view.size > 4 ? `0 -16 ${WIDE} ${HIGH + 20}` : "70 50 420 440" }, svg("defs", {}, head("head", "head"), head("stop", "stop")));
  const zeros = fate === "zeros" && loss, lost = fate === "lost" && loss;
  for (let rank = 0; rank < view.size; rank++)
    picture.append(zeros ? drawBox(rank, loss.sums[rank]) : drawBox(rank, steps[view.round][rank], steps[view.round - 1]?.[rank]));
  if (lost) for (const [who, peer] of loss.waits) picture.append(arrow(who, peer, "wait", `rank ${who} waits for rank ${peer}`));
  if (!loss) for (const { message, number } of ofRound())
    picture.append(arrow(message[0], message[1], number === chosen ? "chosen" : "", inWords(message)));
  $("picture").replaceChildren(picture);
  drawVerdict(loss, lost, zeros);
  drawMessages();
  drawCounts();
  $("round").max = rounds;
  $("round").value = view.round;
  $("round").setAttribute("aria-valuetext", `${view.round} of ${rounds}`);
  $("back").disabled = $("first").disabled = view.round === 0;
  $("next").disabled = view.round === rounds;
  $("play").textContent = timer ? "⏸ Stop" : "▶ Play";
}

function drawVerdict(loss, lost, zeros) {
  const { messages, rounds } = run(), verdict = $("verdict");
  verdict.className = `verdict ${loss ? "bad" : view.round === rounds ? "good" : ""}`;
  if (lost) {
    const waits = loss.waits.map(([who, peer]) => `rank ${who} waits for rank ${peer}`).join(", ");
    const circle = circleOf(loss.waits);
    verdict.textContent = `Without ${inWords(messages[chosen]).split(",")[0]}, no rank can go on: ${waits}` +
      (circle ? `. They wait in a circle: ${circle.join(" → ")}.` : "; the others have returned.");
  } else if (zeros) {
    const full = 2 ** view.size - 1;
    const wrong = loss.sums.map((sums, rank) => [rank, sums.flatMap((bits, part) => (bits === full ? [] : [part]))]).filter(([, parts]) => parts.length);
    verdict.textContent = `With zeros instead of ${inWords(messages[chosen]).split(",")[0]}, and no error: ` +
      (wrong.length ? wrong.map(([rank, parts]) => `rank ${rank} has a wrong sum in part ${list(parts)}`).join("; ") : "nobody notices") + ".";
  } else if (view.round === rounds) verdict.textContent = `After ${rounds} rounds every rank has every number in every part.`;
  else verdict.textContent = `Round ${view.round + 1} of ${rounds}: ${ofRound().length} message${ofRound().length === 1 ? "" : "s"} under way.`;
}

/** The ranks that wait for one another in a circle, the first repeated at the end; null if none do. */
function circleOf(waits) {
  const next = new Map(waits);
  for (const start of next.keys()) {
    const path = [];
    let at = start;
    while (at !== undefined && !path.includes(at)) {
      path.push(at);
      at = next.get(at);
    }
    if (at !== undefined) return [...path.slice(path.indexOf(at)), at];
  }
  return null;
}

function drawMessages() {
  const now = ofRound();
  $("messagestitle").textContent = now.length ? `Messages of round ${view.round + 1}` : "All messages have arrived";
  $("messages").replaceChildren(...now.map(({ message, number }) => {
    const choice = html("button", { "aria-pressed": number === chosen }, inWords(message));
    choice.onclick = () => { chosen = number === chosen ? null : number; fate = "arrives"; draw(); focusOn("#messages [aria-pressed=true]"); };
    return choice;
  }));
  const losing = $("losing");
  if (chosen === null) return losing.replaceChildren(html("p", { class: "quiet" }, run().losses.length ? "Choose a message to lose it." : "Messages can be lost in the runs of 4 ranks."));
  const fates = run().losses.length ? { arrives: "It arrives", lost: "It is lost", zeros: "Zeros come instead" } : { arrives: "It arrives" };
  return losing.replaceChildren(...Object.entries(fates).map(([key, words]) => {
    const choice = html("button", { "aria-pressed": key === fate, id: `fate-${key}` }, words);
    choice.onclick = () => { fate = key; draw(); focusOn(`#fate-${key}`); };
    return choice;
  }));
}

const focusOn = (selector) => document.querySelector(selector)?.focus();

function drawCounts() {
  const { messages, sent, formula } = run(), past = messages.filter((m) => m[2] < view.round);
  const rows = sent.map(([all, bytes], rank) => {
    const mine = past.filter((m) => m[0] === rank);
    return [`rank ${rank}`, `${mine.length} of ${all}`, `${mine.reduce((sum, m) => sum + m[3], 0)} of ${bytes}`];
  });
  rows.push(["all", `${past.length} of ${messages.length}`,
    `${past.reduce((sum, m) => sum + m[3], 0)} of ${sent.reduce((sum, [, bytes]) => sum + bytes, 0)}`]);
  rows.push(["closed form", ...["messages", "sent"].map((key) => `${formula[key][0]} = ${formula[key][1]}`)]);
  const line = (tag, cells) => {
    const row = document.createElement("tr");
    row.append(...cells.map((text, i) => html(i ? tag : "th", {}, text)));
    return row;
  };
  $("count").replaceChildren(html("thead", {}, line("th", ["", "messages sent", "bytes sent"])));
  const body = document.createElement("tbody");
  body.append(...rows.map((cells) => line("td", cells)));
  $("count").append(body);
  $("forms").textContent = `p = ${view.size} ranks, n = ${8 * view.size} bytes: 8 for each part` +
    (/L/.test(JSON.stringify(formula)) ? `; L = log2 p = ${Math.log2(view.size)}` : "") +
    `. Rounds: ${formula.rounds[0]} = ${formula.rounds[1]}.`;
}

function go(round) {
  view.round = Math.max(0, Math.min(round, run().rounds));
  chosen = null;
  fate = "arrives";
  draw();
}

function stop() {
  clearInterval(timer);
  timer = null;
}

function play() {
  if (timer) stop();
  else {
    if (view.round === run().rounds) go(0);
    timer = setInterval(() => {
      go(view.round + 1);
      if (view.round === run().rounds) { stop(); draw(); }
    }, 900);
  }
  draw();
}

for (const name of [...new Set(Object.keys(data.runs).map((key) => key.split(",")[0]))]) $("name").append(new Option(name));
for (const size of data.sizes) $("size").append(new Option(size));
$("name").value = view.name;
$("name").onchange = (event) => { stop(); view.name = event.target.value; go(0); };
$("size").onchange = (event) => { stop(); view.size = Number(event.target.value); go(0); };
$("first").onclick = () => { stop(); go(0); };
$("back").onclick = () => { stop(); go(view.round - 1); };
$("next").onclick = () => { stop(); go(view.round + 1); };
$("play").onclick = play;
$("round").oninput = (event) => { stop(); go(Number(event.target.value)); };
document.addEventListener("keydown", (event) => {
  if (event.target.closest("select, input, button") || event.ctrlKey || event.metaKey || event.altKey) return;
  const act = { ArrowLeft: () => { stop(); go(view.round - 1); }, ArrowRight: () => { stop(); go(view.round + 1); }, " ": play }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
$("app").hidden = false;
draw();
