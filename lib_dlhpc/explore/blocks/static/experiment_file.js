// Save the experiment as a TOML file, load one, or edit the text in place.
function render({ model, el }) {
  el.classList.add("dlhpc-file");
  const make = (tag, properties, parent = el) => parent.appendChild(Object.assign(document.createElement(tag), properties));

  const row = make("div", { className: "row" });
  const save = make("button", { type: "button", textContent: "Save as TOML" }, row);
  const load = make("button", { type: "button", textContent: "Load a file" }, row);
  const chooser = make("input", { type: "file", accept: ".toml,.json,text/plain", hidden: true, ariaLabel: "Experiment file" }, row);
  const fold = make("details", {});
  make("summary", { textContent: "The experiment as text" }, fold);
  const editor = make("textarea", { rows: 14, spellcheck: false, ariaLabel: "Experiment as TOML" }, fold);
  const use = make("button", { type: "button", textContent: "Use this text" }, fold);
  const problem = make("p", { className: "problem" });
  problem.setAttribute("role", "alert");

  const most = () => model.get("largest").toLocaleString("en");
  // Sent to the kernel as well, which removes it when the next experiment is shown, whatever else is pending.
  const refuse = (words) => {
    model.set("problem", words);
    model.save_changes();
  };
  const send = (text) => {
    if (text.length > model.get("largest")) {
      refuse(`That is ${text.length.toLocaleString("en")} characters long; the most is ${most()}.`);
      return;
    }
    model.set("loaded", [Date.now(), text]);
    model.save_changes();
  };
  save.addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([model.get("text")], { type: "application/toml" }));
    link.download = "experiment.toml";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  load.addEventListener("click", () => chooser.click());
  chooser.addEventListener("change", async () => {
    const [file] = chooser.files;
    chooser.value = "";
    if (!file) return;
    if (file.size > model.get("largest")) {
      refuse(`${file.name} is ${file.size.toLocaleString("en")} bytes; the most is ${most()}.`);
      return;
    }
    send(await file.text());
  });
  use.addEventListener("click", () => send(editor.value));

  const showText = () => { editor.value = model.get("text"); };
  const showProblem = () => { problem.textContent = model.get("problem"); };
  model.on("change:text", showText);
  model.on("change:problem", showProblem);
  showText();
  showProblem();
  return () => { model.off("change:text", showText); model.off("change:problem", showProblem); };
}
export default { render };
