// The front door: a step of some ranks, the share of all GPUs that is lost, predicted against published.
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const NS = "http://www.w3.org/2000/svg";

function draw(parent, tag, attributes, text) {
  const node = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

function hatch(svg) {
  const defs = draw(svg, "defs", {});
  const pattern = draw(defs, "pattern", { id: `${svg.id}-idle`, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  draw(pattern, "rect", { width: 5, height: 5, fill: "var(--dl-idle)" });
  draw(pattern, "rect", { width: 1.6, height: 5, fill: "var(--dl-hatch)" });
  return `url(#${svg.id}-idle)`;
}

const SLOWER = 25; // slow motion over the step itself
let drawn = null; // the step on the page: its figures, ranks and scale, what hides its later part, and where that begins
let playing = 0;

const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}%`;

function step(now, animate) {
  const svg = at("step");
  svg.replaceChildren();
  const width = svg.clientWidth || 600;
  const phone = width < 420;
  const ranks = phone ? [now.ranks[0], now.ranks.find((one) => one.backward === now.slowest) ?? now.ranks.at(-1)] : now.ranks;
  const names = ranks.map(({ rank }) => draw(svg, "text", { class: "soft", "text-anchor": "end" }, `rank ${rank}`));
  const left = Math.ceil(Math.max(...names.map((name) => name.getComputedTextLength()))) + 16;
  const right = 24, row = 30, top = 24; // right: half of the last time
  const height = top + ranks.length * row + 30;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.style.height = `${height}px`;
  const idle = hatch(svg);
  const x = (time) => left + time / now.end * (width - left - right);
  const bars = draw(svg, "g", animate ? { class: "grow" } : {});
  ranks.forEach((one, i) => {
    const y = top + i * row;
    names[i].setAttribute("x", left - 8);
    names[i].setAttribute("y", y + 14);
    const bar = (from, to, fill, part) => to > from && draw(bars, "rect", { x: x(from), y, width: x(to) - x(from), height: 18, fill, class: `part ${part}` });
    bar(0, one.forward, "var(--dl-forward)", "forward");
    bar(one.forward, one.backward, "var(--dl-backward)", "backward");
    if (now.slowest - one.backward > 0.2) bar(one.backward, now.slowest, idle, "waits");
    for (const [from, to] of one.sent) {
      const seen = Math.max(from, one.backward < to && from >= one.backward - 0.01 ? now.slowest : from);
      if (to > seen) draw(bars, "rect", { x: x(seen), y: y + 20, width: x(to) - x(seen), height: 4, fill: "var(--dl-gradient)", class: "part sent" });
    }
    bar(now.slowest, now.end, "var(--dl-gradient)", "sent");
  });
  const veil = draw(svg, "rect", { y: 16, height: height - 46, fill: "var(--dl-card)", opacity: 0.86 });
  const line = x(now.slowest);
  draw(svg, "line", { x1: line, x2: line, y1: 16, y2: top + ranks.length * row, stroke: "var(--dl-ink)", "stroke-width": 2 });
  draw(svg, "text", { x: line - 6, y: 13, "text-anchor": "end", class: "strong" }, now.gpus > 1 && now.waiting > 0 ? "everyone waits for the slowest rank" : "backward ends");
  const end = top + ranks.length * row + 16;
  const every = [10, 20, 50, 100, 200, 500].find((size) => now.end / size <= (phone ? 3.5 : 7)) ?? 1000;
  for (let time = 0; time <= now.end; time += every) draw(svg, "text", { x: x(time), y: end, "text-anchor": "middle", class: "soft" }, `${time} ms`);
  const cursor = draw(svg, "line", { y1: 16, y2: end - 14, stroke: "var(--dl-accent)", "stroke-width": 2 });
  drawn = { now, ranks, x, left, veil, cursor, right: width - right, names };
  moment(now.end);
  return ranks.length;
}

// What the ranks shown do at a time, and how much of their time waiting has cost until then.
function doing({ now, ranks }, time) {
  const all = ranks.length, waiting = ranks.filter((one) => time >= one.backward).length;
  const lost = ranks.reduce((sum, one) => sum + Math.max(0, Math.min(time, now.slowest) - one.backward), 0);
  const so = `Waiting has cost ${lost.toFixed(0)} ms of GPU time.`;
  if (time >= now.end) return "Drag to any moment of this step: who waits for whom?";
  const at = `At ${time.toFixed(0)} ms`;
  if (time >= now.slowest) return `${at}: all ranks finish the allreduce. ${so}`;
  if (!waiting) return `${at}: all ranks compute.`;
  return `${at}: of ${all} ranks ${waiting} ${waiting === 1 ? "waits" : "wait"}. ${so}`;
}

// Show the step up to a time.
function moment(time) {
  const { now, ranks, x, veil, cursor, right, names } = drawn, whole = time >= now.end;
  veil.setAttribute("x", x(time));
  veil.setAttribute("width", whole ? 0 : Math.max(0, right - x(time) + 2));
  cursor.setAttribute("visibility", whole ? "hidden" : "visible");
  for (const end of ["x1", "x2"]) cursor.setAttribute(end, x(time));
  names.forEach((name, i) => name.classList.toggle("strong", !whole && time >= ranks[i].backward && time < now.slowest));
  at("moment").value = at("moment").max * time / now.end;
  at("then").textContent = doing(drawn, time);
  at("moment").setAttribute("aria-valuetext", whole ? "the whole step" : `${time.toFixed(0)} milliseconds`);
}

function stop() {
  cancelAnimationFrame(playing);
  playing = 0;
  at("play").textContent = "▶ Slow motion";
}

function play() {
  if (playing) return stop();
  const from = performance.now();
  const frame = (when) => {
    const time = Math.max(0, when - from) / SLOWER;
    moment(Math.min(time, drawn.now.end));
    if (time >= drawn.now.end) stop();
    else playing = requestAnimationFrame(frame);
  };
  at("play").textContent = "■ Stop";
  playing = requestAnimationFrame(frame);
  return undefined;
}

// 16 x 16 squares: what of all GPUs computes, waits, or stands in the exposed part of the allreduce.
function grid(now) {
  const svg = at("grid");
  svg.replaceChildren();
  svg.setAttribute("viewBox", "0 0 160 160");
  const idle = hatch(svg);
  const waits = Math.round(256 * now.waiting), exposed = Math.round(256 * now.exposed);
  for (let i = 0; i < 256; i += 1) {
    const place = { x: (i % 16) * 10 + 0.5, y: Math.floor(i / 16) * 10 + 0.5, width: 8, height: 8, rx: 1.5 };
    const [fill, part] = i < 256 - waits - exposed ? ["var(--dl-backward)", "forward backward"]
      : i < 256 - exposed ? [idle, "waits"] : ["var(--dl-gradient)", "sent"];
    draw(svg, "rect", { ...place, fill, class: `part ${part}` });
  }
}

function show(animate) {
  stop();
  const [n, g] = [Number(at("gpus").value), Number(at("network").value)];
  const now = data.steps[n][g];
  const number = (value) => value.toLocaleString("en", { maximumFractionDigits: value < 100 ? 1 : 0 });
  const lost = now.gpus * (1 - now.efficiency);
  at("count").textContent = at("times").textContent = number(now.gpus);
  at("gpus-now").textContent = number(now.gpus);
  at("network-now").textContent = `${data.networks[g]} Gb/s`;
  at("gpus").setAttribute("aria-valuetext", `${now.gpus} GPUs`);
  at("network").setAttribute("aria-valuetext", `${data.networks[g]} gigabits per second`);
  at("speedup").textContent = number(now.speedup);
  at("efficiency").textContent = percent(now.efficiency);
  at("minutes").textContent = now.minutes > 120 ? `${(now.minutes / 60).toFixed(1)} h` : `${now.minutes.toFixed(1)} min`;
  at("finding").textContent = `Every step loses the work of ${number(lost)} of ${number(now.gpus)} GPUs`;
  at("step-words").innerHTML = `<span data-part="waits">${percent(now.waiting)} of the step waits for the slowest rank</span>, <span data-part="sent">${percent(now.exposed)} is allreduce that backward does not hide</span>.`
    + ` Shown: ${step(now, animate && !matchMedia("(prefers-reduced-motion: reduce)").matches)} of ${number(now.gpus)} ranks in one simulated step of ${now.end.toFixed(0)} ms; the mean is ${now.mean.toFixed(0)} ms.`;
  grid(now);
}

// Set a name to the right or to the left of its point, where it covers no point of its row; return whether it has to
// stand above.
function beside(name, point, points, left, right) {
  const wide = name.getComputedTextLength();
  const free = (from) => from >= left && from + wide <= right && !points.some((one) => one > from - 5 && one < from + wide + 5);
  const side = [point + 8, point - 8 - wide].find(free);
  name.setAttribute("x", side ?? Math.min(Math.max(point - wide / 2, left), right - wide));
  return side === undefined;
}

function proof() {
  const svg = at("proof");
  svg.replaceChildren();
  const groups = [...new Set(data.proof.map(([, group]) => group))]
    .map((name) => [name, data.proof.filter(([, group]) => group === name).sort((a, b) => a[2] - b[2])]).sort((a, b) => b[1].length - a[1].length);
  const phone = svg.clientWidth < 480;
  document.querySelector(".named").hidden = phone;
  const width = svg.clientWidth || 700, left = phone ? 134 : 150, row = 20, lead = 14; // lead: room for a name above a row
  const ends = [0.3, 2.5].map(Math.log);
  const x = (ratio) => left + (Math.log(Math.min(Math.max(ratio, 0.3), 2.5)) - ends[0]) / (ends[1] - ends[0]) * (width - left - 16);
  const far = ([, , ratio]) => Math.abs(Math.log(ratio));
  const worst = groups.map(([, rows]) => rows.filter(([, , , miss]) => miss).sort((a, b) => far(b) - far(a))[0]).filter(Boolean);
  const named = new Set(phone ? [] : worst.sort((a, b) => far(b) - far(a)).slice(0, 6));
  const back = draw(svg, "g", {});
  let y = 10;
  for (const [group, rows] of groups) {
    const names = rows.filter((one) => named.has(one)).map(([, , ratio, , short]) => {
      const name = draw(svg, "text", { class: "soft" }, short);
      return [name, beside(name, x(ratio), rows.map(([, , other]) => x(other)), left, width)];
    });
    y += names.some(([, above]) => above) ? row / 2 + lead : row / 2;
    for (const [name, above] of names) name.setAttribute("y", above ? y - 9 : y + 4);
    draw(svg, "text", { x: left - 8, y: y + 4, "text-anchor": "end" }, group);
    for (const [id, , ratio, miss, short] of rows) {
      const link = draw(svg, "a", { href: `#${id}`, tabindex: -1, "aria-label": `${id}: predicted over published ${ratio.toFixed(2)}` });
      draw(link, "circle", { cx: x(ratio), cy: y, r: 4.5, fill: miss ? "var(--dl-tensor)" : "var(--dl-backward)", opacity: 0.7 });
      draw(link, "title", {}, `${short} (${id}): ${ratio.toFixed(2)}`);
    }
    y += row / 2;
  }
  draw(back, "rect", { x: x(0.9), y: 10, width: x(1.1) - x(0.9), height: y - 10, fill: "var(--dl-tint)" });
  for (const tick of [0.3, 0.5, 0.7, 1, 1.5, 2]) {
    draw(back, "line", { x1: x(tick), x2: x(tick), y1: 10, y2: y, stroke: "var(--dl-line)", "stroke-width": tick === 1 ? 2 : 1 });
    draw(back, "text", { x: x(tick), y: y + 15, "text-anchor": "middle", class: "soft" }, String(tick));
  }
  const titled = phone ? { x: width, "text-anchor": "end" } : { x: (left + width) / 2, "text-anchor": "middle" };
  draw(back, "text", { ...titled, y: y + 33, class: "soft" }, "predicted / published; shaded: within 10%");
  svg.setAttribute("viewBox", `0 0 ${width} ${y + 36}`);
  svg.style.height = `${y + 36}px`;
  svg.querySelector("a")?.setAttribute("tabindex", 0);
}

// Hundreds of points are one stop of the tab key; from there, arrow keys, Home and End go to the others.
at("proof").addEventListener("focusin", ({ target }) => {
  at("proof").querySelector('a[tabindex="0"]')?.setAttribute("tabindex", -1);
  target.setAttribute("tabindex", 0);
});
at("proof").addEventListener("keydown", (event) => {
  const links = [...at("proof").querySelectorAll("a")], now = links.indexOf(document.activeElement);
  const next = { ArrowRight: now + 1, ArrowDown: now + 1, ArrowLeft: now - 1, ArrowUp: now - 1, Home: 0, End: links.length - 1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  links[Math.min(Math.max(next, 0), links.length - 1)].focus();
});
for (const [id, most, value] of [["gpus", data.steps.length - 1, data.start[0]], ["network", data.networks.length - 1, data.start[1]]]) {
  at(id).max = most;
  at(id).value = value;
  at(id).addEventListener("input", () => show(false));
}
at("play").addEventListener("click", play);
at("moment").addEventListener("input", () => {
  stop();
  moment(drawn.now.end * at("moment").value / at("moment").max);
});
// A mouse over the chart is a moment, too; a finger scrolls the page.
at("step").addEventListener("pointermove", ({ pointerType, offsetX }) => {
  if (pointerType !== "mouse" || playing) return;
  const share = (offsetX - drawn.left) / (drawn.x(drawn.now.end) - drawn.left);
  moment(drawn.now.end * Math.min(Math.max(share, 0), 1));
});
at("step").addEventListener("pointerleave", () => { if (!playing) moment(drawn.now.end); });
show(true);
proof();
let last = innerWidth;
addEventListener("resize", () => { if (innerWidth !== last) { last = innerWidth; show(false); proof(); } });

let progress = {};
try { progress = JSON.parse(localStorage.getItem("dlhpc-progress")) ?? {}; } catch { /* nothing is known of this visitor */ }
for (const card of document.querySelectorAll(".module")) {
  const own = progress[card.dataset.number];
  const { done = 0, skipped = 0, of = 0 } = own ?? {};
  if (!done && !skipped) continue;
  const words = card.querySelector(".done");
  words.textContent = (done + skipped >= of ? "✓ done" : `${done} of ${of} done`) + (skipped ? `, ${skipped} skipped` : "");
  words.hidden = false;
}
