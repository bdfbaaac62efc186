// Who holds which contributions, round by round. A row is a rank, a cell a block of its buffer, a stripe
// in the cell the contribution of one rank. Between two rounds what is sent travels to its target.

const SVG = "http://www.w3.org/2000/svg";
const STEP = 1100; // ms a round while playing
const FLIGHT = 700; // ms of it in the air
const LEFT = 62;

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function html(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function render({ model, el }) {
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const first = html("button", { type: "button" }, "|◀");
  const back = html("button", { type: "button" }, "◀");
  const play = html("button", { type: "button", class: "play" }, "▶ Play");
  const next = html("button", { type: "button" }, "▶|");
  first.setAttribute("aria-label", "First round");
  back.setAttribute("aria-label", "One round back");
  next.setAttribute("aria-label", "One round on");
  const range = html("input", { type: "range", min: 0, step: 1, "aria-label": "Round" });
  const reading = html("output", {});
  const bar = html("div", { class: "bar" }, first, back, play, next, range, reading);
  const stage = html("div", { class: "stage", role: "img" });
  const words = html("p", { class: "words", role: "status" });
  const key = html("p", { class: "key" });
  key.innerHTML = `<span><span class="k part"></span> one stripe: the contribution of one rank</span>
    <span><span class="k all">✓</span> complete: every rank's, once</span> <span><span class="k twice">!</span> something twice</span>`;
  const box = html("figure", { class: "dlhpc-chunks" }, html("figcaption", {}, "Who holds which contributions"), bar, stage, words, key);
  el.append(box);

  let shown = 0; // the round on the stage
  let frame = 0;
  let timer = 0;
  let width = 0;
  let gone = false;

  const rounds = () => model.get("moves").length;
  const box_of = () => {
    const ranks = model.get("ranks");
    const edges = model.get("edges");
    const row = Math.max(17, Math.min(34, 300 / ranks));
    const all = Math.max(1, edges.at(-1));
    const scale = (Math.max(width, 260) - LEFT - 8) / all;
    return { ranks, edges, row, x: (e) => LEFT + e * scale, y: (r) => 4 + r * row, height: ranks * row + 8 };
  };

  // The stripes of a content: rank r's contribution is the r-th stripe from the left.
  function stripes(mask, ranks, x, y, w, h) {
    const one = w / ranks;
    let path = "";
    for (let r = 0; r < ranks; r++) {
      if (mask & (1 << r)) path += `M${(x + r * one).toFixed(1)} ${y}h${Math.max(one - (one > 3 ? 0.8 : 0), 0.8).toFixed(1)}v${h}h-${Math.max(one - (one > 3 ? 0.8 : 0), 0.8).toFixed(1)}z`;
    }
    return path;
  }

  function cell(code, place, rank, block) {
    const { ranks, edges, row, x, y } = place;
    const [a, b, top] = [x(edges[block]) + 1, x(edges[block + 1]) - 1, y(rank) + 1];
    const mask = Math.abs(code);
    const full = code === 2 ** ranks - 1;
    const kind = code < 0 ? "twice" : full ? "all" : "part";
    const group = svg("g", { class: kind });
    group.append(svg("rect", { class: "room", x: a, y: top, width: Math.max(b - a, 1), height: row - 3, rx: 2 }));
    group.append(svg("path", { d: stripes(mask, ranks, a, top, Math.max(b - a, 1), row - 3) }));
    if (kind !== "part" && b - a > 9) {
      group.append(svg("text", { x: (a + b) / 2, y: top + (row - 3) / 2, "text-anchor": "middle", "dominant-baseline": "central" }, kind === "all" ? "✓" : "!"));
    }
    return group;
  }

  function paint(round) {
    const place = box_of();
    const held = model.get("held")[round];
    if (!held || !width) return null;
    const picture = svg("svg", { width, height: place.height, "aria-hidden": "true" });
    for (let rank = 0; rank < place.ranks; rank++) {
      picture.append(svg("text", { class: "rank", x: LEFT - 8, y: place.y(rank) + place.row / 2, "text-anchor": "end", "dominant-baseline": "central" }, `rank ${rank}`));
      held[rank].forEach((code, block) => picture.append(cell(code, place, rank, block)));
    }
    stage.replaceChildren(picture);
    stage.style.height = `${place.height}px`;
    stage.dataset.round = round;
    stage.dataset.serial = model.get("serial");
    return [picture, place];
  }

  function describe(round) {
    const said = model.get("words")[round] ?? "";
    words.textContent = said;
    stage.setAttribute("aria-label", `Who holds which contributions, ${said}`);
    range.max = rounds();
    range.value = round;
    range.setAttribute("aria-valuetext", `round ${round} of ${rounds()}`);
    reading.textContent = `${round} of ${rounds()}`;
    first.disabled = back.disabled = round === 0;
    next.disabled = round === rounds();
  }

  // From round k to k + 1: the sent blocks leave their rows and land in those of their targets.
  function fly(round, done) {
    const painted = paint(round);
    if (!painted || calm.matches) return done();
    const [picture, place] = painted;
    const held = model.get("held")[round];
    const flying = model.get("moves")[round].map(([source, target, from, to, reduce]) => {
      const group = svg("g", { class: `flying ${reduce ? "reduce" : "copy"}` });
      for (let block = from; block < to; block++) group.append(cell(held[source][block], place, source, block));
      if (to > from) {
        const [a, b] = [place.x(place.edges[from]), place.x(place.edges[to])];
        group.append(svg("rect", { class: "frame", x: a, y: place.y(source), width: b - a, height: place.row - 1, rx: 3 }));
      }
      picture.append(group);
      return [group, (target - source) * place.row];
    });
    const start = performance.now();
    const move = (time) => {
      if (gone) return;
      const t = Math.min(1, (time - start) / FLIGHT);
      const eased = t < 0.5 ? 2 * t * t : 1 - (2 - 2 * t) ** 2 / 2;
      for (const [group, way] of flying) group.setAttribute("transform", `translate(${(8 * Math.sin(Math.PI * eased)).toFixed(1)} ${(way * eased).toFixed(1)})`);
      if (t < 1) frame = requestAnimationFrame(move);
      else done();
    };
    frame = requestAnimationFrame(move);
  }

  function go(round, { moving = false, tell = true } = {}) {
    const goal = Math.max(0, Math.min(rounds(), round));
    cancelAnimationFrame(frame);
    const from = shown;
    shown = goal;
    describe(goal);
    if (moving && goal === from + 1) fly(from, () => paint(goal));
    else paint(goal);
    if (tell && model.get("round") !== goal) {
      model.set("round", goal);
      model.save_changes();
    }
  }

  function stop() {
    clearInterval(timer);
    timer = 0;
    play.textContent = "▶ Play";
  }

  play.addEventListener("click", () => {
    if (timer) return stop();
    if (shown === rounds()) go(0);
    play.textContent = "❚❚ Pause";
    const step = () => {
      if (shown >= rounds()) return stop();
      go(shown + 1, { moving: true });
      if (shown >= rounds()) stop();
    };
    timer = setInterval(step, STEP);
    step();
  });
  const by_hand = (act) => () => {
    stop();
    act();
  };
  first.addEventListener("click", by_hand(() => go(0)));
  back.addEventListener("click", by_hand(() => go(shown - 1)));
  next.addEventListener("click", by_hand(() => go(shown + 1, { moving: true })));
  range.addEventListener("input", by_hand(() => go(Number(range.value), { moving: true })));

  model.on("change:serial", () => {
    stop();
    go(model.get("round"), { tell: false });
  });
  model.on("change:round", () => {
    if (model.get("round") !== shown) go(model.get("round"), { tell: false });
  });
  const sizes = new ResizeObserver(([entry]) => {
    if (Math.floor(entry.contentRect.width) === width) return;
    width = Math.floor(entry.contentRect.width);
    cancelAnimationFrame(frame);
    paint(shown);
  });
  sizes.observe(stage);
  shown = model.get("round");
  describe(shown);

  return () => {
    gone = true;
    stop();
    cancelAnimationFrame(frame);
    sizes.disconnect();
    box.remove();
  };
}

export default { render };
