// Filters the recorded groups. Without it every group is still there and opens by itself.
const by = (id) => document.getElementById(id);
const groups = () => [...document.querySelectorAll("details.group")];
const texts = new WeakMap();
const textOf = (group) => {
  if (!texts.has(group)) texts.set(group, group.textContent.toLowerCase());
  return texts.get(group);
};
const applyFilters = () => {
  const bar = by("filters");
  if (!bar) return;
  bar.hidden = false;
  const words = by("search").value.toLowerCase();
  const run = by("run") ? by("run").value : "";
  const all = groups();
  all.forEach((group) => {
    group.hidden = !(textOf(group).includes(words)
      && (!run || group.dataset.run === run)
      && (!by("signal")?.checked || group.dataset.signal === "yes"));
  });
  by("groups").classList.toggle("kept-only", Boolean(by("kept")?.checked));
  by("count").textContent = `${all.filter((group) => !group.hidden).length} of ${all.length} ${bar.dataset.unit ?? "groups"}`;
};
document.addEventListener("input", applyFilters);
document.addEventListener("click", (event) => {
  if (event.target.id !== "open") return;
  const shown = groups().filter((group) => !group.hidden);
  const open = shown.some((group) => !group.open);
  shown.forEach((group) => { group.open = open; });
});
applyFilters();
// Pointing at a name of the legend leaves its lines alone visible.
const highlight = (index) => {
  document.querySelectorAll(".figures").forEach((part) => part.classList.toggle("highlight", index >= 0));
  document.querySelectorAll('.figures g[id*="-arm-"]').forEach((line) => {
    line.classList.toggle("shown", line.id.includes(`-arm-${index}-`));
  });
};
[...(by("legend")?.children ?? [])].forEach((name, index) => {
  ["mouseenter", "focus"].forEach((kind) => name.addEventListener(kind, () => highlight(index)));
  ["mouseleave", "blur"].forEach((kind) => name.addEventListener(kind, () => highlight(-1)));
});
// A page that is written again while a run goes on loads itself again, unless somebody reads a group or filters.
const reload = by("live")?.dataset.reload;
if (reload) {
  setInterval(() => {
    if (!document.querySelector("details.group[open]") && !by("search")?.value) location.reload();
  }, 1000 * Number(reload));
}
