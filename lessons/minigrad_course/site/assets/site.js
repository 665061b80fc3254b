"use strict";
// Everything here is an addition: without it the pages can be read, printed and followed.
const root = document.currentScript.dataset.root;
const stored = { // a browser may refuse storage to a file
  get(key) { try { return localStorage.getItem(key); } catch { return null; } },
  set(key, value) { try { localStorage.setItem(key, value); } catch { /* then it is for this page */ } },
};

// Light and dark
const html = document.documentElement;
const isDark = () => (html.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
if (stored.get("theme")) html.dataset.theme = stored.get("theme");
const button = document.querySelector("button.theme");
const nameTheme = () => { button.textContent = isDark() ? "Light" : "Dark"; };
button.hidden = false;
button.addEventListener("click", () => {
  html.dataset.theme = isDark() ? "light" : "dark";
  stored.set("theme", html.dataset.theme);
  nameTheme();
});
nameTheme();

// Copy buttons
for (const pre of document.querySelectorAll("pre.code")) {
  const block = document.createElement("div"), copy = document.createElement("button");
  block.className = "block";
  copy.textContent = "Copy";
  copy.type = "button";
  pre.replaceWith(block);
  block.append(pre, copy);
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(pre.textContent);
      copy.textContent = "Copied";
    } catch { // a browser may refuse it to a page without https
      getSelection().selectAllChildren(pre);
      copy.textContent = "Selected";
    }
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  });
}

// Progress, kept in this browser by the page's place in the site: the parts read, and the predictions
const here = document.body.dataset.page;
const progress = () => { try { return JSON.parse(stored.get("progress")) ?? {}; } catch { return {}; } };
const own = { read: [], answers: {}, ...progress()[here] };
const keep = () => stored.set("progress", JSON.stringify({ ...progress(), [here]: own }));
for (const card of document.querySelectorAll("[data-parts]")) {
  const { read = [], answers = {} } = progress()[card.dataset.page] ?? {};
  const answered = Object.keys(answers).length;
  if (!read.length && !answered) continue;
  const line = document.createElement("p");
  line.className = "progress";
  line.textContent = `${read.length} of ${card.dataset.parts} parts read, ${answered} of ${card.dataset.questions} questions answered`;
  card.append(line);
}

// Where the reader is: the last heading in the upper third
const headings = [...document.querySelectorAll("main h2[id]")];
const sections = [...document.querySelectorAll(".beside a, .contents a")];
const tops = () => headings.map((heading) => heading.getBoundingClientRect().top);
function mark() {
  const current = headings[tops().findLastIndex((top) => top < innerHeight / 3)]?.id;
  for (const link of sections) {
    const id = decodeURIComponent(link.hash.slice(1));
    link.classList.toggle("seen", own.read.includes(id));
    if (id && id === current) link.setAttribute("aria-current", "location"); else link.removeAttribute("aria-current");
  }
}

// A part of a lesson is read once the end of it has been on the screen for a moment
function read() {
  const ends = [...tops().slice(1), document.querySelector("main").getBoundingClientRect().bottom];
  const ids = headings.map((heading) => heading.id);
  own.read.push(...ids.filter((id, i) => ends[i] > 0 && ends[i] < innerHeight && !own.read.includes(id)));
  keep();
  mark();
}
if (sections.length) {
  let waiting = false, still = 0;
  const moved = () => {
    if (!waiting) requestAnimationFrame(() => { waiting = false; mark(); });
    waiting = true;
    clearTimeout(still);
    if (/^lessons\/\d/.test(here)) still = setTimeout(read, 700);
  };
  addEventListener("scroll", moved, { passive: true });
  moved();
}

// Questions: predict, then reveal
for (const question of document.querySelectorAll(".question")) {
  const details = question.querySelector("details"), answer = question.dataset.answer;
  const choice = () => question.querySelector("input:checked"), inputs = [...question.querySelectorAll("input")];
  const write = () => { // the letter into the program
    const place = question.querySelector(".prediction");
    if (place && choice()) place.textContent = `"${choice().value}"`;
  };
  const mark = () => {
    for (const input of inputs) {
      const shown = details.open && choice();
      input.parentElement.classList.toggle("right", Boolean(shown && input.value === answer));
      input.parentElement.classList.toggle("wrong", Boolean(shown && input.checked && input.value !== answer));
    }
  };
  details.querySelector("summary").addEventListener("click", (event) => {
    if (choice() || details.open) return;
    event.preventDefault();
    if (!question.querySelector(".hint")) details.insertAdjacentHTML("beforebegin", '<p class="hint" role="status">Predict first: choose a letter.</p>');
  });
  details.addEventListener("toggle", mark);
  question.addEventListener("change", () => {
    question.querySelector(".hint")?.remove();
    own.answers[choice().name] = choice().value;
    keep();
    write();
    mark();
  });
  for (const input of inputs) input.checked = own.answers[input.name] === input.value;
  write();
}

// Search: the index is a script, since a page that is opened as a file cannot fetch
const search = document.querySelector(".search"), field = search.querySelector("input"), list = search.querySelector(".results");
const load = () => {
  if (document.querySelector("#index")) return;
  const script = document.createElement("script");
  script.id = "index";
  script.src = `${root}assets/search.js`;
  script.onload = find;
  document.head.append(script);
};
// The search's order
function find() {
  const words = field.value.toLowerCase().match(/[\p{L}\p{N}_]+/gu);
  list.replaceChildren();
  if (!words || !window.searchIndex) return;
  const found = searchOrder(window.searchIndex, field.value).slice(0, 12);
  for (const [url, title, heading, text] of found) {
    const link = document.createElement("a"), small = document.createElement("small");
    const at = Math.max(0, text.toLowerCase().indexOf(words[0]) - 40);
    link.href = root + url;
    link.textContent = heading;
    small.textContent = `${title === heading ? "" : `${title}: `}${text.slice(at, at + 110)}`;
    link.append(small);
    list.append(link);
  }
  if (!found.length) list.innerHTML = "<p>Nothing has any of these words.</p>";
}
search.hidden = false;
field.addEventListener("focus", load);
field.addEventListener("input", find);
document.addEventListener("keydown", (event) => {
  const items = [field, ...list.querySelectorAll("a")], place = items.indexOf(document.activeElement);
  if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) { event.preventDefault(); field.focus(); }
  if (event.key === "Escape" && place >= 0) { field.value = ""; find(); field.focus(); }
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && place >= 0) { event.preventDefault(); items[Math.max(0, Math.min(items.length - 1, place + step))].focus(); }
});
document.addEventListener("click", (event) => { if (!search.contains(event.target)) list.replaceChildren(); });
