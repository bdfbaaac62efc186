// On a phone each section is folded behind its heading, so that a page is a path of short parts. Wider pages stay open.

const PHONE = matchMedia("(max-width: 700px)");
const OPENED = "dlhpc-opened"; // in this tab: a page that is loaded again has the same sections open
const PAGE = document.body.dataset.page;
const QUESTION = ".dlhpc-question:not(.dlhpc-practice *)";

function stored() {
  try { return JSON.parse(sessionStorage.getItem(OPENED)) ?? {}; } catch { return {}; }
}

function folded(heading) {
  const details = document.createElement("details"), summary = document.createElement("summary");
  const count = document.createElement("small"), home = document.createComment("");
  details.className = "dlhpc-section";
  heading.before(home);
  summary.append(count);
  details.append(summary);
  return { details, summary, count, heading, home };
}

export function sections(cells) {
  const folds = [];
  for (const row of cells.querySelectorAll(":scope > .dlhpc-row")) {
    const heading = row.querySelector("h1") ? null : row.querySelector("h2");
    if (heading) {
      folds.push(folded(heading));
      row.before(folds.at(-1).details);
    }
    folds.at(-1)?.details.append(row);
  }
  const opened = stored()[PAGE] ?? [];
  const fit = () => folds.forEach(({ details, summary, heading, home }) => {
    if (PHONE.matches) summary.prepend(heading);
    else home.after(heading);
    summary.hidden = !PHONE.matches;
    details.open ||= !PHONE.matches;
  });
  const keep = () => {
    const open = folds.filter(({ details }) => details.open).map(({ heading }) => heading.id);
    try { sessionStorage.setItem(OPENED, JSON.stringify({ ...stored(), [PAGE]: open })); } catch { /* it starts folded */ }
  };
  const reveal = () => document.querySelector(":target")?.closest(".dlhpc-section")?.setAttribute("open", "");
  const tell = () => folds.forEach(({ details, count }) => {
    const all = [...details.querySelectorAll(QUESTION)], final = all.filter((each) => "final" in each.dataset);
    const skipped = final.filter((each) => "skipped" in each.dataset).length, done = final.length - skipped;
    const left = final.length === all.length ? "✓ done" : done ? `${done} of ${all.length} done` : `${all.length} to answer`;
    count.textContent = all.length === 0 ? "" : left + (skipped ? `, ${skipped} skipped` : "");
  });
  for (const { details, heading } of folds) {
    details.open = opened.includes(heading.id);
    details.addEventListener("toggle", () => PHONE.matches && keep());
  }
  let screen = []; // what is open there; on paper all of it is
  addEventListener("beforeprint", () => {
    screen = folds.map(({ details }) => details.open);
    folds.forEach(({ details }) => { details.open = true; });
  });
  addEventListener("afterprint", () => {
    folds.forEach(({ details }, i) => { details.open = screen[i]; });
  });
  reveal(); // before a heading moves, and is the target no more
  fit();
  tell();
  PHONE.addEventListener("change", fit);
  addEventListener("hashchange", reveal);
  // The same link once more changes no address.
  document.addEventListener("click", ({ target }) => target.closest?.('a[href^="#"]') && setTimeout(reveal));
  addEventListener("dlhpc-progress", tell);
}
