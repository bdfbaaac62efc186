// One slide at a time in full screen: F or the button begins, arrow keys turn, Escape ends; S opens the notes in a window.
const sections = [...document.querySelectorAll("section")];
const named = () => Math.max(0, sections.findIndex((own) => "#" + own.id === location.hash));
const presenting = () => document.body.classList.contains("present");
const later = (section) => [...section.querySelectorAll("[data-step]")];
const last = (section) => Math.max(0, ...later(section).map((own) => +own.dataset.step));
let step = 0, speaker = null, began = 0;

function show(number, upTo = 0) { // upTo: what appears later on a slide is shown up to this step
  const at = Math.min(Math.max(number, 0), sections.length - 1);
  step = Math.min(upTo, last(sections[at]));
  history.replaceState(null, "", "#" + sections[at].id);
  sections.forEach((own, place) => own.classList.toggle("now", place === at));
  later(sections[at]).forEach((own) => own.classList.toggle("later", +own.dataset.step > step));
  tell();
}

function turn(by) {
  const at = named(), next = step + by;
  if (next >= 0 && next <= last(sections[at])) show(at, next);
  else if (sections[at + by]) show(at + by, by > 0 ? 0 : Infinity);
}

function present() {
  document.body.classList.add("present");
  show(named());
  document.documentElement.requestFullscreen?.().catch(() => {});
}

function end() {
  document.body.classList.remove("present");
  sections[named()].scrollIntoView();
}

function speak() { // the notes, the time since it was opened, and what comes next
  speaker = window.open("", "notes", "width=900,height=700");
  began = Date.now();
  speaker.document.title = "Notes: " + document.title;
  speaker.document.onkeydown = pressed;
  tell();
}

function late(notes, minutes) { // beside the times of the slide, with which its notes begin
  const [, begin, end] = notes.match(/^Minutes (\d+):\d+ to (\d+):/) ?? [];
  if (begin === undefined) return "";
  return minutes > +end ? ` · ${minutes - end} min late` : minutes < +begin ? ` · ${begin - minutes} min early` : " · on time";
}

function tell() {
  if (!speaker || speaker.closed) return;
  const at = named(), title = (own) => own?.querySelector(".title")?.textContent ?? "the end";
  const body = speaker.document.body, make = (tag, text, style) => Object.assign(speaker.document.createElement(tag), { textContent: text, style });
  const minutes = Math.floor((Date.now() - began) / 60000), notes = sections[at].querySelector(".notes").textContent;
  body.style = "font: 1.3rem/1.45 system-ui, sans-serif; margin: 1.5rem";
  body.replaceChildren(
    make("p", `${minutes} min${late(notes, minutes)} · slide ${at + 1} of ${sections.length} · step ${step} of ${last(sections[at])}`, "color: #555"),
    make("h1", title(sections[at]), "font-size: 1.5rem"),
    make("div", notes, "white-space: pre-line"),
    make("p", `Next: ${title(sections[at + 1])}`, "color: #004c6d; font-weight: bold"),
  );
}

function fit() { // without Arial, or a font as wide, type gets smaller until it fits its box
  for (const own of document.querySelectorAll(".slide > div:not(.picture)")) {
    const { height, width } = own.parentElement.getBoundingClientRect();
    const most = { high: height * parseFloat(own.style.height) / 100 + 2, wide: width * parseFloat(own.style.width) / 100 + 2 };
    const size = () => parseFloat(own.style.getPropertyValue("--pt"));
    while ((own.scrollHeight > most.high || own.scrollWidth > most.wide) && size() > 8) own.style.setProperty("--pt", size() * 0.96);
  }
}

function addressed(key, asked) { // asked for once per tab, as the port changes
  const base = sessionStorage.getItem(key) || prompt(asked, "http://127.0.0.1:8866/");
  if (base) sessionStorage.setItem(key, base);
  return base;
}

function votes(event) { // the board of a class, at what this slide asks
  event.preventDefault();
  const base = addressed("dlhpc-board", "Address of the board, as dlhpc class serve prints it");
  if (base) window.open(`${base.split("#")[0]}#${event.target.dataset.vote}`, "board");
}

function live(event) { // the pages are served at an address of their own
  event.preventDefault();
  const base = addressed("dlhpc-pages", "Address of the pages, as dlhpc explore prints it");
  if (!base) return;
  const [file, fragment] = event.target.dataset.live.split("#"), page = new URL(`voila/render/${file}`, base);
  window.open(`${page}${new URL(base).search}#${fragment}`, "pages");
}

function pressed(event) {
  const keys = { ArrowRight: 1, PageDown: 1, " ": 1, ArrowLeft: -1, PageUp: -1 };
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key.toLowerCase() === "s") speak();
  else if (!presenting() && event.key.toLowerCase() === "f") present();
  else if (presenting() && event.key === "Escape") end();
  else if (presenting() && event.key in keys) {
    event.preventDefault();
    turn(keys[event.key]);
  }
}

const bare = () => document.body.classList.toggle("bare");
document.getElementById("present").addEventListener("click", present);
document.getElementById("speaker").addEventListener("click", speak);
document.getElementById("bare").addEventListener("click", bare);
document.querySelectorAll("[data-live]").forEach((own) => own.addEventListener("click", live));
document.querySelectorAll("[data-vote]").forEach((own) => own.addEventListener("click", votes));
document.addEventListener("fullscreenchange", () => document.fullscreenElement || end());
document.addEventListener("keydown", pressed);
setInterval(tell, 15000);
fit();
if (location.search === "?slides") bare();
