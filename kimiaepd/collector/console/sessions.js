/** The sessions, those that wait for somebody first; within a state the newest first. */

import { attr, byId, el, mark, put } from "./dom.js";
import { Rows } from "./rows.js";
import { has } from "./model.js";
import { ago, kind, line, short, summary } from "./words.js";

const ORDER = { waiting: 0, running: 1, idle: 2, stale: 3, ended: 4 };
const SAID = { waiting: "awaiting approval", running: "running", idle: "idle", stale: "stale", ended: "ended" };
const SORTED_MS = 500;

export class Sessions {
  #sortedAt = 0;
  #order = [];
  /** @type {Record<string, number>} */
  counts = {};

  /** @param {import("./console.js").App} app */
  constructor(app) {
    this.app = app;
    this.list = byId("session-list");
    this.rows = new Rows(this.list, {
      height: 58,
      make: () => this.#make(),
      fill: (row, item) => this.#fill(row, item),
      key: (item) => item.id,
      moved: () => app.draw(),
    });
  }

  /** Sort anew at the next drawing, whenever the last was. */
  stir() {
    this.#sortedAt = 0;
  }

  render(now) {
    if (now - this.#sortedAt >= SORTED_MS) this.#sort(now);
    this.now = now;
    this.rows.render(this.#order);
    const chosen = this.#order.findIndex((one) => one.id === this.app.chosen);
    attr(this.list, "aria-activedescendant", chosen < 0 ? null : `s-${this.app.chosen}`);
    byId("no-sessions").hidden = this.#order.length > 0;
    put(byId("no-sessions"), this.app.words.length ? "No session matches." : "No session yet. Start kimi, and it shows here.");
    this.list.hidden = this.#order.length === 0;
  }

  /** Choose the next session, or the one before. */
  step(by) {
    const at = this.#order.findIndex((one) => one.id === this.app.chosen);
    const to = Math.min(this.#order.length - 1, Math.max(0, at + by));
    if (this.#order[to]) this.app.choose(this.#order[to].id);
    this.rows.show(to);
  }

  #sort(now) {
    this.#sortedAt = now;
    this.counts = { waiting: 0, running: 0, idle: 0, stale: 0, ended: 0 };
    const { words, chosen } = this.app;
    const found = [];
    for (const session of this.app.model.sessions.values()) {
      session.is = session.state(now);
      this.counts[session.is]++;
      if (session.id === chosen || matches(session, words)) found.push(session);
    }
    this.#order = found.sort((a, b) => ORDER[a.is] - ORDER[b.is] || b.began - a.began);
    if (!chosen && found.length) this.app.choose(found[0].id, { quietly: true });
  }

  #make() {
    const state = el("span", { class: "state" });
    const name = el("b");
    const when = el("span", { class: "when" });
    const what = el("span", { class: "what" });
    const row = el("div", { role: "option", class: "session", onclick: () => this.app.choose(row.session, { open: true }) },
      el("span", { class: "top" }, name, state, when), what);
    return Object.assign(row, { parts: { state, name, when, what } });
  }

  #fill(row, session) {
    const { state, name, when, what } = row.parts;
    const is = session.state(this.now);
    row.session = session.id;
    row.id = `s-${session.id}`;
    attr(row, "aria-selected", String(session.id === this.app.chosen));
    mark(row, "state", is);
    put(name, short(session.id));
    put(state, SAID[is]);
    put(when, (is === "waiting" && deadline(session, this.now)) || ago(this.now - session.heard));
    put(what, session.title || doing(session));
    row.title = session.id;
  }
}

/** @returns {string} how long somebody waits yet, for the ask that waits least long; or nothing */
function deadline(session, now) {
  const ends = [...session.open.values()].map((one) => one.until).filter(Boolean);
  return ends.length ? `${Math.max(0, Math.ceil((Math.min(...ends) - now) / 1000))} s` : "";
}

function doing(session) {
  return session.doing ? `${kind(session.doing.type)}  ${summary(session.doing)}` : line(session.agent);
}

function matches(session, words) {
  if (!words.length) return true;
  const name = `${session.id} ${session.title} ${session.model}`.toLowerCase();
  return words.every((one) => name.includes(one)) || session.entries.some((one) => has(one, words));
}
