/** The events of the chosen session, with what caused what. */

import { tell } from "./detail.js";
import { attr, byId, mark, put, stamp } from "./dom.js";
import { KEPT_EACH, has } from "./model.js";
import { Rows } from "./rows.js";
import { clock, kind, line, summary } from "./words.js";

/** Of rows within one second, so many share one that says it. */
const EACH = 8;
const VERBS = {
  "control.attention.respond": "answers",
  "control.cancel": "cancel",
  "x.kimi-code.control.instruct": "instructions",
};

export class Timeline {
  #items = [];
  #cause = "";
  #effects = new Set();
  /** @type {import("./model.js").Entry|null} */
  selected = null;

  /** @param {import("./console.js").App} app */
  constructor(app) {
    this.app = app;
    this.fine = byId("fine");
    this.list = byId("event-list");
    this.rows = new Rows(this.list, {
      height: 28,
      follows: true,
      make: () => this.#make(),
      fill: (row, item, index) => this.#fill(row, item, index),
      key: (item) => item.no,
      moved: () => app.draw(),
    });
    this.fine.addEventListener("change", () => app.draw());
    byId("follow").addEventListener("click", () => this.end());
  }

  get session() {
    return this.app.model.sessions.get(this.app.chosen);
  }

  /** Another session was chosen. */
  changed() {
    this.select(null);
    this.rows.jump(true);
  }

  render() {
    const { session, selected } = this;
    const items = session ? session.entries.filter((one) => this.#isShown(one)) : [];
    this.#items = items;
    this.#relate();
    this.rows.render(items);
    if (!selected && this.rows.isAtEnd) this.rows.follows = true;
    const active = selected && items.includes(selected) ? `e-${selected.no}` : null;
    attr(this.list, "aria-rowcount", String(items.length));
    attr(this.list, "aria-activedescendant", active);
    this.list.hidden = !items.length;
    byId("no-events").hidden = items.length > 0;
    put(byId("no-events"), session ? "No event matches." : "Choose a session.");
    byId("follow").hidden = this.rows.follows || !items.length;
    put(byId("timeline-title"), session ? line(session.id) : "Timeline");
    put(byId("about"), session ? about(session, this.app.accepts(session.id)) : "");
  }

  /** Choose an event; null: none. */
  select(entry) {
    if (entry !== this.selected) tell(entry, this); // first: it takes room from the list
    this.selected = entry;
    if (entry) {
      this.rows.follows = false;
      if (!this.#isShown(entry)) this.app.unsearch();
    }
    this.render();
    if (entry) this.rows.show(this.#items.indexOf(entry));
    this.render();
  }

  /** Choose the next event, or the one before; the newest, where none is chosen. */
  step(by) {
    const last = this.#items.length - 1;
    const at = this.#items.indexOf(this.selected);
    const to = at < 0 ? last : Math.min(last, Math.max(0, at + by));
    if (this.#items[to]) this.select(this.#items[to]);
  }

  /** To the oldest. */
  start() {
    this.rows.jump(false);
    this.app.draw();
  }

  /** Back to what is new. */
  end() {
    this.select(null);
    this.rows.jump(true);
    this.app.draw();
  }

  /** To the event that caused the chosen one, or to the first that it led to. */
  trace(toCause) {
    const { event } = this.selected ?? {};
    if (event) this.go(toCause ? event.cause : this.session.effects(event.id)[0]?.event.id);
  }

  /** To an event of this session by its id. */
  go(id) {
    const entry = this.session?.known.get(id);
    if (!entry) {
      if (id) this.app.announce("This event is not kept any more.");
      return;
    }
    this.select(entry);
    const row = byId(`e-${entry.no}`);
    row?.classList.remove("flash");
    void row?.offsetWidth; // begins the animation anew
    row?.classList.add("flash");
  }

  #relate() {
    const event = this.selected?.event;
    this.#cause = event?.cause ?? "";
    const effects = event ? (this.session?.effects(event.id) ?? []) : [];
    this.#effects = new Set(effects.map((one) => one.event.id));
  }

  #isShown(entry) {
    const isStory = this.fine.checked || !entry.event.type.startsWith("x.");
    return (isStory || entry === this.selected) && has(entry, this.app.words);
  }

  #make() {
    const row = stamp("event-template");
    row.addEventListener("click", () => this.select(row.entry));
    row.parts.link.addEventListener("click", (click) => {
      click.stopPropagation();
      this.go(row.entry.event.cause);
    });
    return row;
  }

  #fill(row, entry, index) {
    const { event } = entry;
    const { time, name, what, link } = row.parts;
    const rel = event.id === this.#cause ? "cause" : this.#effects.has(event.id) ? "effect" : "";
    attr(row, "aria-selected", String(entry === this.selected));
    attr(row, "aria-rowindex", String(index + 1));
    mark(row, "rel", rel);
    const at = clock(event.time);
    const before = this.#items[index - 1];
    const isSame = before !== undefined && clock(before.event.time) === at && entry.no % EACH !== 0;
    mark(time, "same", String(isSame));
    if (row.entry === entry) return;
    row.entry = entry;
    row.id = `e-${entry.no}`;
    row.classList.remove("flash");
    mark(row, "category", event.type.split(".", 1)[0]);
    mark(row, "severity", event.severity ?? "");
    mark(row, "run", entry.run);
    mark(row, "type", event.type);
    put(time, at);
    put(name, kind(event.type));
    put(what, summary(event));
    const from = this.session.known.get(event.cause);
    link.hidden = !from;
    if (!from) return;
    put(link, `\u2196 ${kind(from.event.type)}`);
    attr(link, "aria-label", `Caused by ${kind(from.event.type)}: go there`);
  }
}

/** @returns {string} what there is to know of a session, in one line */
function about(session, accepts) {
  const levels = [...session.levels].filter(([category]) => category !== "control");
  const usual = (levels.find(([category]) => category !== "attention") ?? levels[0])?.[1];
  const others = levels.filter(([, level]) => level !== usual);
  const kept = session.entries.length;
  const parts = [
    session.agent,
    session.model,
    usual && ["capture " + usual, ...others.map((one) => one.join(" "))].join(", "),
    kept < session.taken
      ? `newest ${kept} of ${session.taken} events kept`
      : `${kept} events, ${KEPT_EACH} at most are kept`,
    session.missing ? "earlier ones are not held any more" : "",
    takes(accepts),
  ];
  return parts.filter(Boolean).join(" \u00b7 ");
}

function takes(accepts) {
  if (!accepts) return "nobody there to take commands";
  const known = accepts.map((one) => VERBS[one] ?? kind(one));
  return known.length ? `takes ${known.join(", ")}` : "takes no commands";
}
