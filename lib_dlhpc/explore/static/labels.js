// Sliders are drawn by a library that names nothing: give each handle its label and its reading.
function name(root) {
  for (const widget of root.querySelectorAll(".widget-inline-hbox")) {
    const label = widget.querySelector(".widget-label")?.textContent.trim();
    const reading = widget.querySelector(".widget-readout")?.textContent.trim();
    for (const handle of widget.querySelectorAll(".noUi-handle, select, input:not([type=checkbox])")) {
      if (label && handle.getAttribute("aria-label") !== label) handle.setAttribute("aria-label", label);
      if (reading && handle.matches(".noUi-handle") && handle.getAttribute("aria-valuetext") !== reading) {
        handle.setAttribute("aria-valuetext", reading);
      }
    }
  }
}
function render({ el }) {
  el.style.display = "none";
  const observer = new MutationObserver(() => name(document));
  observer.observe(document.body, { childList: true, subtree: true, characterData: true, attributes: true, attributeFilter: ["aria-valuetext"] });
  name(document);
  return () => observer.disconnect();
}
export default { render };
