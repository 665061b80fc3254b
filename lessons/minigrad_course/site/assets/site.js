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
    await navigator.clipboard.writeText(pre.textContent);
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  });
}

// Questions: predict, then reveal
for (const question of document.querySelectorAll(".question")) {
  const details = question.querySelector("details"), answer = question.dataset.answer;
  const choice = () => question.querySelector("input:checked");
  const mark = () => {
    for (const input of question.querySelectorAll("input")) {
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
  question.addEventListener("change", () => { question.querySelector(".hint")?.remove(); mark(); });
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
const count = (text, word) => text.toLowerCase().split(word).length - 1;
function find() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  list.replaceChildren();
  if (!words.length || !window.searchIndex) return;
  const scored = [];
  for (const [url, title, heading, text] of window.searchIndex) {
    const points = words.map((word) => 8 * count(heading, word) + 3 * count(title, word) + Math.min(count(text, word), 5));
    if (points.every(Boolean)) scored.push([points.reduce((a, b) => a + b), url, title, heading, text]);
  }
  scored.sort((a, b) => b[0] - a[0]);
  for (const [, url, title, heading, text] of scored.slice(0, 12)) {
    const link = document.createElement("a"), small = document.createElement("small");
    const at = Math.max(0, text.toLowerCase().indexOf(words[0]) - 40);
    link.href = root + url;
    link.textContent = heading;
    small.textContent = `${title === heading ? "" : `${title}: `}${text.slice(at, at + 110)}`;
    link.append(small);
    list.append(link);
  }
  if (!scored.length) list.innerHTML = "<p>Nothing has all of these words.</p>";
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
