// Where the bytes go: bars of what each rank holds, for a layout that the reader chooses.

import { bytesOf } from "./bytes_sum.mjs";
import { html, svg } from "./elements.mjs";

const data = JSON.parse(document.getElementById("coefficients").textContent);
const $ = (id) => document.getElementById(id);
const PARTS = { weights: "weights", gradients: "gradients", optimizer: "optimizer state", activations: "activations" };
const MOST = 16; // ranks that a machine of two cores takes
const ZERO = ["nothing", "optimizer state (stage 1)", "and gradients (stage 2)", "and weights (stage 3)"];

let choice = { net: "lenet", optimizer: "adam", batch: 64, data: 1, zero: 0, pipe: 1, micro: 4, schedule: "1f1b", recompute: false };

function amount(bytes) {
  const unit = bytes >= 1e6 ? ["MB", 1e6] : bytes >= 1e3 ? ["KB", 1e3] : ["B", 1];
  const number = bytes / unit[1];
  return `${number >= 100 || unit[1] === 1 ? Math.round(number) : number.toFixed(number >= 10 ? 1 : 2)} ${unit[0]}`;
}

const sum = (row) => Object.values(row).reduce((a, b) => a + b, 0);

const settings = () => (choice.pipe === 1 ? { ...choice, schedule: "naive", recompute: false } : choice); // one tape at a time

function draw() {
  const rows = bytesOf(settings(), data);
  const alone = bytesOf({ ...choice, pipe: 1, data: 1, zero: 0, micro: 1, schedule: "naive", recompute: false }, data)[0];
  const most = Math.max(...rows.map(sum), sum(alone));
  const named = [["one machine", alone], ...rows.map((row, stage) => [label(stage), row])];
  drawBars(named, most);
  drawTable(named);
  const largest = Math.max(...rows.map(sum)), at = rows.findIndex((row) => sum(row) === largest), share = largest / sum(alone);
  const [what] = Object.entries(rows[at]).sort(([, a], [, b]) => b - a)[0];
  $("verdict").textContent = `${choice.data * choice.pipe} rank${choice.data * choice.pipe > 1 ? "s" : ""}: the fullest ` +
    `holds ${amount(largest)}, ${(100 * share).toFixed(share < 0.1 ? 1 : 0)} % of what one machine needs for the whole batch; ` +
    `most of it is ${PARTS[what]}.`;
  for (const id of ["schedule", "recompute"]) $(id).disabled = choice.pipe === 1;
  $("zero").disabled = choice.data === 1;
  const ranks = choice.data * choice.pipe;
  $("command").textContent = ranks > MOST ? `# ${ranks} ranks are for a cluster; up to ${MOST} run on a laptop.\n` : `${commandOf()}\n`;
  $("copy").disabled = ranks > MOST;
}

const label = (stage) => (choice.pipe === 1 ? "each rank" : `stage ${stage}`);

function commandOf() {
  const { net, data: ranks, pipe, zero, micro, schedule, recompute, batch } = choice;
  const words = ["minigrad prove", `--net ${net}`, `--batch ${batch}`];
  if (ranks > 1) words.push(`--data ${ranks}`);
  if (ranks > 1 && zero) words.push(`--strategy sharded --option stage=${zero}`);
  if (pipe > 1) words.push(`--pipe ${pipe} --schedule ${schedule} --micro ${micro}`);
  if (pipe > 1 && recompute) words.push("--recompute");
  if (pipe === 1 && micro > 1) words.push(`--option micro_batches=${micro}`);
  return words.join(" ");
}

function drawBars(named, most) {
  const wide = Math.max(320, Math.min($("picture").clientWidth || 700, 900)), left = 96, high = 38, right = 74;
  const picture = svg("svg", { viewBox: `0 0 ${wide} ${high * named.length + 6}`, role: "img", "aria-label": "bytes of each rank, as in the table below" });
  named.forEach(([name, row], line) => {
    const y = line * high + 4;
    let x = left;
    picture.append(svg("text", { x: 2, y: y + 20 }, name));
    for (const [what, bytes] of Object.entries(row)) {
      const width = (bytes / most) * (wide - left - right);
      const words = `${name}: ${PARTS[what]} ${amount(bytes)}`;
      picture.append(svg("rect", { class: `part ${what}`, x, y, width, height: high - 8 }, svg("title", {}, words)));
      const text = amount(bytes);
      if (width > 7.6 * text.length) picture.append(svg("text", { class: `on ${what}`, x: x + width / 2, y: y + 20, "text-anchor": "middle" }, text));
      x += width;
    }
    picture.append(svg("text", { x: x + 6, y: y + 20 }, amount(sum(row))));
  });
  $("picture").replaceChildren(picture);
}

function drawTable(named) {
  const head = html("tr", {}, ...["", ...Object.values(PARTS), "all"].map((name) => html("th", {}, name)));
  const body = named.map(([name, row]) => html("tr", {}, html("th", {}, name),
    ...Object.values(row).map((bytes) => html("td", {}, amount(bytes))), html("td", {}, amount(sum(row)))));
  $("table").replaceChildren(html("thead", {}, head), html("tbody", {}, ...body));
}

function fill(id, values) {
  $(id).replaceChildren(...values.map(([value, text]) => new Option(text, value)));
  $(id).value = choice[id];
  $(id).onchange = ({ target: { value } }) => {
    choice[id] = typeof choice[id] === "number" ? Number(value) : value;
    if (id === "net") fillStages();
    draw();
  };
}

$("legend").replaceChildren(...Object.entries(PARTS).map(([what, name]) =>
  html("span", { class: "named" }, html("span", { class: `key ${what}` }), name)));
const same = (values) => values.map((value) => [value, value]);
function fillStages() {
  const numbers = Object.keys(data.nets[choice.net]);
  choice.pipe = Math.min(choice.pipe, numbers.length);
  fill("pipe", same(numbers));
}
fill("net", same(Object.keys(data.nets)));
fill("optimizer", same(Object.keys(data.optimizers)));
fill("data", same([1, 2, 4, 8, 16, 64]));
fill("zero", ZERO.map((text, stage) => [stage, text]));
fillStages();
fill("micro", same(data.micros));
fill("schedule", same(Object.keys(data.tapes)));
$("recompute").onchange = (event) => { choice.recompute = event.target.checked; draw(); };
$("batch").oninput = (event) => {
  const batch = Number(event.target.value);
  if (Number.isInteger(batch) && batch >= 1 && batch <= 4096) { choice.batch = batch; draw(); }
};
$("copy").onclick = async () => {
  try {
    await navigator.clipboard.writeText($("command").textContent);
    $("copied").textContent = "Copied: paste it into a terminal.";
  } catch {
    getSelection().selectAllChildren($("command"));
    $("copied").textContent = "Selected: press Ctrl+C (or ⌘C) to copy it.";
  }
};
addEventListener("resize", draw);
$("app").hidden = false;
draw();
