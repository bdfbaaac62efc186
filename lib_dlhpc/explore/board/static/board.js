// The board: asks for what is new every two seconds, and draws it. What is right stays covered until "Reveal".

const AGAIN = 2000, AWAY = 5 * 60_000; // ms
const at = (id) => document.getElementById(id);
const revealed = new Set();
let shown = null, chosen = "", version = "";

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const words = (name) => name.replaceAll("_", " ").replace(/^(\d+ )(\w)/, (_, number, first) => number + first.toUpperCase());
const key = (question) => `${question.module}/${question.question}`;
const titles = JSON.parse(at("titles").textContent); // of modules, by the names in records
const named = (name) => titles[name] ?? words(name);
const title = ({ asked, kind, module, question }) => asked || (kind === "lab" ? `Lab ${words(module)}: ${words(question)}` : words(question));
const people = (count) => `${count} ${count === 1 ? "learner" : "learners"}`;

function bar({ label, count, right }, most, open) {
  const fill = element("i");
  fill.style.width = `${100 * count / Math.max(most, 1)}%`;
  const mark = !open || right === null ? "" : right ? "✓ " : "";
  return element("li", { class: !open || right === null ? "" : right ? "right" : "off" },
    element("span", {}, mark + label), element("div", {}, fill), element("b", {}, String(count)));
}

function finding(question, open) {
  const { kind, learners, right, result } = question;
  if (kind === "step") return `${people(learners)} tried it and opened the answer.`;
  if (kind === "hint") return `${people(learners)} opened hints.`;
  if (kind === "lab") return `${right} of ${people(learners)} passed.`;
  if (!open) return `${people(learners)} answered.`;
  const is = result ? `It is ${result}. ` : "";
  return `${is}${right} of ${people(learners)} ${kind === "guess" ? "came within 20%" : "got it right"}.`;
}

function unanswered(module, question) { // what a slide asks is on the board before the first answer
  at("which").textContent = named(module);
  at("asked").textContent = words(question);
  at("finding").textContent = "Nobody has answered yet.";
  at("bars").replaceChildren();
  at("reveal").hidden = at("after").hidden = true;
}

function detail() {
  const question = shown.questions.find((each) => key(each) === chosen);
  if (!question) return chosen && unanswered(...chosen.split("/"));
  const covers = ["guess", "choice", "check"].includes(question.kind);
  const open = !covers || revealed.has(chosen);
  at("which").textContent = named(question.module);
  at("asked").textContent = title(question);
  at("finding").textContent = finding(question, open);
  const bins = open ? question.revealed : question.bins;
  const most = Math.max(...bins.map(({ count }) => count));
  at("bars").replaceChildren(...bins.map((each) => bar(each, most, open)));
  at("reveal").hidden = !covers;
  at("reveal").textContent = open ? "Cover" : "Reveal";
  const list = question.kind === "step" ? question.words.map((answer) => ({ answer })) : question.wrong;
  const names = at("named").checked || question.kind !== "step";
  at("after").hidden = !open || !list.length || !names;
  at("wrong-title").textContent = question.kind === "step" ? "In their words" : question.kind === "lab" ? "What does not hold yet" : "Common wrong answers";
  at("wrong").replaceChildren(...list.map(({ answer, count }) => element("li", {},
    ...(count ? [element("b", {}, `${count}×`)] : []), element("span", {}, answer))));
}

function places() {
  const now = Date.now(), modules = new Map();
  for (const learner of shown.learners) modules.set(learner.module, [...(modules.get(learner.module) ?? []), learner]);
  const rows = [...modules].sort((a, b) => b[1].length - a[1].length).map(([module, there]) => {
    const dots = there.map((each) => {
      const idle = now - Date.parse(each.time) > AWAY;
      return element("i", { class: idle ? "idle" : "", title: `${each.label}${idle ? ", quiet for five minutes" : ""}` });
    });
    return element("li", {}, element("span", {}, named(module)), element("div", { class: "dots", "aria-hidden": "true" }, ...dots),
      element("b", {}, String(there.length)));
  });
  at("places").replaceChildren(...rows);
  at("learners").replaceChildren(...shown.learners.map((each) => {
    const minutes = Math.max(0, Math.round((now - Date.parse(each.time)) / 60_000));
    const cells = [`${named(each.module)}${each.question ? `, ${words(each.question)}` : ""}`, minutes ? `${minutes} min ago` : "now", each.answers, each.done];
    return element("tr", {}, element("th", { scope: "row" }, each.label), ...cells.map((cell) => element("td", {}, String(cell))));
  }));
}

function all() {
  at("questions").replaceChildren(...shown.questions.map((question) => {
    const most = Math.max(...question.bins.map(({ count }) => count), 1);
    const small = question.bins.map(({ count }) => {
      const fill = element("i");
      fill.style.height = `${100 * count / most}%`;
      return fill;
    });
    const button = element("button", { type: "button", "aria-pressed": String(key(question) === chosen) },
      element("small", {}, named(question.module)), element("b", { class: "title", title: title(question) }, title(question)),
      element("small", {}, people(question.learners)), element("div", { class: "small", "aria-hidden": "true" }, ...small));
    button.addEventListener("click", () => {
      at("follow").checked = false;
      chosen = key(question);
      draw();
    });
    return element("li", {}, button);
  }));
}

function draw() {
  if (!shown) return;
  const last = [...shown.questions].sort((a, b) => b.time.localeCompare(a.time))[0];
  if (last && (at("follow").checked || !chosen)) chosen = key(last);
  at("state").textContent = `${people(shown.learners.length)}, ${shown.answers} answers`;
  detail();
  places();
  all();
}

async function ask() {
  try {
    const answer = await fetch(`api/board?since=${version}&named=${at("named").checked ? 1 : 0}`);
    if (answer.status === 200) {
      shown = await answer.json();
      version = shown.version;
      draw();
    } else if (answer.status === 204) places();
    else if (answer.status !== 403) at("state").textContent = `The class server failed (${answer.status}).`;
    else {
      clearInterval(asking);
      at("state").textContent = "This browser no longer has the board's key: open the address that dlhpc class serve printed.";
    }
  } catch { at("state").textContent = "The class server does not answer. What learners answer is kept, and comes later."; }
}

at("reveal").addEventListener("click", () => {
  if (!revealed.delete(chosen)) revealed.add(chosen);
  at("follow").checked = false;
  detail();
});
at("named").addEventListener("change", () => { version = ""; ask(); });
at("follow").addEventListener("change", draw);
function choose() { // what the address names, as slides do
  if (!location.hash) return;
  at("follow").checked = false;
  chosen = decodeURIComponent(location.hash.slice(1));
  draw();
}
addEventListener("hashchange", choose);
choose();
document.querySelector(".theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("dlhpc-theme", root.dataset.theme); } catch { /* it lasts as long as the page */ }
});
const asking = setInterval(ask, AGAIN);
ask();
