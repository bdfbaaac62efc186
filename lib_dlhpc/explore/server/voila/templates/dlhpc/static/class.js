// In a class: one sentence and one click before anything is recorded; later, a way to take it back.

const base = document.currentScript.src.replace(/voila\/templates\/.*/, "");
const ASKED = "dlhpc-class-later";
const account = /(?:^|; )dlhpc-account=(\w+)/.exec(document.cookie)?.[1]; // a hub knows the learner's name

// On a machine that several use, answers kept in the browser are those of the account that was here before.
function another() {
  try {
    if (!account || localStorage.getItem("dlhpc-account") === account) return false;
    const kept = ["dlhpc-answers", "dlhpc-progress", "dlhpc-unheard"].filter((key) => localStorage.getItem(key) !== null);
    kept.forEach((key) => localStorage.removeItem(key));
    localStorage.setItem("dlhpc-account", account);
    return kept.length > 0;
  } catch { return false; }
}
if (another() && !document.getElementById("rendered_cells")) location.reload(); // the front page shows progress already

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

async function post(what, body = {}) {
  const answer = await fetch(`${base}class/api/${what}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).message ?? "The server does not answer.");
  return answer.json();
}

const STYLE = `.dlhpc-class { font: 15px/1.5 var(--dl-font); color: var(--dl-ink); background: var(--dl-tint); border-bottom: 1px solid var(--dl-line); padding: 10px 24px; display: flex; flex-wrap: wrap; gap: 8px 14px; align-items: center; }
.dlhpc-class p { margin: 0; max-width: 62ch; } .dlhpc-class.joined { background: none; font-size: 13px; padding: 4px 24px; color: var(--dl-soft); }
.dlhpc-class input, .dlhpc-class button { font: inherit; padding: 4px 12px; border-radius: 8px; border: 1px solid var(--dl-line); background: var(--dl-card); color: inherit; }
.dlhpc-class .first { background: var(--dl-accent); color: var(--dl-on-accent); border-color: var(--dl-accent); font-weight: 600; }`;

function place() {
  document.querySelector(".dlhpc-class")?.remove();
  const bar = element("section", { class: "dlhpc-class", "aria-label": "Your answers in this class" });
  const top = document.querySelector("body > header");
  if (top) top.after(bar); else document.body.prepend(bar);
  return bar;
}

function button(text, press, look = "") {
  const made = element("button", { type: "button", class: look }, text);
  made.addEventListener("click", press);
  return made;
}

function joined(name) {
  const bar = place();
  bar.classList.add("joined");
  const sure = button("Forget them", async () => {
    if (sure.textContent === "Forget them") { sure.textContent = "Delete all my answers here"; return; }
    try {
      await post("forget");
      ask("Your answers are deleted.");
    } catch (error) { said.textContent = error.message; }
  });
  const said = element("p", { role: "status" }, `Recording: on. Your answers are kept for this class${name ? `, as ${name}` : ", without a name"}.`);
  const field = nameField(name);
  const save = button("Save the name", async () => {
    try {
      joined((await post("join", { name: field.value })).name);
    } catch (error) { said.textContent = error.message; }
  });
  const change = button("Change", () => change.replaceWith(...(account ? [] : [field, save]), sure));
  bar.append(said, element("a", { href: `${base}report` }, "Your answers"), change);
}

// A small way back for who said no.
function off() {
  const bar = place();
  bar.classList.add("joined");
  bar.append(element("p", {}, "Recording: off."), button("Change", () => ask()));
}

const nameField = (name) => {
  const field = element("input", { "aria-label": "Name that your teacher knows (may stay empty)", placeholder: "name, or leave empty", maxlength: "100", autocomplete: "off" });
  field.value = name;
  return field;
};

function ask(before = "") {
  const bar = place();
  const said = element("p", { role: "status" }, `${before} May this server keep your answers, so that you can go on another day and your teacher sees them?`.trim());
  const name = nameField("");
  const keep = button("Keep my answers", async () => {
    try {
      const me = await post("join", { name: name.value });
      joined(me.name);
      dispatchEvent(new Event("dlhpc-joined"));
    } catch (error) { said.textContent = error.message; }
  }, "first");
  const later = button("Not now", () => {
    try { sessionStorage.setItem(ASKED, "1"); } catch { /* it asks again on the next page */ }
    off();
  });
  bar.append(said, ...(account ? [] : [name]), keep, later);
}

document.head.append(element("style", {}, STYLE));
fetch(`${base}class/api/me`).then((answer) => answer.json()).then((me) => {
  let later = false;
  try { later = sessionStorage.getItem(ASKED); } catch { /* as if not asked */ }
  if (me.joined) joined(me.name);
  else if (later) off();
  else ask();
}).catch(() => { /* not a class any more */ });
