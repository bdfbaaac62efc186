// What a page does beside its widgets: rows of text and figure, contents, theme, progress, a lost kernel.

import { sections } from "./sections.js";
import "./theme.js";

const { baseUrl, kernelId } = JSON.parse(document.getElementById("jupyter-config-data").textContent);
const cells = document.querySelector("#rendered_cells > div");

// A figure stands to the right of the text round it, from its heading (or the figure before) to the next.
function rows() {
  let row = null, text = null;
  const place = (name) => {
    const made = document.createElement("div");
    made.className = name;
    row.append(made);
    return made;
  };
  for (const cell of [...cells.children]) {
    if (!cell.hasAttribute("cell-index")) continue;
    const figure = cell.querySelector(".celltag_figure");
    const heading = cell.querySelector("h1, h2");
    const another = figure && row?.classList.contains("with-figure");
    // What stands right above another figure of a section introduces it, and comes along.
    const introduction = another && !heading && text.lastElementChild?.querySelector(".jp-RenderedMarkdown") ? text.lastElementChild : null;
    if (!row || heading || another) {
      row = document.createElement("section");
      row.className = "dlhpc-row";
      cells.insertBefore(row, cell);
      text = place("dlhpc-text");
      if (introduction) text.append(introduction);
    }
    if (figure) {
      const figures = place("dlhpc-figures");
      figures.append(cell);
      row.classList.add("with-figure");
      text = place("dlhpc-text after");
    } else text.append(cell);
  }
  for (const after of document.querySelectorAll(".dlhpc-text.after:empty")) after.parentElement.firstElementChild.classList.add("alone");
  document.querySelectorAll(".dlhpc-row.with-figure").forEach(stays);
  for (const each of document.querySelectorAll(".dlhpc-row:not(.with-figure)")) {
    laid(each);
    new MutationObserver(() => laid(each)).observe(each, { childList: true, subtree: true });
  }
  // A card of questions about no figure is as wide as the page.
  for (const figures of document.querySelectorAll(".dlhpc-figures")) {
    new MutationObserver((_, arrival) => {
      if (!figures.querySelector(".dlhpc-question")) return;
      arrival.disconnect();
      figures.parentElement.classList.toggle("review", !figures.querySelector(".dlhpc-question:not(.check)"));
    }).observe(figures, { childList: true, subtree: true });
  }
}

// A column stays in view while the other one scrolls by. Figures that are taller than the window scroll by themselves
// meanwhile: a place in a column that stayed with its end in view was under the header when it was scrolled to.
function stays(row) {
  const [figures, ...texts] = [".dlhpc-figures", ".dlhpc-text:not(.after)", ".dlhpc-text.after"].map((each) => row.querySelector(`:scope > ${each}`)).filter(Boolean);
  const fit = () => {
    const room = innerHeight - 80, beside = texts.reduce((sum, { offsetHeight }) => sum + offsetHeight, 0);
    const least = figures.scrollHeight + (figures.classList.contains("scrolls") ? 0 : 100); // its scroll bar may wrap a line
    figures.classList.toggle("scrolls", figures.scrollHeight > room && beside > least);
    for (const text of texts) text.classList.toggle("tall", text.offsetHeight > room);
  };
  const sizes = new ResizeObserver(fit);
  for (const column of row.children) sizes.observe(column);
  addEventListener("resize", fit);
}

// What a section without a column of figures shows is in classes: with :has() in their place, each change of a widget
// would have the browser resolve the style of the whole page.
function laid(row) {
  const named = (place, name, shown) => place.classList.toggle(name, place.querySelector(shown) !== null);
  row.classList.toggle("prose", !row.querySelector("h1, .dlhpc-figure-view"));
  const asks = (cell) => cell.querySelector(".dlhpc-question:is(.check, .number)") && !cell.querySelector(".dlhpc-stage, .dlhpc-practice");
  row.classList.toggle("checks", [...row.firstElementChild.children].slice(1).every(asks));
  for (const cell of row.firstElementChild.children) {
    named(cell, "shows-figure", ".dlhpc-figure-view");
    named(cell, "headed", "h2");
    named(cell, "heading", "h2:only-child");
  }
  for (const text of row.querySelectorAll(".jp-RenderedMarkdown")) named(text, "headed", ":scope > h2");
}

function contents() {
  const list = document.querySelector(".dlhpc-top .contents .here");
  if (!list) return;
  for (const heading of cells.querySelectorAll("h2")) {
    const link = document.createElement("a");
    link.href = `#${heading.id}`;
    link.textContent = heading.textContent.replace(/¶$/, "");
    const item = document.createElement("li");
    item.append(link);
    list.append(item);
  }
  const fold = list.closest("details");
  list.addEventListener("click", () => { fold.open = false; });
  document.addEventListener("pointerdown", ({ target }) => { if (!fold.contains(target)) fold.open = false; });
  addEventListener("keydown", (event) => { if (event.key === "Escape") fold.open = false; });
}

// What a module only names, it folds.
function references() {
  for (const title of cells.querySelectorAll(".jp-RenderedMarkdown p > strong:only-child")) {
    const list = title.parentElement.nextElementSibling;
    if (title.textContent !== "Further reading" || !list) continue;
    const fold = document.createElement("details"), summary = document.createElement("summary");
    summary.append(title.cloneNode(true), ` (${list.children.length})`);
    title.parentElement.replaceWith(fold);
    fold.append(summary, list);
    addEventListener("beforeprint", () => { fold.open = true; });
  }
}

// The first time that a text uses a term of the glossary, its definition is under the pointer, or the focus.
function terms() {
  const known = JSON.parse(document.getElementById("dlhpc-terms")?.textContent ?? "{}");
  const left = new Map(Object.keys(known).map((term) => [term.toLowerCase(), term]));
  if (!left.size) return;
  const escaped = [...left.keys()].sort((a, b) => b.length - a.length).map((term) => term.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const any = new RegExp(`(?<![\\w-])(${escaped.join("|")})(?=s?(?![\\w-]))`, "i");
  const inText = ".jp-MarkdownCell :is(p, li)", elsewhere = "a, code, pre, h1, h2, h3, .dlhpc-term, .MathJax, mjx-container";
  const walk = document.createTreeWalker(cells, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node && left.size; node = walk.nextNode()) {
    const parent = node.parentElement;
    if (!parent.closest(inText) || parent.closest(elsewhere) || /[$\\]/.test(node.data)) continue;
    const found = any.exec(node.data), term = found && left.get(found[1].toLowerCase());
    if (!term) continue;
    left.delete(found[1].toLowerCase());
    const word = node.splitText(found.index), rest = word.splitText(found[1].length);
    const mark = document.createElement("span"), text = document.createElement("span");
    mark.className = "dlhpc-term";
    mark.tabIndex = 0;
    text.role = "tooltip";
    text.id = `dlhpc-term-${left.size}`;
    text.textContent = known[term];
    mark.setAttribute("aria-describedby", text.id);
    word.replaceWith(mark);
    mark.append(word, text);
    walk.currentNode = rest;
    walk.previousNode();
  }
  // A definition stays inside the window, and Escape takes it away.
  const shown = ({ target }) => {
    const mark = target.closest?.(".dlhpc-term");
    if (!mark) return;
    mark.classList.remove("away");
    const text = mark.querySelector("[role=tooltip]"), right = mark.getClientRects()[0].left + text.offsetWidth + 16;
    text.style.left = `${Math.min(0, document.documentElement.clientWidth - right)}px`;
  };
  cells.addEventListener("pointerover", shown);
  cells.addEventListener("focusin", shown);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") document.querySelectorAll(".dlhpc-term").forEach((mark) => mark.classList.add("away"));
  });
}

// A wide formula breaks between its equations and before its outer plus signs.
function split(formula) {
  const math = formula.querySelector("mjx-math");
  if (!math || math.classList.contains("split")) return;
  math.classList.add("split");
  let part = null, piece = null, depth = 0;
  const add = (into, name) => into.appendChild(Object.assign(document.createElement("span"), { className: name }));
  for (const node of [...math.childNodes]) {
    const sign = node.localName === "mjx-mo" ? node.firstElementChild?.className ?? "" : "";
    if (parseFloat(node.querySelector(":scope > mjx-mspace")?.style.width) >= 1) {
      node.remove();
      part = null;
      continue;
    }
    if (/c28\b/.test(node.innerHTML) && !/c29\b/.test(node.innerHTML)) depth += 1;
    if (!part) piece = add(part = add(math, "part"), "piece");
    else if (/c2B\b/.test(sign) && depth === 0) piece = add(part, "piece");
    if (/c29\b/.test(node.innerHTML) && !/c28\b/.test(node.innerHTML)) depth -= 1;
    piece.append(node);
  }
}

// A formula that is wider than its column still is set smaller, down to seven tenths.
function fit(formula) {
  if (formula.hasAttribute("display")) split(formula);
  const column = formula.parentElement.clientWidth;
  if (!column || formula.dataset.column === String(column)) return;
  formula.dataset.column = column;
  formula.dataset.size ??= formula.style.fontSize || "100%";
  formula.style.fontSize = formula.dataset.size;
  const needed = formula.hasAttribute("display") ? formula.scrollWidth : formula.offsetWidth;
  if (needed > column) formula.style.fontSize = `${Math.max(0.7, column / (needed + 2)) * parseFloat(formula.dataset.size)}%`;
  formula.classList.toggle("cut", formula.hasAttribute("display") && formula.scrollWidth > column + 1);
}

// What is still wider, or a text that is, scrolls, for a keyboard too.
function formulas() {
  const reachable = new MutationObserver(() => {
    cells.querySelectorAll("mjx-container").forEach(fit);
    cells.querySelectorAll('mjx-container[display="true"]:not([tabindex])').forEach((formula) => { formula.tabIndex = 0; });
  });
  const wide = new ResizeObserver((texts) => texts.forEach(({ target }) => {
    target.querySelectorAll("mjx-container").forEach(fit);
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }));
  cells.querySelectorAll(".jp-MarkdownCell").forEach((cell) => reachable.observe(cell, { childList: true, subtree: true }));
  cells.querySelectorAll(".jp-MarkdownOutput, .jp-MarkdownOutput table").forEach((text) => wide.observe(text));
}

addEventListener("dlhpc-progress", ({ detail: { done, skipped, of } }) => {
  const place = document.querySelector(".dlhpc-top .done");
  const words = of ? ` · ${done} of ${of} done${skipped ? `, ${skipped} skipped` : ""}` : "";
  if (place && place.textContent !== words) place.textContent = words;
});

// The kernel ends with the page; what the browser keeps of it could not answer any more.
addEventListener("pagehide", () => navigator.sendBeacon(`${baseUrl}voila/api/shutdown/${kernelId}`));
addEventListener("pageshow", (event) => event.persisted && location.reload());

// A kernel that died, or a server that was started again, is named; the page comes back with its answers.
// Where the browser's cookie is not that server's any more, reloading leads to the door, which asks for the token.
const lost = document.getElementById("dlhpc-lost");
lost.querySelector("button").addEventListener("click", () => location.reload());
async function alive() {
  try {
    const answer = await fetch(`${baseUrl.replace(/voila\/$/, "")}api/kernels/${kernelId}`);
    lost.hidden = answer.ok;
  } catch { lost.hidden = false; }
}
setInterval(() => document.visibilityState === "visible" && alive(), 10_000);
addEventListener("dlhpc-unheard", alive);

// The sentence on what comes stays until the first widget is there; a page without widgets needs none.
function arrives() {
  const words = document.getElementById("dlhpc-loading");
  const output = ".lm-Panel.jp-OutputArea-output", first = document.body.dataset.page ? ".dlhpc-question, .dl-panel" : `${output} > *`;
  const there = () => cells.querySelector(first) || !document.querySelector(`${output}, script[type="application/vnd.voila.cell-output+json"]`);
  const look = (_, seen) => { if (there() || !lost.hidden) { words.remove(); seen?.disconnect(); } };
  const seen = new MutationObserver(look);
  seen.observe(document.body, { childList: true, subtree: true });
  look(null, seen);
}

arrives();
rows();
cells.parentElement.append(...document.querySelectorAll(".dlhpc-next")); // Voila moves the cells to the end
contents();
references();
terms();
formulas();
if (document.body.dataset.page) sections(cells);
