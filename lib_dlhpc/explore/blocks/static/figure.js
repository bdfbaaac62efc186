// A chart that stays: the drawing goes over once, afterwards only columns of numbers.
//
// One Vega view per place on the page.  A change marks the view stale, the next animation frame brings
// it up to date.  At most one run is in flight, and the last run always shows the newest state.

const RUNTIME_EVENT = "dlhpc-vega"; // sent by the Vega bundle once it is there
const PATIENCE = 30_000; // ms to wait for it
const REST = 200; // ms without a change before charts out of sight follow

// Colours of text and rules follow the page; nothing is painted behind the chart.
const THEME = {
  background: null,
  aria: false, // the figure as a whole has a label; one for each mark costs 2 ms a redraw
  view: { stroke: null },
  title: { color: "currentColor", anchor: "start" },
  axis: {
    labelColor: "currentColor", titleColor: "currentColor", labelFontSize: 12, titleFontSize: 12,
    titleFontWeight: "normal", domainColor: "currentColor", domainOpacity: 0.4,
    tickColor: "currentColor", tickOpacity: 0.4, gridColor: "currentColor", gridOpacity: 0.12,
  },
  legend: { labelColor: "currentColor", titleColor: "currentColor", labelFontSize: 12 },
  text: { color: "currentColor", fontSize: 12 },
  rule: { color: "currentColor" },
};

export function vega() {
  if (globalThis.dlhpcVega) return Promise.resolve(globalThis.dlhpcVega);
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error("the drawing library did not arrive")), PATIENCE);
    addEventListener(RUNTIME_EVENT, () => {
      clearTimeout(late);
      resolve(globalThis.dlhpcVega);
    }, { once: true });
  });
}

function rows(columns) {
  const names = Object.keys(columns);
  const count = names.length ? columns[names[0]].length : 0;
  return Array.from({ length: count }, (_, i) =>
    Object.fromEntries(names.map((name) => [name, columns[name][i]])));
}

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function shown(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  return Number.isInteger(value) && Math.abs(value) < 1e6 ? String(value)
    : value.toLocaleString("en", { maximumSignificantDigits: 4, notation:
        Math.abs(value) >= 1e6 || (value !== 0 && Math.abs(value) < 1e-3) ? "scientific" : "standard" });
}

// The same numbers as a table, for those who cannot or do not want to read them off the chart.
function table(data, headings) {
  return Object.entries(headings ?? {}).filter(([name]) => data[name]).map(([name, columns]) => {
    const head = element("tr", {}, ...Object.values(columns).map((text) => element("th", { scope: "col" }, text)));
    const body = rows(data[name]).map((row) =>
      element("tr", {}, ...Object.keys(columns).map((key) => element("td", {}, shown(row[key])))));
    return element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
  });
}

// Hatching for drawings: `fill: "url(#dlhpc-hatch)"`.
function patterns() {
  const holder = element("div", { class: "dlhpc-patterns", "aria-hidden": "true" });
  holder.innerHTML = `<svg width="0" height="0"><defs><pattern id="dlhpc-hatch" width="6" height="6"
    patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0V6" stroke="currentColor"
    stroke-width="2.4"/></pattern></defs></svg>`;
  return holder;
}

function tooltip(bubble) {
  return (_, event, __, value) => {
    bubble.hidden = value === null || value === undefined || value === "";
    if (bubble.hidden) return;
    const lines = typeof value === "object" ? Object.entries(value) : [["", value]];
    bubble.replaceChildren(...lines.map(([key, text]) =>
      element("div", {}, element("span", {}, key), " ", element("b", {}, String(text)))));
    const left = Math.min(event.clientX + 14, innerWidth - bubble.offsetWidth - 8);
    bubble.style.left = `${Math.max(left, 8)}px`;
    bubble.style.top = `${event.clientY + 14}px`;
  };
}

function render({ model, el }) {
  const { title: heading, ...spec } = structuredClone(model.get("spec"));
  const title = typeof heading === "object" ? heading?.text : heading;
  const headings = spec.usermeta?.table;
  const renderer = spec.usermeta?.renderer ?? "svg";

  // Vega puts a role of its own on the element it draws in: that is the inner one.
  const ground = element("div", { "aria-hidden": "true" });
  const plot = element("div", { class: "dlhpc-plot", role: "img", tabindex: "0" }, ground);
  plot.style.minHeight = typeof spec.height === "number" ? `${spec.height}px` : "";
  const words = element("p", { class: "dlhpc-words" });
  const numbers = element("div", { class: "dlhpc-numbers" });
  const more = element("details", {}, element("summary", {}, "Show the numbers"), numbers);
  const bubble = element("div", { class: "dlhpc-bubble", "aria-hidden": "true" });
  bubble.hidden = true;
  const figure = element("figure", { class: "dlhpc-figure" });
  if (title) figure.append(element("figcaption", {}, title));
  figure.append(plot, words, ...(headings ? [more] : []), bubble, patterns());
  el.classList.add("dlhpc-figure-view");
  el.append(figure);

  let view = null;
  let width = 0;
  let drawn = {}; // dataset name -> its columns as last given to Vega, as text
  let frame = 0;
  let running = false;
  let later = 0;
  let gone = false;
  let visible = true;

  function describe() {
    const summary = model.get("summary");
    words.textContent = summary;
    words.hidden = !summary;
    plot.setAttribute("aria-label", [title, summary].filter(Boolean).join(". ") || "chart");
    if (more.open) numbers.replaceChildren(...table(model.get("data"), headings));
  }

  function inner() { // what is left for the plotting area
    const pad = spec.padding ?? 5;
    const sides = typeof pad === "number" ? 2 * pad : (pad.left ?? 0) + (pad.right ?? 0);
    return Math.max(80, Math.floor(width - (spec.autosize === "none" ? sides : 0)));
  }

  async function start() {
    const { View, parse, compile } = await vega();
    if (gone) return;
    const { config, ...drawing } = spec;
    const { spec: program } = compile(
      { ...drawing, width: inner() },
      { config: merged({ font: getComputedStyle(figure).fontFamily, ...THEME }, config ?? {}) });
    view = new View(parse(program), { renderer, tooltip: tooltip(bubble) });
    view.initialize(ground);
  }

  function merged(base, over) {
    const both = { ...base };
    for (const [key, value] of Object.entries(over)) {
      both[key] = value && typeof value === "object" && !Array.isArray(value)
        ? merged(base[key] ?? {}, value) : value;
    }
    return both;
  }

  function feed() {
    const { changeset, truthy } = globalThis.dlhpcVega;
    for (const [name, columns] of Object.entries(model.get("data"))) {
      const text = JSON.stringify(columns);
      if (drawn[name] === text) continue;
      drawn[name] = text;
      view.change(name, changeset().remove(truthy).insert(rows(columns)));
    }
    for (const [name, value] of Object.entries(model.get("signals"))) view.signal(name, value);
    if (view.width() !== inner()) view.width(inner());
  }

  async function run() {
    frame = 0;
    if (running || gone || !width) return;
    running = true;
    try {
      if (!view) await start();
      if (gone) return;
      const state = model.get("serial");
      feed();
      await view.runAsync();
      plot.dataset.serial = state;
    } catch (error) {
      if (!gone) fail(error);
    } finally {
      running = false;
    }
    if (stale()) wake();
  }

  function stale() {
    return view && !gone && (plot.dataset.serial !== String(model.get("serial")) || view.width() !== inner());
  }

  // What nobody sees can wait until the controls rest; what is seen comes with the next frame.
  function wake() {
    clearTimeout(later);
    if (running || gone) return;
    if (visible) frame ||= requestAnimationFrame(run);
    else later = setTimeout(run, REST);
  }

  function fail(error) {
    gone = true;
    console.error(error);
    plot.replaceChildren(element("p", { role: "alert" }, `This chart could not be drawn: ${error.message}`));
  }

  const sizes = new ResizeObserver(([entry]) => {
    width = entry.contentRect.width;
    wake();
  });
  sizes.observe(plot);
  const sight = new IntersectionObserver((entries) => {
    visible = entries.at(-1).isIntersecting;
    if (visible) wake();
  }, { rootMargin: "200px" });
  sight.observe(plot);
  model.on("change:serial", () => {
    describe();
    wake();
  });
  more.addEventListener("toggle", describe);
  describe();

  return () => {
    gone = true;
    cancelAnimationFrame(frame);
    clearTimeout(later);
    sizes.disconnect();
    sight.disconnect();
    view?.finalize();
    figure.remove();
  };
}

export default { render };
