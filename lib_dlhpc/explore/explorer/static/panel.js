// The explorer's controls: made once, then only what changed. At most one move is in flight; the newest waits.
const make = (tag, properties = {}, ...children) => {
  const { class: name, ...rest } = properties;
  const node = Object.assign(document.createElement(tag), rest);
  if (name) node.className = name;
  node.append(...children);
  return node;
};
const COLUMN = matchMedia("(max-width: 900px)"); // the controls are below the charts: only the first group is open
let many = 0;

function slider(send) {
  const input = make("input", { type: "range", min: 0, step: 1 });
  const output = make("output");
  let options = [];
  const tell = () => {
    output.textContent = options[input.value] ?? "";
    input.setAttribute("aria-valuetext", output.textContent);
  };
  input.addEventListener("input", () => { tell(); send(options[input.value]); });
  return { parts: [input, output], named: input, show(row) {
    options = row.options;
    input.max = options.length - 1;
    input.value = row.at;
    input.disabled = options.length < 2;
    tell();
  } };
}

const LONG = 20; // characters of a choice that a list beside its label shows

function list(send) {
  const select = make("select");
  let options = [];
  select.addEventListener("change", () => send(options[select.selectedIndex]));
  return { parts: [select], named: select, show(row) {
    if (row.options.join("\n") !== options.join("\n")) {
      options = row.options;
      select.replaceChildren(...options.map((text) => make("option", { textContent: text })));
    }
    select.selectedIndex = row.at;
    select.parentElement.classList.toggle("long", (options[row.at] ?? "").length > LONG);
  } };
}

function parts(send) {
  const box = make("span", { class: "parts" });
  const name = `dl-parts-${++many}`;
  box.setAttribute("role", "radiogroup");
  let drawn = "";
  return { parts: [box], named: box, show(row) {
    const key = JSON.stringify([row.options, row.illegal]);
    if (key !== drawn) {
      drawn = key;
      box.replaceChildren(...row.options.map((text, at) => {
        const input = make("input", { type: "radio", name });
        const why = row.illegal?.[at] ?? "";
        input.disabled = Boolean(why) && at !== row.at;
        input.addEventListener("change", () => send(text));
        return make("label", { title: why }, input, make("span", { textContent: text }));
      }));
    }
    box.querySelectorAll("input")[row.at].checked = true;
  } };
}

function tick(send) {
  const input = make("input", { type: "checkbox" });
  const box = make("span", { class: "tick" }, input);
  input.addEventListener("change", () => send(input.checked ? "on" : "off"));
  return { parts: [box], named: input, show(row) { input.checked = row.at === 1; } };
}

const KINDS = { steps: slider, list, parts, tick };

function render({ model, el }) {
  el.classList.add("dl-panel");
  const stored = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
  let waiting = null; // the newest move that is not sent yet
  let sent = 0;
  const serial = () => model.get("moved")[0] ?? 0; // goes on where the model stands: a page may be drawn again
  const flush = () => {
    if (!waiting || sent) return;
    sent = serial() + 1;
    model.set("moved", [sent, ...waiting]);
    model.save_changes();
    waiting = null;
  };
  const tell = () => dispatchEvent(new CustomEvent("dlhpc-moved", { detail: { serial: serial() + (waiting ? 1 : 0) } }));
  const move = (field, label) => { rows.get(field).drawn = ""; waiting = [field, label]; flush(); tell(); };

  const simple = make("input", { type: "checkbox", role: "switch" });
  simple.checked = stored("dlhpc-simple") === "1";
  const beginner = () => el.classList.toggle("simple", simple.checked);
  simple.addEventListener("change", () => {
    try { localStorage.setItem("dlhpc-simple", simple.checked ? "1" : "0"); } catch { /* private window */ }
    beginner();
  });
  beginner();
  el.append(make("label", { class: "mode" }, simple, "Basic settings only"));

  const groups = new Map();
  const rows = new Map();
  function group(state) {
    const summary = make("span");
    const fold = make("details", { class: "group", open: state.open && !(COLUMN.matches && groups.size) });
    const apart = make("details", { class: "apart" }, make("summary"));
    const body = make("div");
    fold.append(make("summary", {}, make("b", { textContent: state.name }), summary), body, apart);
    el.append(fold);
    const found = { fold, body, apart, summary, why: new Map() };
    groups.set(state.name, found);
    return found;
  }
  function row(state) {
    const kind = KINDS[state.kind]((label) => move(state.field, label));
    const id = `dl-control-${++many}`;
    kind.named.id = id;
    const label = make("label", { textContent: state.label, title: state.help, id: `${id}-label` });
    if (state.kind === "parts") kind.named.setAttribute("aria-labelledby", label.id);
    else label.htmlFor = id;
    const back = make("button", { type: "button", class: "back", textContent: "↺" });
    const line = make("div", { class: `row k-${state.kind}` }, label, ...kind.parts, back);
    line.dataset.field = state.field;
    back.addEventListener("click", () => move(state.field, line.dataset.start));
    groups.get(state.group).body.append(line);
    return { line, kind, back, drawn: "" };
  }
  function reason(home, state) {
    let item = home.why.get(state.field);
    if (!state.off) {
      item?.remove();
      home.why.delete(state.field);
      return;
    }
    if (!item) home.apart.append(item = make("p"));
    home.why.set(state.field, item);
    item.textContent = `${state.label}: ${state.off}`;
  }
  function show() {
    const { groups: all = [], controls = [], answered } = model.get("state");
    if (answered === sent) sent = 0;
    for (const state of all) {
      const home = groups.get(state.name) ?? group(state);
      if (home.summary.textContent !== state.summary) home.summary.textContent = state.summary;
    }
    for (const state of controls) {
      if (!rows.has(state.field)) rows.set(state.field, row(state));
      const found = rows.get(state.field);
      const text = JSON.stringify(state);
      // A control under the hand shows the hand's newest place until the kernel has answered that.
      if (found.drawn === text || waiting?.[0] === state.field) continue;
      found.drawn = text;
      found.line.hidden = Boolean(state.off);
      found.line.classList.toggle("beyond", !state.simple);
      found.line.classList.toggle("changed", Boolean(state.changed));
      reason(groups.get(state.group), state);
      if (state.off) continue;
      found.back.hidden = !state.changed || !state.options.includes(state.start);
      found.line.dataset.start = state.start ?? "";
      found.back.title = `Back to ${state.start}`;
      found.back.setAttribute("aria-label", `${state.label}: back to ${state.start}`);
      found.kind.show(state);
    }
    for (const home of groups.values()) {
      const count = home.why.size;
      home.apart.hidden = !count;
      home.apart.firstChild.textContent = `${count} ${count === 1 ? "setting does" : "settings do"} not apply here`;
      home.fold.classList.toggle("beyond", !home.body.querySelector(".row:not(.beyond)"));
    }
    flush();
  }
  model.on("change:state", show);
  show();
  return () => model.off("change:state", show);
}
export default { render };
