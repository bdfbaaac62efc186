// Chips of presets, undo and redo, pin, copy link, and files.
const make = (tag, properties = {}, ...children) => {
  const { class: name, ...rest } = properties;
  const node = Object.assign(document.createElement(tag), rest);
  if (name) node.className = name;
  node.append(...children);
  return node;
};

function render({ model, el }) {
  el.classList.add("dl-bar");
  const ask = (what, of = "") => {
    const serial = (model.get("asked")[0] ?? 0) + 1; // goes on where the model stands: a page may be drawn again
    model.set("asked", [serial, what, of]);
    model.save_changes();
    if (["preset", "undo", "redo"].includes(what)) dispatchEvent(new CustomEvent("dlhpc-moved", { detail: { bar: true, serial } }));
  };
  const button = (text, title, act) => {
    const node = make("button", { type: "button", class: "chip", textContent: text, title });
    node.addEventListener("click", act);
    return node;
  };
  const chips = make("span", { class: "chips" });
  chips.setAttribute("role", "group");
  chips.setAttribute("aria-label", "Runs to start from");
  const more = make("select", { class: "chip", title: "More published runs" });
  more.setAttribute("aria-label", "More published runs");
  more.addEventListener("change", () => more.value && ask("preset", more.value));
  const undo = button("↶", "Undo the last change (Ctrl+Z)", () => ask("undo"));
  const redo = button("↷", "Redo what was undone", () => ask("redo"));
  undo.setAttribute("aria-label", "Undo");
  redo.setAttribute("aria-label", "Redo");
  const pin = button("Pin as baseline A", "Compare everything with what is shown now", () => ask("pin"));
  const copy = button("Copy link", "A link to this picture", async () => {
    const link = model.get("link");
    if (!link) {
      said.textContent = "Too long for a link: save it as TOML.";
      return;
    }
    const address = `${location.origin}${location.pathname}${location.search}#${link}`;
    try {
      await navigator.clipboard.writeText(address);
      said.textContent = "Link copied.";
    } catch {
      prompt("Copy this link", address);
    }
  });
  const notebook = button("Notebook", "Open as notebook: saves a notebook with these settings", () => ask("notebook"));
  const said = make("span", { class: "said" });
  said.setAttribute("role", "status");
  const tools = make("span", { class: "tools" }, said, undo, redo, pin, copy, notebook);
  el.append(chips, tools);

  function show() {
    const { chips: all = [], more: others = [], chosen, changed, back, ahead, pinned } = model.get("state");
    if (!chips.childElementCount) {
      for (const [name, text, title] of all) {
        const chip = button(text, title, () => ask("preset", name));
        chip.dataset.name = name;
        chips.append(chip);
      }
      more.append(make("option", { value: "", textContent: "More …" }),
        ...others.map(([name, title]) => make("option", { value: name, textContent: title })));
      chips.append(more);
    }
    for (const chip of chips.querySelectorAll("button")) {
      const on = chip.dataset.name === chosen;
      chip.classList.toggle("on", on);
      chip.classList.toggle("changed", on && changed);
      chip.setAttribute("aria-pressed", on);
    }
    more.value = others.some(([name]) => name === chosen) ? chosen : "";
    more.classList.toggle("on", Boolean(more.value));
    undo.disabled = !back;
    redo.disabled = !ahead;
    pin.textContent = pinned ? "Unpin A" : "Pin as baseline A";
    pin.setAttribute("aria-pressed", Boolean(pinned));
    said.textContent = "";
  }
  function save() {
    const [, name, type, text] = model.get("file");
    if (!name) return;
    const link = make("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
  function key(event) {
    if (!(event.ctrlKey || event.metaKey) || event.altKey || event.key.toLowerCase() !== "z") return;
    if (event.target.closest?.("textarea, input[type=text], input[type=number], .jp-Editor, .cm-editor")) return;
    if (!el.isConnected || !document.body.classList.contains("dlhpc")) return;
    event.preventDefault();
    ask(event.shiftKey ? "redo" : "undo");
  }
  addEventListener("keydown", key);
  model.on("change:state", show);
  model.on("change:file", save);
  show();
  return () => {
    removeEventListener("keydown", key);
    model.off("change:state", show);
    model.off("change:file", save);
  };
}
export default { render };
