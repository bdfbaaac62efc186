// Sliders are drawn by a library that names nothing: give each handle its label and its reading.
function name(controls) {
  for (const widget of controls.querySelectorAll(".widget-inline-hbox")) {
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
  let frame = 0;
  let observer = null;
  // Only the controls are watched: the charts change thousands of nodes a second.
  const watch = () => {
    const controls = el.closest(".dlhpc-controls, .dlhpc-play-controls");
    if (!controls) {
      frame = requestAnimationFrame(watch);
      return;
    }
    observer = new MutationObserver(() => name(controls));
    observer.observe(controls, { childList: true, subtree: true, characterData: true, attributes: true, attributeFilter: ["aria-valuetext"] });
    name(controls);
  };
  watch();
  return () => {
    cancelAnimationFrame(frame);
    observer?.disconnect();
  };
}
export default { render };
