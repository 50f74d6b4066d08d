// Before anything is drawn: dark where the viewer wants it, here or in the system.
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const storedTheme = () => { try { return localStorage.getItem("fleetgp-theme"); } catch { return null; } };
const applyTheme = () => {
  document.documentElement.dataset.theme = storedTheme() || (systemDark.matches ? "dark" : "light");
  dispatchEvent(new Event("themed"));
};
systemDark.addEventListener("change", applyTheme);
applyTheme();
addEventListener("theme-chosen", applyTheme);
