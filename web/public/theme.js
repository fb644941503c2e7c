// Runs before the first paint, so that a dark screen never flashes white. An external file, because
// the content policy allows no inline script.
(() => {
  let choice = "auto";
  try {
    choice = localStorage.getItem("purser-theme") ?? "auto";
  } catch {
    // Storage may be closed to us; the system's choice then rules.
  }
  const isDark =
    choice === "dark" ||
    (choice !== "light" && window.matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.setAttribute("data-mantine-color-scheme", isDark ? "dark" : "light");
})();
