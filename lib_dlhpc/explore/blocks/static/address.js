// The state of a page in the fragment of its address. Moves that follow each other quickly are one step back.
const REST = 1000; // ms between two steps of the history

function render({ model, el }) {
  el.style.display = "none";
  if (!document.body.classList.contains("dlhpc")) return undefined; // an editor has addresses of its own
  let last = -Infinity;
  const here = () => location.hash.slice(1);
  const arrive = () => {
    if (here() && document.getElementById(here())) return; // a link to a heading
    last = performance.now(); // what the kernel makes of it takes the place of this entry
    model.set("arrived", here());
    model.set("arrivals", model.get("arrivals") + 1);
    model.save_changes();
  };
  const show = () => {
    const state = model.get("state");
    if (state === here()) return;
    const quick = performance.now() - last < REST;
    const address = location.pathname + location.search + (state ? `#${state}` : "");
    history[quick ? "replaceState" : "pushState"](null, "", address);
    last = performance.now();
  };
  // Also where somebody edits the address by hand.
  addEventListener("popstate", arrive);
  model.on("change:state", show);
  if (here()) arrive();
  return () => {
    removeEventListener("popstate", arrive);
    model.off("change:state", show);
  };
}
export default { render };
