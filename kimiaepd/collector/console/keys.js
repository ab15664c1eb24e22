/** What keys do, wherever the focus is; in a field they write, and Escape alone leaves it. */

import { isAllow, isDeny } from "./decided.js";
import { byId } from "./dom.js";

const PANES = { i: "inbox", s: "sessions", t: "timeline" };
const FIELD = "input:not([type=checkbox])";

/** @param {import("./console.js").App} app */
export function listen(app) {
  const { inbox, sessions, timeline, orders } = app;
  const here = () => {
    const focused = document.activeElement?.closest("main > section")?.id;
    return app[focused ?? document.body.dataset.pane];
  };
  const pick = (choose) => () => inbox.byKey(choose);
  const acts = {
    j: () => here().step(1),
    k: () => here().step(-1),
    r: () => inbox.write(),
    x: () => timeline.trace(true),
    e: () => timeline.trace(false),
    g: () => timeline.start(),
    G: () => timeline.end(),
    v: () => byId("fine").click(),
    m: () => orders.write(),
    "/": () => byId("search").focus(),
    Enter: () => {
      if (here() === inbox) inbox.open();
      else if (here() === sessions) app.go("timeline");
      else if (!timeline.selected) timeline.step(-1);
    },
  };
  acts.ArrowDown = acts.j;
  acts.ArrowUp = acts.k;
  /** Not again while they are held down. */
  const once = {
    a: pick((options) => options.find((one) => isAllow(one.id))),
    d: pick((options) => options.find((one) => isDeny(one.id))),
    c: () => orders.askCancel(),
    "?": () => byId("help").showModal(),
  };
  for (let place = 1; place <= 9; place++) once[place] = pick((options) => options[place - 1]);

  const leave = (target) => {
    if (target.id === "search" && app.words.length) app.unsearch();
    else if (target.matches(FIELD)) target.blur();
    else timeline.select(null);
  };

  document.addEventListener("keydown", (press) => {
    const { key, target, repeat, ctrlKey, metaKey, altKey } = press;
    if (document.querySelector("dialog[open]") || document.body.dataset.door === "open") return;
    if (key === "Escape") return leave(target);
    if (ctrlKey || metaKey || altKey || target.matches(FIELD)) return;
    if (key === "Enter" && target.matches("button, input")) return;
    const act = PANES[key] ? () => app.go(PANES[key]) : (acts[key] ?? (repeat ? null : once[key]));
    if (!act) return;
    press.preventDefault();
    act();
  });
}
