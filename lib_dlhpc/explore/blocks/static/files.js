// A chart as files: its numbers as CSV, the drawing with title, key and source as SVG and PNG. figure.js comes after it.

const TIMES = { years: 31557600, days: 86400, h: 3600, min: 60, s: 1, ms: 1e-3, "µs": 1e-6, ns: 1e-9 };
const SCALES = { k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18 };
const SOURCE = "Computed with lib_dlhpc, the what-if lab";

// "370 ms" as [0.37, "s"], "14%" as [14, "%"], "8" as [8, ""]; undefined for other words.
function quantity(words) {
  const [, digits, unit = ""] = /^([+−-]?[\d,]*\.?\d+(?:e[+-]?\d+)?)(?: ?(\S+))?$/.exec(words) ?? [];
  if (digits === undefined) return undefined;
  const number = Number(digits.replaceAll(",", "").replace("−", "-"));
  const scaled = (by, name) => [Number((number * by).toPrecision(12)), name];
  if (unit === "" || unit === "%") return [number, unit];
  if (unit in TIMES) return scaled(TIMES[unit], "s");
  const [, prefix, rest] = /^([kMGTPE]?)((?:B|FLOP|J|W|Wh|samples|tokens)(?:\/s)?)$/.exec(unit) ?? [];
  return rest && scaled(SCALES[prefix] ?? 1, rest);
}

// A column of quantities of one unit as plain numbers, with the unit in the heading; another one as it is.
function plainly(heading, values) {
  const given = values.filter((value) => value !== null && value !== undefined && value !== "");
  const found = given.every((value) => typeof value === "string") ? given.map(quantity) : [];
  const unit = found[0]?.[1];
  if (unit === undefined || !found.every((each) => each?.[1] === unit)) return [heading, ...values];
  return [unit ? `${heading} (${unit})` : heading, ...values.map((value) => (value ? quantity(value)[0] : ""))];
}

// The numbers of the table, or all of them, as comma-separated values.
function comma(data, headings) {
  const cell = (value) => /[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : String(value ?? "");
  const listed = Object.keys(headings ?? {}).length ? headings
    : Object.fromEntries(Object.entries(data).map(([name, columns]) => [name, Object.fromEntries(Object.keys(columns).map((key) => [key, key]))]));
  return Object.entries(listed).filter(([name]) => data[name]).map(([name, columns]) => {
    const lines = Object.entries(columns).map(([key, heading]) => plainly(heading || key,
      isShare(heading) ? (data[name][key] ?? []).map(percent) : data[name][key] ?? []));
    return (lines[0] ?? []).map((_, row) => lines.map((line) => cell(line[row])).join(",")).join("\n");
  }).join("\n\n") + "\n";
}

// A mixed color as programs other than browsers read it.
const plain = (color) => color.replace(/^color\(srgb ([^)/]*).*\)$/, (_, parts) =>
  `rgb(${parts.trim().split(" ").map((part) => Math.round(255 * part)).join(", ")})`);

const escaped = (words) => words.replace(/[&<>]/g, (sign) => `&#${sign.charCodeAt(0)};`);

// What a drawing's colors mean, from the legend beside it: [[a sign of 14 by 14, words]].
function meanings(plot) {
  const own = [...plot.parentElement.querySelectorAll(".dlhpc-key li")].map((item) => {
    const ink = getComputedStyle(item).color;
    return [`<g color="${ink}">${item.firstChild.innerHTML.replaceAll('"#000000"', '"currentColor"')}</g>`, item.lastChild.textContent];
  });
  const beside = [...plot.closest(".dl-card")?.querySelectorAll(".dl-key > span") ?? []].map((item) => {
    const box = `width="12" height="12" y="1"`, mark = item.querySelector("b");
    const hatch = mark.className === "hatched" ? `<rect ${box} fill="url(#dlhpc-hatch-on)" fill-opacity="0.6"/>` : "";
    return [`<rect ${box} fill="${plain(getComputedStyle(mark).backgroundColor)}"/>${hatch}`, item.textContent.trim()];
  });
  return [...own, ...beside];
}

// Words in lines, and signs with words, no wider than a picture: [markup, height].
function lettering(plot, width) {
  const { color, fontFamily } = getComputedStyle(plot), pen = document.createElement("canvas").getContext("2d");
  const wide = (words, font) => { pen.font = `${font} ${fontFamily}`; return pen.measureText(words).width; };
  const title = plot.parentElement.querySelector("figcaption")?.textContent ?? "";
  let [markup, x, y, line] = ["", 6, 18, ""];
  const put = (words, more, at = 6) => { markup += `<text x="${at}" y="${y}" fill="${color}" ${more}>${escaped(words)}</text>`; };
  const flush = () => { put(line, 'font-size="15" font-weight="600"'); y += 20; line = ""; };
  for (const word of title.split(" ").filter(Boolean)) {
    if (line && wide(`${line} ${word}`, "600 15px") > width - 12) flush();
    line = line ? `${line} ${word}` : word;
  }
  if (line) flush();
  const entries = meanings(plot);
  for (const [sign, words] of entries) {
    const room = 26 + wide(words, "12px");
    if (x > 6 && x + room > width - 6) [x, y] = [6, y + 18];
    markup += `<g transform="translate(${x} ${y - 11})">${sign}</g>`;
    put(words, 'font-size="12"', x + 26);
    x += room + 12;
  }
  return [markup, title || entries.length ? y + (entries.length ? 10 : -8) : 0];
}

// The drawing as a file of its own, below its title and key: colors that the page gives are written into it.
function picture(plot) {
  const drawn = plot.querySelector("svg");
  const copy = drawn.cloneNode(true);
  const parts = drawn.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((node, i) => {
    for (const name of ["fill", "stroke"]) {
      if (/^(?!url|none)./.test(node.getAttribute(name) ?? "")) node.setAttribute(name, plain(getComputedStyle(parts[i])[name]));
    }
    if (node.localName === "text" && node.hasAttribute("stroke")) node.setAttribute("paint-order", "stroke"); // as figure.css has it
  });
  const style = getComputedStyle(plot), [width, high] = [drawn.clientWidth, drawn.clientHeight];
  const [words, top] = lettering(plot, width), whole = top + high + 20;
  copy.innerHTML = `${words}<g transform="translate(0 ${top})">${copy.innerHTML}</g>`
    + `<text x="6" y="${whole - 7}" font-size="11" fill="${style.color}" fill-opacity="0.75">${escaped(SOURCE)}</text>`;
  for (const [name, value] of Object.entries({ width, height: whole, viewBox: `0 0 ${width} ${whole}` })) copy.setAttribute(name, value);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("style", `color: ${style.color}; background: ${getComputedStyle(document.body).backgroundColor}; font-family: ${style.fontFamily}`);
  copy.prepend(plot.parentElement.querySelector(".dlhpc-patterns defs").cloneNode(true));
  return new XMLSerializer().serializeToString(copy);
}

async function pixels(plot) {
  const canvas = plot.querySelector("canvas") ?? document.createElement("canvas");
  const drawn = plot.querySelector("svg");
  if (drawn) {
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(picture(plot))}`;
    await image.decode();
    Object.assign(canvas, { width: 2 * image.width, height: 2 * image.height });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  }
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

const text = (content, type) => new Blob([content], { type });

function download(blob, name) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
