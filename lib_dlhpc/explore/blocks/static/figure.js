// A chart that stays: the drawing goes over once, afterwards only columns of numbers.
//
// One Vega view per place. A change marks it stale, the next animation frame brings it up to date; one run is in
// flight at most, and the last shows the newest state.

const RUNTIME_EVENT = "dlhpc-vega"; // sent by the Vega bundle once it is there
const LINE = 20; // px: words that take more height than this are turned
const PATIENCE = 30_000; // ms to wait for it
const REST = 200; // ms without a change before charts out of sight follow
const NARROW = 480; // px: below, names of lines stand in the legend
const MARGIN = 24; // px: what is left of it, for half of the last number of the axis
const NAMES = 90, STEP = 38; // px: below NARROW, wider names of rows are above their bars, each this high

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
  return (columns[names[0]] ?? []).map((_, i) => Object.fromEntries(names.map((name) => [name, columns[name][i]])));
}

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// A number of a table: 1,024, 26,214, 49.42 T; a small one as 202.8 µ below a unit, else as 2.028e-4.
function shown(value, heading) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value), thousands = Math.floor(Math.log10(size) / 3), prefix = "pnµm  MGTPE"[thousands + 4];
  const plain = (number, more) => number.toLocaleString("en", more);
  if (Number.isInteger(value) && size < 1e6) return plain(value);
  if (size >= 1e-3 && size < 1e6) return plain(value, { maximumSignificantDigits: 4 });
  return prefix && (size > 1 || /(\)|\/s)$/.test(heading))
    ? `${plain(value / 1000 ** thousands, { maximumSignificantDigits: 4 })} ${prefix}` : value.toExponential(3);
}

// A share, whose heading says so, in percent, as its axis has it.
const isShare = (heading) => heading.endsWith(" (%)");
const percent = (share) => typeof share === "number" ? Number((100 * share).toPrecision(12)) : share;

// The same numbers as a table.
function table(data, headings) {
  const side = (value) => (typeof value === "number" ? { class: "number" } : {});
  return Object.entries(headings ?? {}).filter(([name]) => data[name]).map(([name, columns]) => {
    const listed = Object.entries(columns);
    const head = element("tr", {}, ...listed.map(([key, text]) => element("th", { scope: "col", ...side(data[name][key]?.[0]) }, text)));
    const body = rows(data[name]).map((row) =>
      element("tr", {}, ...listed.map(([key, text]) => element("td", side(row[key]), isShare(text) ? shown(percent(row[key]), "") : shown(row[key], text)))));
    return element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
  });
}

const SYMBOLS = { // paths around (11, 7)
  circle: "M7 7a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", square: "M7 3h8v8h-8z", diamond: "M11 2l5 5l-5 5l-5 -5z",
  cross: "M9.5 3h3v2.5h2.5v3h-2.5v2.5h-3v-2.5h-2.5v-3h2.5z", "triangle-up": "M11 2l5 9h-10z", "triangle-down": "M11 12l5 -9h-10z",
};

// A legend: [{ label, color, dash, shape, opacity, hatched }], wrapped as the page is wide.
function legend(entries) {
  const list = element("ul", { class: "dlhpc-key" });
  list.innerHTML = entries.map(({ color = "currentColor", dash, shape, opacity = 1, hatched }) => {
    if (color === "none") return "<li><span></span></li>"; // a note
    const box = `d="M3 1h12v12h-12z"`, mark = SYMBOLS[shape];
    const line = dash && `<path d="M0 7h22" fill="none" stroke="${color}" stroke-width="2" stroke-dasharray="${dash}"/>`;
    const sign = mark && `<path d="${mark}" fill="${color}" fill-opacity="${opacity}" stroke="${opacity < 1 ? color : "none"}"/>`;
    const square = `<path ${box} fill="${color}" fill-opacity="${opacity}"/>${hatched ? `<path ${box} fill="url(#dlhpc-hatch${opacity < 1 ? "" : "-on"})" fill-opacity="0.6"/>` : ""}`;
    return `<li><svg width="${line ? 22 : 14}" height="14" viewBox="${line ? 0 : sign ? 4 : 2} 0 ${line ? 22 : 14} 14" aria-hidden="true">${line || sign ? (line ?? "") + (sign ?? "") : square}</svg><span></span></li>`;
  }).join("");
  list.querySelectorAll("span").forEach((word, i) => { word.textContent = entries[i].label; });
  return list;
}

// The scale of a drawing's bars, if their names on the left take much room.
function rowsOf({ axes = [], scales = [], marks = [], padding }) {
  if (!(padding?.left > NAMES && marks.some(({ type }) => type === "rect"))) return undefined;
  const named = axes.find((axis) => axis.orient === "left" && axis.domain === false && axis.labels !== false);
  return scales.find(({ name, type }) => name === named?.scale && type === "band");
}

function namedAbove(spec, scale) {
  const axes = spec.axes.map((axis) => axis.scale !== scale.name || axis.orient !== "left" ? axis
    : { ...axis, zindex: 1, encode: { labels: { update: { stroke: { value: "var(--dl-card, Canvas)" } } } }, labelAlign: "left", labelBaseline: "bottom", labelPadding: 0, labelLimit: 320, labelOffset: { signal: `-bandwidth("${scale.name}") / 2 - 2` } });
  const spread = { ...scale, paddingInner: 0.45, paddingOuter: 0.225, align: 1 };
  return { ...spec, axes, scales: spec.scales.map((each) => each === scale ? spread : each) };
}

// How many rows the data have now.
function countOf({ domain }, spec, data) {
  if (Array.isArray(domain)) return domain.length;
  const source = (name) => {
    const found = spec.data.find((each) => each.name === name)?.source;
    return found ? source(found) : name;
  };
  return new Set((domain.fields ?? [domain]).flatMap((part) => data[source(part.data)]?.[part.field] ?? [])).size;
}

// Move words that overlap apart, each by half of what is missing; the numbers of an axis stay.
function spread(places) {
  for (let pass = 0; pass < 4; pass += 1) {
    for (const one of places) {
      for (const other of places) {
        const [up, down] = [one.bottom + one.y, other.top + other.y];
        const above = one.top + one.y < down || (one.top + one.y === down && one.left < other.left);
        const beside = Math.min(one.right, other.right) - Math.max(one.left, other.left) < 3;
        if (one === other || !above || beside || up - down < 2 || one.text.textContent === other.text.textContent) continue;
        const part = one.fixed ? 0 : other.fixed ? 1 : 0.5;
        if (!other.fixed) other.y += (up - down) * (1 - part);
        one.y -= (up - down) * part;
      }
    }
  }
}

// Hatching: url(#dlhpc-hatch) over what is pale, -on over a color, dark on a dark page, too.
function patterns() {
  const holder = element("div", { class: "dlhpc-patterns", "aria-hidden": "true" });
  const pattern = ([over, ink]) => `<pattern id="dlhpc-hatch${over}" width="6" height="6" patternUnits="userSpaceOnUse"
    patternTransform="rotate(45)"><path d="M0 0V6" stroke="${ink}" stroke-width="2.4"/></pattern>`;
  holder.innerHTML = `<svg width="0" height="0"><defs>${[["", "currentColor"], ["-on", "#1b1f24"]].map(pattern).join("")}</defs></svg>`;
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
  const { usermeta: about, ...spec } = structuredClone(model.get("spec"));
  const title = typeof about.title === "object" ? about.title?.text : about.title;
  const headings = about.table;
  const renderer = about.renderer ?? "svg";

  // Vega gives the element it draws in a role: the inner one.
  const ground = element("div", { "aria-hidden": "true" });
  const plot = element("div", { class: "dlhpc-plot", role: "img", tabindex: "0" }, ground);
  plot.style.minHeight = typeof spec.height === "number" ? `${spec.height}px` : "";
  const words = element("p", { class: "dlhpc-words" });
  const numbers = element("div", { class: "dlhpc-numbers", tabindex: "0" });
  const files = element("p", { class: "dlhpc-files" });
  const more = element("details", {}, element("summary", {}, "Numbers", element("span", {}, " and files")), numbers, files);
  const save = { CSV: () => text(comma(model.get("data"), headings), "text/csv"), SVG: () => text(picture(plot), "image/svg+xml"),
    PNG: () => pixels(plot) };
  for (const [name, make] of Object.entries(save)) {
    const button = element("button", { type: "button" }, `Save as ${name}`);
    button.addEventListener("click", async () => download(await make(), `${(title || "chart").replace(/[^\w]+/g, "_")}.${name.toLowerCase()}`));
    files.append(button);
  }
  const bubble = element("div", { class: "dlhpc-bubble", "aria-hidden": "true" });
  bubble.hidden = true;
  const figure = element("figure", { class: "dlhpc-figure" });
  if (title) figure.append(element("figcaption", {}, title));
  let key = element("ul", { hidden: "" });
  figure.append(key, plot, words, more, bubble, patterns());
  el.classList.add("dlhpc-figure-view");
  el.append(figure);

  let view = null;
  let width = 0;
  let drawn = {}; // dataset name -> its columns as last given to Vega, as text
  let frame = 0;
  let running = false;
  let later = 0, resting = 0;
  let gone = false;
  let visible = true;

  // Whether the names at the ends of lines, or of rows, would take the room of what they name.
  const named = rowsOf(spec);
  const narrow = () => Boolean(about.ends || named) && width > 0 && width < NARROW;
  let above = false; // whether the view was made with the names of rows above them

  // What the data have, or had once: nothing jumps. Behind a cover all: what there is may be the answer.
  const had = new Set();
  function present(all) {
    const columns = Object.values(model.get("data")).flatMap(Object.values);
    for (const words of columns.filter(([one]) => one?.at)) words.forEach((word) => had.add(word));
    const some = all.filter(({ value }) => had.has(value));
    return some.length && !plot.closest(".covered") ? some : [...all];
  }

  function explain() { // what is in a drawing may change with its data: a dataset "key" says it then
    const found = about.legend ? present(about.legend) : rows(model.get("data").key ?? {});
    if (narrow() && about.ends) {
      for (const { line, words } of rows(model.get("data").ends ?? {})) found.push({ ...about.ends.find(({ label }) => label === line), label: words });
    }
    if (about.note) found.push({ label: about.note, color: "none" });
    const wanted = JSON.stringify(found);
    if ((key.dataset.shown ?? "[]") === wanted) return;
    const fresh = legend(found);
    fresh.dataset.shown = wanted;
    key.replaceWith(fresh);
    key = fresh;
  }

  function describe() {
    explain();
    const summary = model.get("summary");
    words.textContent = summary;
    words.hidden = !summary;
    plot.setAttribute("aria-label", [title, summary].filter(Boolean).join(". ") || "chart");
    figure.classList.toggle("opened", more.open);
    if (more.open) numbers.replaceChildren(...table(model.get("data"), headings));
  }

  function padding() {
    const pad = spec.padding ?? 5;
    if (!narrow() || typeof pad !== "object") return pad;
    return { ...pad, ...(about.ends && { right: Math.min(pad.right ?? 0, MARGIN) }), ...(named && { left: MARGIN / 2 }) };
  }

  function inner() { // what is left for the plotting area
    const pad = padding();
    const sides = typeof pad === "number" ? 2 * pad : (pad.left ?? 0) + (pad.right ?? 0);
    return Math.max(80, Math.floor(width - (spec.autosize === "none" ? sides : 0)));
  }

  async function start() {
    const { View, parse } = await vega();
    if (gone) return;
    above = Boolean(named) && narrow();
    const shape = above ? namedAbove(spec, named) : spec;
    view = new View(parse({ ...shape, width: inner(), padding: padding() }), { renderer, tooltip: tooltip(bubble) });
    view.initialize(ground);
  }

  function feed() {
    const { changeset, truthy } = globalThis.dlhpcVega;
    for (const [name, given] of Object.entries(model.get("data"))) {
      const columns = name === "ends" && about.ends && narrow() ? {} : given;
      const text = JSON.stringify(columns);
      if (drawn[name] === text || name === "key") continue;
      drawn[name] = text;
      view.change(name, changeset().remove(truthy).insert(rows(columns)));
    }
    for (const [name, value] of Object.entries(model.get("signals"))) view.signal(name, value);
    if (above) view.height(Math.max(spec.height, STEP * countOf(named, spec, model.get("data"))));
    if (view.width() !== inner()) view.padding(padding()).width(inner());
  }

  async function run() {
    frame = 0;
    if (running || gone || !width) return;
    running = true;
    try {
      if (view && named && above !== narrow()) {
        view.finalize();
        [view, drawn] = [null, {}];
      }
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
    clearTimeout(resting);
    resting = setTimeout(settle, REST);
    if (stale()) wake();
  }

  // What a question gives away is not covered: marks of a data set, or whose datum has a value, that it names.
  function uncover() {
    explain();
    const known = new Set(JSON.parse(plot.closest(".dlhpc-stage.covered")?.dataset.known ?? "[]"));
    const nodes = known.size ? [...plot.querySelectorAll(".role-mark :is(path, text, line, rect)")] : [];
    const ofMark = new Map((spec.marks ?? []).map(({ name, from }) => [name, source(from?.facet?.data ?? from?.data)]));
    let shows = false, hides = false;
    for (const node of nodes) {
      const data = [...(node.closest(".role-mark")?.classList ?? [])].map((name) => ofMark.get(name));
      const open = [...Object.values(node.__data__?.datum ?? {}), ...data].some((value) => known.has(value));
      node.classList.toggle("known", open);
      shows ||= open;
      hides ||= !open && node.getAttribute("opacity") !== "0" && node.getBoundingClientRect().width > 0;
    }
    if (shows) figure.dataset.shows = hides ? "some" : "all";
    else delete figure.dataset.shows;
  }

  const source = (name) => {
    const found = spec.data?.find((each) => each.name === name)?.source;
    return found ? source(found) : name;
  };

  // Words that a narrow page cuts off move into the drawing, and names that overlap apart, once it rests.
  function settle() {
    uncover();
    const room = plot.getBoundingClientRect(), texts = [...plot.querySelectorAll("svg text")];
    const before = texts.map((text) => text.style.translate);
    for (const text of texts) text.style.translate = "";
    const places = texts.map((text) => {
      const { left, right, top, bottom } = text.getBoundingClientRect();
      const x = Math.max(room.left - left, Math.min(0, room.right - right));
      return { text, x, y: 0, left: left + x, right: right + x, top, bottom, fixed: Boolean(text.closest(".role-axis-label")) };
    });
    spread(places.filter(({ text, fixed, top, bottom }) => (fixed || text.closest(".role-mark")) && bottom > top && bottom - top < LINE));
    places.forEach(({ text, x, y }, i) => {
      const wanted = Math.abs(x) > 0.5 || Math.abs(y) > 0.5 ? `${x}px ${y}px` : "";
      if (wanted || before[i]) text.style.translate = wanted;
    });
  }

  function stale() {
    return view && !gone && (plot.dataset.serial !== String(model.get("serial")) || view.width() !== inner());
  }

  // What is not seen waits until the controls rest.
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
    explain();
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
  addEventListener("dlhpc-known", uncover);
  describe();

  return () => {
    gone = true;
    cancelAnimationFrame(frame);
    clearTimeout(later);
    clearTimeout(resting);
    removeEventListener("dlhpc-known", uncover);
    sizes.disconnect();
    sight.disconnect();
    view?.finalize();
    figure.remove();
  };
}

export default { render };
