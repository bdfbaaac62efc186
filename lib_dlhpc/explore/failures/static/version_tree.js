// The tree of versions: a line for each, in the order of saving, a lane for each branch. A click chooses one.

const SVG = "http://www.w3.org/2000/svg";
const ROW = 28; // px of a line, as in the style sheet
const LANE = 18; // px between two branches
const SHAPES = ["circle", "square", "diamond", "up", "down"]; // a branch's, beside its color

function svg(tag, attributes = {}) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function html(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const x = (lane) => 12 + lane * LANE;
const y = (row) => row * ROW + ROW / 2;

function dot(row, place) {
  const [a, b, r] = [x(row.lane), y(place), 6];
  const kind = SHAPES[row.lane % SHAPES.length];
  const look = { class: `lane${row.lane % SHAPES.length}` };
  if (kind === "circle") return svg("circle", { ...look, cx: a, cy: b, r });
  const corners = {
    square: [[-5, -5], [5, -5], [5, 5], [-5, 5]],
    diamond: [[0, -7], [7, 0], [0, 7], [-7, 0]],
    up: [[0, -7], [6, 5], [-6, 5]],
    down: [[0, 7], [6, -5], [-6, -5]],
  }[kind];
  return svg("polygon", { ...look, points: corners.map(([u, v]) => `${a + u},${b + v}`).join(" ") });
}

function render({ model, el }) {
  const caption = html("figcaption", {}, "All versions, and what each began from");
  const lines = svg("svg", { "aria-hidden": "true" });
  const list = html("ol", { "aria-label": "Versions; choose the one to continue from" });
  const stage = html("div", { class: "stage" }, lines, list);
  const figure = html("figure", { class: "dlhpc-versions" }, caption, stage);
  el.append(figure);

  function paint() {
    const rows = model.get("rows");
    const [chosen, other] = [model.get("chosen"), model.get("other")];
    const at = new Map(rows.map((row, place) => [row.number, place]));
    const width = x(Math.max(0, ...rows.map((row) => row.lane))) + 14;
    const focused = list.contains(document.activeElement) ? document.activeElement.dataset.number : null;
    lines.replaceChildren();
    lines.setAttribute("width", width);
    lines.setAttribute("height", rows.length * ROW);
    rows.forEach((row, place) => {
      if (!at.has(row.parent)) return;
      const above = at.get(row.parent);
      const [a, b] = [x(rows[above].lane), x(row.lane)];
      const turn = a === b ? "" : `L${b} ${y(above) + ROW / 2}`;
      lines.append(svg("path", { d: `M${a} ${y(above)}${turn}L${b} ${y(place)}` }));
    });
    rows.forEach((row, place) => lines.append(dot(row, place)));
    list.style.paddingLeft = `${width}px`;
    list.replaceChildren(...rows.map((row) => {
      const role = row.number === chosen ? "▶ from here" : row.number === other ? "≠ compared" : "";
      const button = html("button", { type: "button", "aria-pressed": String(row.number === chosen) },
        html("b", {}, `${row.number}`), html("span", { class: "words" }, row.words), html("i", {}, role));
      button.dataset.number = row.number;
      button.disabled = model.get("busy");
      button.addEventListener("click", () => {
        if (row.number === model.get("chosen")) return;
        model.set("other", model.get("chosen"));
        model.set("chosen", row.number);
        model.save_changes();
      });
      return html("li", {}, button);
    }));
    if (focused) list.querySelector(`[data-number="${focused}"]`)?.focus();
    stage.dataset.versions = rows.length;
    const there = (at.get(chosen) ?? 0) * ROW; // what is chosen is in sight
    if (there < stage.scrollTop) stage.scrollTop = there;
    if (there + ROW > stage.scrollTop + stage.clientHeight) stage.scrollTop = there + ROW - stage.clientHeight;
  }

  model.on("change:rows change:chosen change:other change:busy", paint);
  paint();
  return () => figure.remove();
}

export default { render };
