// Keeps the page up to date: asks for what is new, and puts it in place of the old without moving what is read.
const ASK_EVERY = 2000;
const live = by("live");
let newest = Date.now() - 1000 * Number(live.dataset.quiet);
let problem = "";
const age = () => {
  const seconds = Math.max(0, Math.round((Date.now() - newest) / 1000));
  return seconds < 120 ? `${seconds} s` : seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
};
const showState = () => {
  const texts = {
    starting: "live, no step yet",
    training: `live, updated ${age()} ago`,
    stopped: `stopped: no process of this machine trains in it; newest line ${age()} ago`,
    finished: "the run has ended",
  };
  live.textContent = problem ? `${problem}; this is what was read last` : texts[live.dataset.shown];
  live.dataset.state = problem ? "lost" : live.dataset.shown;
};
// Children that are equal stay; so do their places of scrolling.
const replaceChanged = (old, fresh) => {
  const olds = [...old.children];
  const news = [...fresh.children];
  news.forEach((node, i) => {
    if (!olds[i]) old.append(node);
    else if (olds[i].outerHTML !== node.outerHTML) {
      const left = olds[i].scrollLeft;
      olds[i].replaceWith(node);
      node.scrollLeft = left;
    }
  });
  olds.slice(news.length).forEach((node) => node.remove());
};
// A group never changes: new ones come in at their places, open ones stay even where the page has no room for them.
const mergeGroups = (old, fresh) => {
  const wanted = new Map([...fresh.children].map((node) => [node.dataset.key, node]));
  for (const node of [...old.children]) if (!wanted.has(node.dataset.key) && !node.open) node.remove();
  const there = new Map([...old.children].map((node) => [node.dataset.key, node]));
  let at = old.firstElementChild;
  for (const [key, node] of wanted) {
    while (at && !wanted.has(at.dataset.key)) at = at.nextElementSibling;
    if (!there.has(key)) old.insertBefore(node, at);
    else if (there.get(key) === at) at = at.nextElementSibling;
    else old.insertBefore(there.get(key), at);
  }
};
const takeOver = (fresh) => {
  const anchor = [...document.querySelectorAll("#measured > *, #recorded > *, details.group")]
    .find((node) => node.getClientRects().length && node.getBoundingClientRect().bottom > 0 && node.id !== "groups");
  const top = anchor?.getBoundingClientRect().top;
  const key = anchor?.dataset.key;
  const place = anchor ? [...anchor.parentElement.children].indexOf(anchor) : 0;
  const parent = anchor?.parentElement;
  document.title = fresh.title;
  replaceChanged(by("head"), fresh.getElementById("head"));
  replaceChanged(by("measured"), fresh.getElementById("measured"));
  const [groupsNow, groupsNew] = [by("groups"), fresh.getElementById("groups")];
  if (groupsNow && groupsNew) mergeGroups(groupsNow, groupsNew);
  else replaceChanged(by("recorded"), fresh.getElementById("recorded"));
  const [runsNow, runsNew] = [by("run"), fresh.getElementById("run")];
  if (runsNow && runsNew && runsNow.length !== runsNew.length) runsNow.append(...[...runsNew.children].slice(runsNow.length));
  applyFilters();
  const same = key ? groups().find((node) => node.dataset.key === key) : parent?.children[place];
  if (same) scrollBy({ top: same.getBoundingClientRect().top - top, behavior: "instant" });
};
const ask = async () => {
  try {
    const answer = await fetch(`/?since=${live.dataset.tag}`, { cache: "no-store" });
    if (answer.status === 200) {
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const state = fresh.getElementById("live");
      if (state) {
        takeOver(fresh);
        live.dataset.tag = state.dataset.tag;
        live.dataset.shown = state.dataset.state;
        newest = Date.now() - 1000 * Number(state.dataset.quiet);
      }
    }
    problem = answer.ok ? "" : await answer.text();
  } catch {
    problem = "no connection";
  }
  showState();
  setTimeout(ask, ASK_EVERY);
};
live.dataset.shown = live.dataset.state;
setInterval(showState, 1000);
showState();
setTimeout(ask, ASK_EVERY);
