// A link to a figure as its controls stand. The address follows them once they rest, so a reload shows the same figure.
const REST = 400; // ms without a move before the address says what is shown

// On a phone the controls of a figure are one line that says where they stand, until it is tapped: the result needs the
// room (see page.css).
function fold(el) {
  const button = Object.assign(document.createElement("button"), { type: "button", className: "fold" }), name = document.createElement("b");
  const side = () => el.closest(".dlhpc-controls");
  const stand = (row) => {
    const name = row.querySelector(".widget-label")?.textContent ?? "", list = row.querySelector("select");
    const value = list ? list.selectedOptions[0]?.textContent : row.querySelector(".widget-readout")?.textContent ?? row.querySelector("input")?.value;
    return value ? `${name} ${value}` : "";
  };
  const tell = () => {
    const folded = side()?.classList.contains("folded") ?? true;
    const now = [...side()?.querySelectorAll(".widget-inline-hbox") ?? []].map(stand).filter(Boolean).join(" · ");
    button.setAttribute("aria-expanded", !folded);
    name.textContent = folded ? "▸ Controls" : "▾ Controls";
    button.replaceChildren(name, folded ? now : "");
  };
  button.addEventListener("click", () => { side().classList.toggle("folded"); tell(); });
  new ResizeObserver(() => { // once it is on the page, and where a guess has uncovered it
    if (!button.hasAttribute("aria-expanded")) side()?.classList.add("folded");
    tell();
  }).observe(el);
  return { button, tell };
}

function render({ model, el }) {
  el.classList.add("dlhpc-share");
  el.dataset.figure = model.get("figure");
  if (!document.body.classList.contains("dlhpc")) return undefined; // an editor has addresses of its own
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Copy link", title: "A link to this figure as it stands" });
  const said = document.createElement("span");
  said.setAttribute("role", "status");
  const folded = fold(el);
  el.append(folded.button, said, button);

  const own = (fragment) => fragment.split("&").includes(`figure=${encodeURIComponent(model.get("figure"))}`);
  const address = () => `${location.pathname}${location.search}#${model.get("link")}`;
  const arrive = () => {
    const fragment = location.hash.slice(1);
    if (!own(fragment) || fragment === model.get("link")) return;
    model.set("arrived", fragment);
    model.save_changes();
    el.closest("details")?.setAttribute("open", "");
    requestAnimationFrame(() => (el.closest(".dlhpc-figures, .dlhpc-card, .dlhpc-page") ?? el).scrollIntoView({ block: "start" }));
  };
  let resting = 0;
  const follow = () => {
    folded.tell();
    clearTimeout(resting);
    resting = setTimeout(() => history.replaceState(history.state, "", address()), REST);
  };
  const tell = () => { said.textContent = model.get("said"); };
  button.addEventListener("click", async () => {
    const link = location.origin + address();
    history.replaceState(history.state, "", address());
    try {
      await navigator.clipboard.writeText(link);
      said.textContent = "Link copied.";
    } catch {
      prompt("Copy this link", link);
    }
  });
  model.on("change:link", follow);
  model.on("change:said", tell);
  addEventListener("hashchange", arrive);
  arrive();
  return () => {
    clearTimeout(resting);
    model.off("change:link", follow);
    model.off("change:said", tell);
    removeEventListener("hashchange", arrive);
  };
}
export default { render };
