// Filters the recorded groups. Without it every group is still there and opens by itself.
(() => {
  const bar = document.getElementById("filters");
  if (!bar) return;
  bar.hidden = false;
  const groups = [...document.querySelectorAll("details.group")];
  const by = (id) => document.getElementById(id);
  const texts = groups.map((group) => group.textContent.toLowerCase());
  const apply = () => {
    const words = by("search").value.toLowerCase();
    const run = by("run") ? by("run").value : "";
    let count = 0;
    groups.forEach((group, i) => {
      const fits = texts[i].includes(words)
        && (!run || group.dataset.run === run)
        && (!by("signal")?.checked || group.dataset.signal === "yes");
      group.hidden = !fits;
      count += fits ? 1 : 0;
    });
    by("groups").classList.toggle("kept-only", Boolean(by("kept")?.checked));
    by("count").textContent = `${count} of ${groups.length} ${bar.dataset.unit ?? "groups"}`;
  };
  bar.addEventListener("input", apply);
  by("open").addEventListener("click", () => {
    const shown = groups.filter((group) => !group.hidden);
    const open = shown.some((group) => !group.open);
    shown.forEach((group) => { group.open = open; });
  });
  apply();
})();
