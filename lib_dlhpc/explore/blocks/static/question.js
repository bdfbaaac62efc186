// A question: its entry, its verdict, and the cover over what it is about until there is a final answer.
//
// Answers are kept in this browser, a page by its file's name, and given back to the kernel after a reload. The kernel
// of a learner who has joined a class finds them in the learner's record: it gets the token of the class's cookie.
// ?gates=off opens everything (a workshop), ?gates=on takes "Skip" away (a class).

const PAGE = document.body.dataset.page ?? location.pathname.split("/").pop().replace(/\.ipynb$/, "");
const NUMBER = /^\d+/.exec(PAGE)?.[0] ?? "";
const ANSWERS = "dlhpc-answers", PROGRESS = "dlhpc-progress", UNHEARD = "dlhpc-unheard";
const PATIENCE = 8000; // ms for a kernel to say that it has an answer
const GATES = new URLSearchParams(location.search).get("gates") ?? "light";

function stored(key) {
  try { return JSON.parse(localStorage.getItem(key)) ?? {}; } catch { return {}; }
}

function keep(key, change) {
  const all = stored(key);
  change(all);
  try { localStorage.setItem(key, JSON.stringify(all)); } catch { /* a browser may refuse; nothing depends on it */ }
}

const token = () => /(?:^|; )dlhpc-learner=([\w-]+)/.exec(document.cookie)?.[1] ?? "";

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Texts mark emphasis with asterisks, as Markdown does.
const marked = (text) => text.split(/\*(\S[^*]*)\*/).map((part, i) => i % 2 ? element("em", {}, part) : part);

// What is given is plain; the sentence that asks is in bold.
function asked(text) {
  const given = /^.*[.?!:] (?=[A-Z])/s.exec(text.slice(0, text.lastIndexOf("?")))?.[0] ?? "";
  return [...marked(given), element("b", {}, ...marked(text.slice(given.length)))];
}

// How many of this page's questions are answered, and skipped; problems to practice come on top.
function count() {
  const number = (state) => document.querySelectorAll(`.dlhpc-question${state}:not(.dlhpc-practice *)`).length;
  const skipped = number("[data-skipped]");
  const detail = { done: number("[data-final]") - skipped, skipped, of: number("") };
  if (NUMBER) keep(PROGRESS, (pages) => { pages[NUMBER] = detail; });
  dispatchEvent(new CustomEvent("dlhpc-progress", { detail }));
}

function bars(rows) {
  const most = Math.max(...rows.map(([, value]) => Math.abs(value)), Number.MIN_VALUE);
  return element("div", { class: "bars", "aria-hidden": "true" }, ...rows.map(([label, value, text], i) => {
    const bar = element("i");
    bar.style.width = `${100 * Math.abs(value) / most}%`;
    return element("div", { class: i ? "result" : "guess" }, element("span", {}, label), element("div", {}, bar), element("b", {}, text));
  }));
}

function render({ model, el }) {
  const get = (name) => model.get(name);
  const kind = get("kind");
  const card = element(kind === "step" ? "div" : "form", { class: `dlhpc-question ${kind}` });
  const words = element("p", { class: "asked" }, ...asked(get("question")));
  words.id = `q-${Math.random().toString(36).slice(2)}`;
  const entry = element("div", { class: "entry" });
  const verdict = element("div", { class: "dlhpc-feedback", role: "status", tabindex: "-1" });
  card.append(words, entry, verdict);
  el.append(card);

  // An answer waits in the browser until the kernel says that it has it; after a reload it is given again.
  let waiting = 0;
  const unheard = () => {
    verdict.replaceChildren(element("p", { class: "lost" },
      "⚠\ufe0e No answer from the Python process: not recorded yet. Your answer is kept in this browser and sent when the page is loaded again."));
    dispatchEvent(new Event("dlhpc-unheard"));
  };
  const give = (text, again = false) => {
    const serial = Date.now();
    if (again !== true) keep(UNHEARD, (pages) => { (pages[PAGE] ??= {})[get("name")] = text; });
    if (!again && (text || kind === "step" || get("gates"))) keep(ANSWERS, (pages) => { (pages[PAGE] ??= {})[get("name")] = text; });
    clearTimeout(waiting);
    if (again !== true) waiting = setTimeout(unheard, PATIENCE);
    model.set("given", [serial, text, again]);
    try { model.save_changes(); } catch { unheard(); }
  };
  const heard = () => {
    if (get("heard") !== get("given")[0]) return;
    clearTimeout(waiting);
    keep(UNHEARD, (pages) => { delete pages[PAGE]?.[get("name")]; });
    show();
  };
  const button = (text, press, look = "") => {
    const made = element("button", { type: "button", class: look }, text);
    made.addEventListener("click", press);
    entry.append(made);
    return made;
  };
  const named = { "aria-labelledby": words.id };
  let field = null;
  if (kind === "number") {
    field = entry.appendChild(element("input", { ...named, autocomplete: "off", placeholder: get("unit") ? `in ${get("unit")}` : "a number" }));
  } else if (kind === "choice") {
    field = entry.appendChild(element("select", named));
    field.append(element("option", { value: "" }, "choose"), ...get("options").map((text) => element("option", {}, text)));
  } else if (kind === "check") {
    for (const text of get("options")) button(text, () => give(text), "option");
  } else {
    field = entry.appendChild(element("input", { ...named, autocomplete: "off", placeholder: "what you see" }));
    button("Show the answer", () => give(field.value || "-"));
  }
  if (kind === "number" || kind === "choice") {
    const gated = get("gates");
    const check = () => {
      if (field.value.trim()) give(field.value.trim());
      else {
        verdict.replaceChildren(element("p", { class: "wrong" }, kind === "number" ? `✗ Type a number${get("unit") ? ` in ${get("unit")}` : ""}, or skip.` : "✗ Choose one, or skip."));
        field.focus();
      }
    };
    button(gated ? "Check my guess" : "Check", check, "first");
    if (GATES !== "on") button(gated ? "Skip" : "Show the answer", () => give(""), "quiet");
    card.addEventListener("submit", (event) => { event.preventDefault(); check(); });
  }

  const stage = () => el.closest(".dlhpc-card")?.querySelector(":scope > .dlhpc-stage");
  function show() {
    const said = get("verdict");
    const final = Boolean(said.final), skipped = final && said.right === null && said.answer === undefined;
    card.toggleAttribute("data-final", final);
    card.toggleAttribute("data-skipped", skipped);
    for (const option of card.querySelectorAll(".option")) {
      const chosen = option.textContent === said.answer;
      option.setAttribute("aria-pressed", chosen);
      option.classList.toggle("right", chosen && Boolean(said.right));
    }
    const mark = skipped && get("gates") ? "Skipped. " : said.right === true ? "✓ " : said.right === false ? "✗ " : "";
    verdict.replaceChildren(...(said.words ? [element("p", { class: said.right === false ? "wrong" : said.right ? "right" : "" }, ...marked(mark + said.words))] : []),
      ...(said.bars ? [bars(said.bars)] : []));
    if (final && kind !== "check") {
      // What had the focus is gone: the keyboard, and a reader, go on from the answer.
      if (entry.contains(document.activeElement)) verdict.focus({ preventScroll: true });
      for (const control of entry.children) control.disabled = true;
    }
    if (final && field && said.answer !== undefined) field.value = said.answer;
    const open = final || GATES === "off";
    const about = stage();
    if (about) {
      about.dataset.known = JSON.stringify(get("known") ?? []);
      dispatchEvent(new Event("dlhpc-known"));
      about.classList.toggle("covered", !open);
      about.inert = !open;
      const row = about.closest(".dlhpc-row");
      row?.classList.toggle("unguessed", row.querySelector(".dlhpc-stage.covered") !== null);
      if (open && !final && !get("uncovered")) {
        model.set("uncovered", true);
        model.save_changes();
      }
    }
    count();
  }

  const enter = () => {
    model.set("visitor", [Date.now(), token()]);
    model.save_changes();
  };
  const ask = () => { words.replaceChildren(...asked(get("question"))); };
  model.on("change:verdict", show);
  model.on("change:question", ask);
  model.on("change:heard", heard);
  addEventListener("dlhpc-joined", enter);
  // Parents may be put on the page after their children. Once they are there nothing is observed: what is said later
  // in this card is a change of the page, too, and would be replaced at once by the verdict.
  const ready = () => el.isConnected && (!get("gates") || stage());
  const placed = new MutationObserver(() => {
    if (!ready()) return;
    placed.disconnect();
    show();
  });
  if (!ready()) placed.observe(document.body, { childList: true, subtree: true });
  show();
  const before = stored(ANSWERS)[PAGE]?.[get("name")];
  enter();
  const late = stored(UNHEARD)[PAGE]?.[get("name")];
  if (late !== undefined) give(late, "late");
  else if ((before || before === "" && GATES !== "on") && !get("verdict").final) give(before, true);
  return () => {
    model.off("change:verdict", show);
    model.off("change:question", ask);
    model.off("change:heard", heard);
    clearTimeout(waiting);
    removeEventListener("dlhpc-joined", enter);
    placed.disconnect();
  };
}

export default { render };
