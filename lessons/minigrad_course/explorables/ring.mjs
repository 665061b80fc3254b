// Who waits on the ring: blocks of tokens that the reader gives to ranks, and the steps that follow.

import { html, svg } from "./elements.mjs";
import { balanced, ringCommand, stepsOf, whoWaits } from "./ring_steps.mjs";

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const TOKENS = data.tokens, CELL = 6, LEFT = 62, TOP = 14, LANE = 40;

let state = { ranks: 4, blocks: 8, owners: [] };
let message = 0; // pairs that the keys and values of a token travel for
let chosen = 0; // a block
let past = [];

const upTo = (n) => Array.from({ length: n }, (_, i) => i);
const startOf = (block) => Math.floor((block * TOKENS) / state.blocks);
const ownerOf = (block) => state.owners[startOf(block)];
const number = (x) => String(Math.round(10 * x) / 10);
const ordered = (name) => data.orders[state.ranks][name];
const orderOf = () => Object.keys(data.orders[state.ranks]).find((name) => ordered(name).owners === state.owners.join(""));
const rangeOf = (block) => (startOf(block + 1) - startOf(block) > 1
  ? `tokens ${startOf(block)} to ${startOf(block + 1) - 1}` : `token ${startOf(block)}`);

/** Put an order of Python's on the board; striped blocks are single tokens. */
function take(name, ranks = state.ranks) {
  const blocks = name === "striped" ? TOKENS : data.blocks[ranks];
  state = { ranks, blocks, owners: [...data.orders[ranks][name].owners].map(Number) };
  chosen = 0;
  past = [];
  draw();
}

function give(block, rank, focus = true) {
  if (rank < 0 || rank >= state.ranks || rank === ownerOf(block)) return;
  past.push(state.owners);
  const owners = state.owners.map((owner, token) => (token >= startOf(block) && token < startOf(block + 1) ? rank : owner));
  state = { ...state, owners };
  chosen = block;
  draw(focus);
}

function undo() {
  if (past.length) state = { ...state, owners: past.pop() };
  draw(true);
}

// What is seen

function draw(focus = false) {
  const steps = stepsOf(state.owners, state.ranks, message);
  const time = steps.reduce((sum, step) => sum + step.length, 0), even = balanced(TOKENS, state.ranks);
  const busy = upTo(state.ranks).map((rank) => steps.reduce((sum, { tiles }) => sum + tiles[rank], 0));
  drawMask();
  drawLanes(steps, time);
  drawVerdict(steps, time, even, busy);
  drawTable(steps, busy);
  drawSettings();
  if (focus) $("mask").querySelector(".chosen")?.focus({ preventScroll: true });
}

function drawMask() {
  const wide = TOKENS * CELL;
  const picture = svg("svg", { viewBox: `0 0 ${LEFT + wide + 2} ${TOP + wide + 2}`, role: "group", "aria-label": "The mask: blocks of queries from top to bottom" });
  upTo(state.blocks).forEach((block) => {
    const x = LEFT + startOf(block) * CELL;
    picture.append(svg("rect", { class: `key rank${ownerOf(block)}`, x, y: 0, width: (startOf(block + 1) - startOf(block)) * CELL, height: TOP - 5 }));
  });
  upTo(state.blocks).forEach((block) => picture.append(rowOf(block, wide)));
  if (state.blocks < TOKENS) for (const block of upTo(state.blocks).slice(1)) {
    const at = startOf(block) * CELL;
    picture.append(svg("line", { class: "cut", x1: LEFT + at, x2: LEFT + at, y1: TOP + at, y2: TOP + wide, "pointer-events": "none" }));
  }
  $("mask").replaceChildren(picture);
}

function rowOf(block, wide) {
  const first = startOf(block), last = startOf(block + 1), owner = ownerOf(block), y = TOP + first * CELL;
  const stairs = upTo(last - first).map((i) => `H${LEFT + (first + i + 1) * CELL}V${TOP + (first + i + 1) * CELL}`).join("");
  const words = `${rangeOf(block)}, of rank ${owner}`, here = block === chosen;
  const group = svg("g", { class: `block rank${owner} ${here ? "chosen" : ""}`, role: "button", tabindex: here ? 0 : -1,
    "aria-label": words, "aria-pressed": here, "data-block": block }, svg("title", {}, words));
  group.append(svg("path", { d: `M${LEFT} ${y}${stairs}H${LEFT}Z` }));
  group.append(svg("rect", { class: "row", x: 1, y: y + 1, width: LEFT + wide, height: (last - first) * CELL - 2 }));
  if ((last - first) * CELL >= 14)
    group.append(svg("text", { x: 6, y: y + ((last - first) * CELL) / 2 + 5, "pointer-events": "none" }, `rank ${owner}`));
  return group;
}

function drawLanes(steps, time) {
  const wide = Math.max(320, Math.min($("lanes").clientWidth || 700, 1150)), scale = (wide - LEFT - 6) / time;
  const picture = svg("svg", { viewBox: `0 0 ${wide} ${LANE * state.ranks + 24}`, role: "img", "aria-label": "the ranks' tiles over time, as in the table above" });
  upTo(state.ranks).forEach((rank) => {
    let x = LEFT;
    const lane = svg("g", { "data-rank": rank }, svg("rect", { x: 0, y: rank * LANE, width: wide, height: LANE, fill: "transparent" }));
    lane.append(svg("text", { x: 4, y: rank * LANE + 21 }, `rank ${rank}`));
    for (const { sources, tiles, messages, length } of steps) {
      const y = rank * LANE + 4, tile = tiles[rank] * scale, travel = messages[rank] * scale, text = `keys of ${sources[rank]}`;
      lane.append(svg("rect", { class: "wait", x, y, width: length * scale, height: 24 }, svg("title", {}, `rank ${rank} waits ${number(length - tiles[rank])}`)));
      lane.append(svg("rect", { class: `tile rank${rank}`, x, y, width: tile, height: 24 }, svg("title", {}, `rank ${rank}, ${text}: ${tiles[rank]} pairs`)));
      if (tile > 7.2 * text.length) lane.append(svg("text", { class: `on rank${rank}`, x: x + tile / 2, y: y + 17, "text-anchor": "middle" }, text));
      if (travel) lane.append(svg("rect", { class: "message", x, y: y + 26, width: Math.min(travel, tile), height: 5 }));
      if (travel > tile) lane.append(svg("rect", { class: "message out", x: x + tile, y: y + 26, width: travel - tile, height: 5 }));
      x += length * scale;
    }
    picture.append(lane);
  });
  let x = LEFT;
  steps.forEach(({ length }, t) => {
    const bottom = LANE * state.ranks;
    picture.append(svg("line", { class: "edge", x1: x, x2: x, y1: 0, y2: bottom + 6 }));
    if (length * scale > 50) picture.append(svg("text", { x: x + 3, y: bottom + 18 }, `step ${t}`));
    x += length * scale;
  });
  $("lanes").replaceChildren(picture);
}

function drawVerdict(steps, time, even, busy) {
  const verdict = $("verdict"), name = orderOf(), late = steps.filter(({ tiles, messages }) => Math.max(...messages) > Math.max(...tiles));
  const idle = `${Math.round(100 * (1 - Math.min(...busy) / time))} % of the time`, rest = time - even;
  verdict.className = `verdict ${rest < 1e-9 ? "good" : ""}`;
  verdict.textContent = (name ? `This is the ${name} order. ` : "This is your own order. ") +
    (rest < 1e-9 ? `No rank ever waits: ${number(time)} pairs.`
      : `The ring lasts ${number(time)} pairs; without waiting it would last ${number(even)}. ${whoWaits(busy)} ${idle}.`) +
    (late.length ? ` In ${late.length} of ${steps.length - 1} steps the messages take longer than the longest tile.` : "");
  const rows = [["Time", number(time)], ["If nobody waited", number(even)], ["Times as long", (time / even).toFixed(2)]];
  $("score").replaceChildren(...rows.map(([term, value]) => html("div", {}, html("dt", {}, term), html("dd", {}, value))));
}

function drawTable(steps, busy) {
  const head = html("tr", {}, html("th", {}, ""), ...steps.map((_, t) => html("th", {}, `step ${t}`)), html("th", {}, "all"));
  const body = upTo(state.ranks).map((rank) => html("tr", {}, html("th", {}, `rank ${rank}`),
    ...steps.map(({ tiles }) => html("td", {}, String(tiles[rank]))), html("td", {}, String(busy[rank]))));
  const last = html("tr", {}, html("th", {}, "lasts"), ...steps.map(({ length }) => html("td", {}, number(length))),
    html("td", {}, number(steps.reduce((sum, { length }) => sum + length, 0))));
  $("table").replaceChildren(html("thead", {}, head), html("tbody", {}, ...body, last));
}

function drawSettings() {
  const name = orderOf();
  $("orders").replaceChildren(...Object.keys(data.orders[state.ranks]).map((order) => {
    const button = html("button", { "aria-pressed": order === name, id: `order-${order}` }, order);
    button.onclick = () => { take(order); $(`order-${order}`).focus(); };
    return button;
  }));
  $("ranks").value = state.ranks;
  $("command").textContent = `${ringCommand(state.ranks)}\n`;
  $("messageword").textContent = message === 0 ? "Messages take no time" : `The keys and values of a token travel for ${message} pair${message > 1 ? "s" : ""}`;
  $("chosenword").textContent = `Give ${rangeOf(chosen)} to`;
  $("ranks-to-give").replaceChildren(...upTo(state.ranks).map((rank) => {
    const button = html("button", { class: `rank${rank}`, "data-rank": rank, "aria-pressed": rank === ownerOf(chosen) }, `rank ${rank}`);
    button.onclick = () => { give(chosen, rank, false); $("ranks-to-give").children[rank].focus(); };
    return button;
  }));
}

// Keys and drags

function choose(block) {
  chosen = Math.max(0, Math.min(block, state.blocks - 1));
  draw(true);
}

const KEYS = {
  ArrowUp: () => choose(chosen - 1),
  ArrowDown: () => choose(chosen + 1),
  Home: () => choose(0),
  End: () => choose(state.blocks - 1),
  ArrowLeft: () => give(chosen, ownerOf(chosen) - 1),
  ArrowRight: () => give(chosen, ownerOf(chosen) + 1),
};

$("mask").addEventListener("keydown", (event) => {
  const control = event.ctrlKey || event.metaKey;
  const act = control ? { z: undo }[event.key.toLowerCase()] : event.altKey ? undefined
    : /^\d$/.test(event.key) ? () => give(chosen, Number(event.key)) : KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

let drag = null;
$("mask").addEventListener("mousedown", (event) => event.preventDefault()); // choose() has set the focus
$("mask").addEventListener("pointerdown", (event) => {
  const group = event.target.closest(".block");
  if (!group) return;
  drag = Number(group.dataset.block);
  choose(drag);
});
addEventListener("pointerup", (event) => {
  const block = drag, below = document.elementFromPoint(event.clientX, event.clientY);
  drag = null;
  if (block === null || !below) return;
  const rank = below.closest("[data-rank]")?.dataset.rank, other = below.closest(".block")?.dataset.block;
  if (rank !== undefined) give(block, Number(rank));
  else if (other !== undefined) give(block, ownerOf(Number(other)));
});

for (const ranks of data.ranks) $("ranks").append(new Option(ranks));
$("ranks").onchange = (event) => take(orderOf() ?? "plain", Number(event.target.value));
$("message").oninput = (event) => { message = Number(event.target.value); draw(); };
$("copy").onclick = async () => {
  try {
    await navigator.clipboard.writeText($("command").textContent);
    $("copied").textContent = "Copied: paste it into a terminal.";
  } catch {
    getSelection().selectAllChildren($("command"));
    $("copied").textContent = "Selected: press Ctrl+C (or ⌘C) to copy it.";
  }
};
addEventListener("resize", () => draw());
$("app").hidden = false;
take("plain");
