// The button that switches between light and dark, as long as the browser keeps it.
{
  const root = document.documentElement;
  const dark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  document.querySelector("button.theme")?.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("dlhpc-theme", root.dataset.theme); } catch { /* it lasts as long as the page */ }
  });
}
