// One slide at a time in full screen: F or the button begins, arrow keys turn, Escape ends.
const sections = [...document.querySelectorAll("section")];
const named = () => Math.max(0, sections.findIndex((own) => "#" + own.id === location.hash));
const presenting = () => document.body.classList.contains("present");

function show(number) {
  const at = Math.min(Math.max(number, 0), sections.length - 1);
  history.replaceState(null, "", "#" + sections[at].id);
  sections.forEach((own, place) => own.classList.toggle("now", place === at));
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

const keys = { ArrowRight: 1, PageDown: 1, " ": 1, ArrowLeft: -1, PageUp: -1 };
document.getElementById("present").addEventListener("click", present);
document.addEventListener("fullscreenchange", () => document.fullscreenElement || end());
document.addEventListener("keydown", (event) => {
  if (!presenting() && event.key.toLowerCase() === "f" && !event.ctrlKey && !event.metaKey) present();
  else if (presenting() && event.key === "Escape") end();
  else if (presenting() && event.key in keys) {
    event.preventDefault();
    show(named() + keys[event.key]);
  }
});
