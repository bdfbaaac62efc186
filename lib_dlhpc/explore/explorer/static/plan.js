// The advice and its button. It fades at once when a control moves, and has no button until it is of what is shown.
function render({ model, el }) {
  el.classList.add("dl-say");
  const words = Object.assign(document.createElement("p"), { role: "status" });
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Apply" });
  el.append(words, button);
  const newest = [0, 0]; // moves of the panel, and of the bar, in this page
  const next = () => (model.get("asked")[0] ?? 0) + 1; // goes on where the model stands: a page may be drawn again

  function show() {
    const { words: text, changes = {}, answered = [0, 0], stale } = model.get("state");
    const fields = Object.keys(changes).join(", ");
    const late = Boolean(stale) || newest.some((move, i) => move > answered[i]);
    if (words.textContent !== text) words.textContent = text;
    el.classList.toggle("late", late);
    words.setAttribute("aria-busy", late);
    button.hidden = !fields;
    button.disabled = late;
    button.title = fields ? `Sets ${fields}` : "";
  }
  const moved = ({ detail: { bar, serial: move } }) => {
    newest[bar ? 1 : 0] = move;
    show();
  };
  button.addEventListener("click", () => {
    model.set("asked", [next(), model.get("state").changes]);
    model.save_changes();
    button.disabled = true;
    el.classList.add("late");
  });
  addEventListener("dlhpc-moved", moved);
  model.on("change:state", show);
  show();
  return () => {
    removeEventListener("dlhpc-moved", moved);
    model.off("change:state", show);
  };
}
export default { render };
