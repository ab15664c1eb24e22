/** The sessions, those that wait for somebody first; within a state the newest first. */

import { attr, byId, mark, put, stamp } from "./dom.js";
import { has } from "./model.js";
import { Rows } from "./rows.js";
import { ago, kind, line, summary } from "./words.js";

/** The states in their order, as they are said. */
const STATES = {
  waiting: "awaiting approval",
  running: "running",
  idle: "idle",
  stale: "stale",
  ended: "ended",
};
const ORDER = Object.keys(STATES);
const SORTED_MS = 500;

export class Sessions {
  #sortedAt = 0;
  #now = 0;
  #order = [];
  /** @type {Record<string, number>} how many are in a state */
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
    this.#now = now;
    this.rows.render(this.#order);
    const isThere = this.#order.some((one) => one.id === this.app.chosen);
    attr(this.list, "aria-activedescendant", isThere ? `s-${this.app.chosen}` : null);
    this.list.hidden = this.#order.length === 0;
    byId("no-sessions").hidden = this.#order.length > 0;
    const isSearch = this.app.words.length > 0;
    put(byId("no-sessions"), isSearch ? "No session matches." : "No session yet: start kimi.");
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
    this.counts = {};
    const { words, chosen } = this.app;
    const found = [];
    for (const session of this.app.model.sessions.values()) {
      session.is = session.state(now);
      this.counts[session.is] = (this.counts[session.is] ?? 0) + 1;
      if (matches(session, words)) found.push(session);
    }
    const place = (session) => ORDER.indexOf(session.is);
    this.#order = found.sort((a, b) => place(a) - place(b) || b.began - a.began);
    if (!chosen && found.length) this.app.choose(found[0].id);
  }

  #make() {
    const row = stamp("session-template");
    row.addEventListener("click", () => this.app.choose(row.session, { open: true }));
    return row;
  }

  #fill(row, session) {
    const { state, name, when, what } = row.parts;
    const is = session.state(this.#now);
    const left = is === "waiting" && deadline(session, this.#now);
    row.session = session.id;
    row.id = `s-${session.id}`;
    row.title = session.id;
    attr(row, "aria-selected", String(session.id === this.app.chosen));
    mark(row, "state", is);
    put(name, line(session.id.replace(/^session_/, "")));
    put(state, STATES[is]);
    put(when, left || ago(this.#now - session.heard));
    put(what, session.title || doing(session));
  }
}

/** @returns {string} how long somebody waits yet, for the ask that waits least long; or nothing */
function deadline(session, now) {
  const ends = [...session.open.values()].map((one) => one.until).filter(Boolean);
  return ends.length ? `${Math.max(0, Math.ceil((Math.min(...ends) - now) / 1000))} s` : "";
}

function doing({ doing: event, agent }) {
  return event ? `${kind(event.type)}  ${summary(event)}` : agent;
}

function matches(session, words) {
  if (!words.length) return true;
  const name = `${session.id} ${session.title} ${session.model}`.toLowerCase();
  return words.every((one) => name.includes(one)) || session.entries.some((one) => has(one, words));
}
