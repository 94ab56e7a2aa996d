// The page: which view is shown, what is served, and messages.
import { get, setToken } from "./api.js";
import * as coder from "./coder.js";
import * as neighborhoods from "./neighborhoods.js";
import * as progressive from "./progressive.js";
import { guarded, say } from "./status.js";

const views = { neighborhoods, progressive, coder };
const begun = new Set();
let info = null;

const missing = {
  neighborhoods: () => info.count === undefined && "This server has no index: start it with nestcode serve INDEX.",
  progressive: () => !Object.keys(info.streams).length && "This server has no streams: start it with --streams FOLDER.",
  coder: () => !info.coder && "This server has no coder: its index holds bare codes.",
};

const show = guarded(async () => {
  const available = Object.keys(views).filter((name) => !missing[name]());
  const asked = location.hash.slice(1);
  const name = asked in views ? asked : available[0] ?? "neighborhoods";
  for (const view of Object.keys(views)) {
    document.getElementById(view).hidden = view !== name || Boolean(missing[name]());
    const link = document.querySelector(`nav a[href="#${view}"]`);
    if (view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  say(missing[name]() || "");
  if (!missing[name]() && !begun.has(name)) {
    begun.add(name);
    await views[name].start(info);
  }
});

const begin = guarded(async () => {
  info = await get("/v1/info");
  document.getElementById("login").hidden = true;
  const items = info.count === undefined ? "" : `${info.count.toLocaleString("en")} items of ${info.width} bits`;
  const made = info.coder ? `${info.coder.kind}, ${info.coder.features} features, ${info.coder.metric}` : "";
  document.getElementById("about").textContent = [items, made].filter(Boolean).join(" · ") || "Streams";
  await show();
});

addEventListener("hashchange", () => info && show());
document.getElementById("login").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(document.getElementById("token").value);
  begin();
});
begin();
