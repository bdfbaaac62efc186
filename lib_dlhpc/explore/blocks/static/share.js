// A link to a figure as its controls stand. The address follows them once they rest, so a reload shows the same figure.
const REST = 400; // ms without a move before the address says what is shown

function render({ model, el }) {
  el.classList.add("dlhpc-share");
  el.dataset.figure = model.get("figure");
  if (!document.body.classList.contains("dlhpc")) return undefined; // an editor has addresses of its own
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Copy link", title: "A link to this figure as it stands" });
  const said = document.createElement("span");
  said.setAttribute("role", "status");
  el.append(said, button);

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
